"""The one loop: boot machines, warm up, run steps in their order, end everything.

Every verb that measures in a machine gives it variants (machines with instruments) and steps
(commands in the order to run); the runner reports each finished step to it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from vtax.core.errors import MisuseError, SessionOverError, VtaxError
from vtax.core.runner import duet, repetition
from vtax.core.runner.repetition import Instrument, Repetition
from vtax.environments.agent import OUTPUT_LIMIT_BYTES, Finished, MachineLostError
from vtax.environments.base import Environment, MachineLike, allowed_cpus
from vtax.environments.capabilities import Nodes
from vtax.workloads.base import Command

State = Literal["running", "complete", "interrupted", "budget", "failed"]
Reboot = Literal["each", "never"]

BOOT_ATTEMPTS = 2
"""An environment whose machine fails this often in a row is given up for the rest of the run."""

Starter = Callable[[Environment, Path, Sequence[int]], MachineLike]


def boot(environment: Environment, work: Path, cpus: Sequence[int]) -> MachineLike:
    return environment.start(work, cpus)


class Listener:
    """Receives progress; must not raise. This base class ignores it."""

    def booting(self, label: str) -> None: ...

    def warming(self, label: str) -> None: ...

    def running(self, label: str, repetition: int) -> None: ...

    def finished(self, label: str, repetition: int, wall_s: float) -> None: ...

    def failed(self, label: str, repetition: int, message: str) -> None: ...

    def extended(self, steps: int) -> None:
        """This many steps are added to the plan."""

    def stopped(self, state: State) -> None: ...


@dataclass(frozen=True, slots=True)
class Variant:
    """What is repeated: a machine with instruments, in a state of its own if the machine has
    states."""

    label: str
    environment: Environment
    work: Path
    """Host folder that its machine may write; it exists. Variants with the same folder share a
    machine."""
    instruments: Sequence[Instrument] = ()
    enter: Callable[[MachineLike], bool] | None = None
    """Brings the machine into the variant's state; returns whether it was in another state."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command to run once in a variant."""

    variant: str
    repetition: int
    command: Command
    folder: str
    """The working folder's name below the variant's `work`."""
    out: Path
    """Host folder for files of instruments."""
    fresh: bool = False
    """Run in a machine that has run no step yet: a machine that has run one is started again."""
    round: int = 0
    """Where a machine is several nodes, all steps of a round run on the same one."""
    cpus: Sequence[int] = ()
    """The CPUs that its machine is moved to; empty: it stays where it started."""


@dataclass(frozen=True, slots=True)
class Done:
    """A finished step."""

    step: Step
    position: int
    """Position in the order of all steps, from 0."""
    boot: int
    """The number of the machine's start that it ran in, from 0."""
    repetition: Repetition
    beside: Finished | None = None
    """What ran at the same time; None: nothing."""


class Keeper:
    """Receives from the runner what to keep. In this class a failure ends the run."""

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        """A machine came up."""

    def warmed(self, variant: Variant, machine: MachineLike) -> None:
        """A machine finished its warm-up."""

    def ready(self) -> None:
        """Every machine came up; measuring begins."""

    def read(self, this: Repetition) -> None:
        """Read results, of warm-ups too. Raises VtaxError when the workload failed."""

    def done(self, done: Done) -> None:
        """Keep a finished step. A VtaxError ends the run."""

    def failed(self, step: Step, error: VtaxError) -> None:
        """A step gave no result. Raise the error to end the run."""
        raise error


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run and how."""

    variants: Sequence[Variant]
    steps: Sequence[Step]
    variables: Mapping[str, str]
    """The environment of the commands, before a command's own."""
    more: Callable[[], Sequence[Step]] = tuple
    """Called for further steps when all have run; an empty sequence ends the run."""
    warm_up: bool = False
    """Run a step's command once, unmeasured, whenever its machine or its state is new."""
    reboot: Reboot = "never"
    budget_s: float | None = None
    everywhere: bool = False
    """Run commands in all nested guests of a machine."""
    max_output_bytes: int = OUTPUT_LIMIT_BYTES
    """How many bytes a machine may write into its folder while a command runs."""
    workdir: Path | None = None
    """Where commands run that want the user's folder; None: in the folder of their results."""
    matched: bool = False
    """Keep each machine and its VMM on as many CPUs as its programs have: like with like."""
    duet: bool = False
    """Steps come in pairs that run at once; each step has its CPUs (`duet.py`)."""


@dataclass(slots=True)
class _Slot:
    """A machine while the plan runs."""

    variant: Variant
    """The first of the variants that share the machine."""
    cpus: Sequence[int]
    machine: MachineLike | None = None
    boots: int = 0
    warm_ups: int = 0
    fresh: bool = True
    used: bool = False
    """Whether its machine has begun a step."""
    lost_in_a_row: int = 0


@dataclass(slots=True)
class Runner:
    """Runs a plan, once."""

    plan: Plan
    keeper: Keeper
    listener: Listener
    start: Starter = boot
    clock: Callable[[], float] = time.monotonic
    _slots: dict[Path, _Slot] = field(init=False)
    _variants: dict[str, Variant] = field(init=False)
    _allowed: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._allowed = allowed_cpus()
        self._variants = {each.label: each for each in self.plan.variants}
        self._slots = {}
        both = sorted({cpu for step in self.plan.steps for cpu in step.cpus})
        for each in self.plan.variants:
            cpus = both or kept_cpus(each.environment, matched=self.plan.matched)
            self._slots.setdefault(each.work, _Slot(each, cpus))

    def run(self) -> State:
        """Run to the end or the budget's end; return "failed" when no machine finished its warm-up,
        or when what the machines of an environment stand on is over.

        Raises VtaxError when a machine does not come up at the start or the keeper raises it, and
        KeyboardInterrupt; every machine has ended by then.
        """
        state: State = "failed"
        try:
            with self._apart(), self._sessions():
                lost = self._boot_all()
                self.keeper.ready()
                if len(lost) < len(self._slots):
                    state = self._all_steps(lost)
        except KeyboardInterrupt:
            state = "interrupted"
            raise
        finally:
            self.listener.stopped(state)
        return state

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """Keep vtax itself off the CPUs under measurement where there are others."""
        rest = self._allowed[: -max(len(slot.cpus) for slot in self._slots.values())]
        if rest:
            os.sched_setaffinity(0, rest)
        try:
            yield
        finally:
            os.sched_setaffinity(0, self._allowed)

    @contextlib.contextmanager
    def _sessions(self) -> Iterator[None]:
        """Keep what the environments' machines stand on until all machines have ended."""
        with contextlib.ExitStack() as stack:
            for slot in self._slots.values():
                stack.enter_context(slot.variant.environment.session())
            try:
                yield
            finally:
                self._drop_all()

    def _boot_all(self) -> Sequence[Step]:
        """The boot probe: an environment that does not come up ends the run before it begins.

        A command that fails in the first warm-up has failed its first step; the result has those
        steps.
        """
        first = {step.variant: step for step in reversed(self.plan.steps)}
        lost: list[Step] = []
        for slot in self._slots.values():
            label = slot.variant.label
            step = first[label]
            try:
                machine = self._booted(step)
                try:
                    self._warm(step, machine)
                except VtaxError as error:
                    self._failed(step, error)
                    lost.append(step)
            except MachineLostError as error:
                remedy = slot.variant.environment.boot_remedy()
                raise VtaxError(f"environment '{label}': {error}", remedy) from None
            except VtaxError as error:
                kind = MisuseError if isinstance(error, MisuseError) else VtaxError
                raise kind(f"environment '{label}': {error}") from None
            if self.plan.reboot == "each":
                _close(slot)
        return lost

    def _all_steps(self, lost: Sequence[Step]) -> State:
        begin = self.clock()
        budget_s = self.plan.budget_s
        at_once = 2 if self.plan.duet else 1
        for turn, steps in enumerate(zip(*[self._steps()] * at_once, strict=True)):
            if budget_s is not None and self.clock() - begin >= budget_s:
                return "budget"
            if any(step in lost for step in steps):
                self._without(lost, steps)
                continue
            try:
                if self.plan.duet:
                    self._duet(steps, at_once * turn)
                else:
                    self._step(steps[0], turn)
            except SessionOverError as error:
                self._failed(steps[0], error)
                return "failed"
            if self.plan.reboot == "each":
                for step in steps:
                    _close(self._slot(step))
        return "complete"

    def _steps(self) -> Iterator[Step]:
        steps = self.plan.steps
        while steps:
            yield from steps
            steps = self.plan.more()

    def _step(self, step: Step, position: int) -> None:
        try:
            machine = self._ready(step)
            self.listener.running(step.variant, step.repetition)
            this = self._run(step, machine, step.folder, self._variants[step.variant].instruments)
        except SessionOverError:
            raise
        except VtaxError as error:
            self._failed(step, error)
        else:
            self._done(step, position, this)

    def _duet(self, steps: Sequence[Step], position: int) -> None:
        """Run both steps at once; where one fails, neither counts."""
        these = []
        for step in steps:
            try:
                these.append(self._repetition(step, self._ready(step), step.folder))
            except VtaxError as error:
                self._failed(step, error)
                return self._without([step], steps)
        for step in steps:
            self.listener.running(step.variant, step.repetition)
        pairs = list(zip(steps, these, strict=True))
        actions = [
            partial(self._carry_out, this, step.command, *self._variants[step.variant].instruments)
            for step, this in pairs
        ]
        errors = duet.at_once(actions, self._drop_all)
        failed = []
        for (step, this), ended in zip(pairs, errors, strict=True):
            try:
                if ended is not None:
                    raise ended
                self.keeper.read(this)
            except VtaxError as found:
                self._failed(step, found)
                failed.append(step)
        if failed:
            return self._without(failed, steps)
        others = [this.finished[0] for this in reversed(these)]
        for number, ((step, this), other) in enumerate(zip(pairs, others, strict=True)):
            self._done(step, position + number, this, other)
        return None

    def _without(self, failed: Sequence[Step], steps: Sequence[Step]) -> None:
        """Fail the other one of a pair."""
        names = " and ".join(step.variant for step in steps if step in failed)
        for step in steps:
            if step not in failed:
                self._failed(step, VtaxError(f"not counted: '{names}' failed beside it"))

    def _ready(self, step: Step) -> MachineLike:
        """The step's machine, booted and warm."""
        slot = self._slot(step)
        if slot.lost_in_a_row >= BOOT_ATTEMPTS:
            raise VtaxError("not run: its machine failed twice in a row")
        if step.fresh and slot.used:
            _close(slot)
        machine = self._booted(step)
        self._warm(step, machine)
        slot.used = True
        return machine

    def _done(
        self, step: Step, position: int, this: Repetition, beside: Finished | None = None
    ) -> None:
        slot = self._slot(step)
        slot.lost_in_a_row = 0
        self.keeper.done(Done(step, position, slot.boots - 1, this, beside))
        wall_s = max(each.outcome.wall_s for each in this.finished)
        self.listener.finished(step.variant, step.repetition, wall_s)

    def _failed(self, step: Step, error: VtaxError) -> None:
        """A step gave no result; the keeper may raise the error to end the run."""
        if isinstance(error, MachineLostError):
            slot = self._slot(step)
            self._drop(slot)
            slot.lost_in_a_row += 1
        self.listener.failed(step.variant, step.repetition, str(error))
        self.keeper.failed(step, error)

    def _run(
        self, step: Step, machine: MachineLike, folder: str, instruments: Sequence[Instrument]
    ) -> Repetition:
        this = self._repetition(step, machine, folder)
        self._carry_out(this, step.command, *instruments)
        self.keeper.read(this)
        return this

    def _repetition(self, step: Step, machine: MachineLike, folder: str) -> Repetition:
        variant, argv = self._variants[step.variant], step.command.argv
        return Repetition(
            variant.label, machine, variant.work, folder, step.out, argv, step=step.folder
        )

    def _carry_out(self, this: Repetition, command: Command, *instruments: Instrument) -> None:
        variables = {**self.plan.variables, **command.environment}
        repetition.run(
            this,
            command,
            variables,
            instruments,
            workdir=self.plan.workdir,
            everywhere=self.plan.everywhere,
        )

    def _booted(self, step: Step) -> MachineLike:
        """The step's machine: booted and in the variant's state."""
        slot, variant = self._slot(step), self._variants[step.variant]
        if slot.machine is None:
            self.listener.booting(variant.label)
            slot.machine = self.start(variant.environment, variant.work, slot.cpus)
            slot.machine.output_limit_bytes = self.plan.max_output_bytes
            slot.fresh, slot.used = True, False
            slot.boots += 1
            self.keeper.booted(variant, slot.machine)
        if variant.enter and variant.enter(slot.machine):
            slot.fresh = True
        nodes = slot.machine.offer(Nodes)
        if nodes is not None and nodes.turn(step.round):
            slot.fresh = True
        if step.cpus:
            duet.move(slot.machine, step.cpus)
        return slot.machine

    def _warm(self, step: Step, machine: MachineLike) -> None:
        """Warm the step's machine up where it, or its state, is new."""
        slot, variant = self._slot(step), self._variants[step.variant]
        if slot.fresh and self.plan.warm_up:
            self.listener.warming(variant.label)
            slot.warm_ups += 1
            self._run(step, machine, f"warm-up-{slot.warm_ups - 1}", ())
            self.keeper.warmed(variant, machine)
        slot.fresh = False

    def _slot(self, step: Step) -> _Slot:
        return self._slots[self._variants[step.variant].work]

    def _drop_all(self) -> None:
        with uninterrupted():
            for slot in self._slots.values():
                self._drop(slot)

    def _drop(self, slot: _Slot) -> None:
        """Forget a machine that is gone; closing it again is harmless."""
        with contextlib.suppress(VtaxError):
            _close(slot)


def kept_cpus(environment: Environment, *, matched: bool) -> Sequence[int]:
    """The host CPUs to keep a machine and its VMM on: the last ones that this process may use."""
    allowed = allowed_cpus()
    if environment.is_remote:
        return allowed[-1:]
    count = environment.shape().cpus if matched else environment.host_cpus()
    return allowed[-count:]


def _close(slot: _Slot) -> None:
    if slot.machine is not None:
        machine, slot.machine = slot.machine, None
        machine.close()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let cleaning up finish: a second Ctrl-C must not leave a guest behind."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    except ValueError:  # not the main thread (a notebook's worker): nothing to hold back
        yield
        return
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
