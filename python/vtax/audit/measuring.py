"""`audit`: what each environment's clocks are and do, measured inside and from the host."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtax.audit import order as audit_order
from vtax.audit.analysis import Beside, Interruption, Observed, Timed, card
from vtax.audit.competitor import Competitor
from vtax.audit.order import drifts
from vtax.audit.order_drift import OrderDrift
from vtax.core import binaries, foreign_json
from vtax.core.clocks import Skew
from vtax.core.errors import VtaxError
from vtax.core.formats.model import AuditCard
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import (
    Done,
    Keeper,
    Listener,
    Plan,
    Runner,
    Starter,
    Step,
    Variant,
    boot,
    kept_cpus,
)
from vtax.environments.base import Environment, MachineLike
from vtax.environments.capabilities import Pause, Switch
from vtax.workloads.base import Command, tail

OUTPUT_BYTES = 1 << 20
TIMEOUT_S = 120.0
PAUSE_S = 1.0
BESIDE = "#beside"
"""The label of a machine's variant that has a competitor ends with this."""
MPI_CLOCK = "vtax-mpi-clock"


@dataclass(frozen=True, slots=True)
class Depth:
    """How long an audit measures."""

    noise_s: float
    spins: Mapping[float, int]
    """How many runs of each duration in seconds hold CPU time against wall time."""
    beside_s: float | None = None
    """How long to look for noise, beside a competing machine too, and to measure over
    interruptions."""
    mpi: bool = False
    """Whether to look at MPI_Wtime, where the machine has this host's files."""
    order_s: float = 0.0
    """Time for the experiment with the order of sizes; 0: there is none."""

    @property
    def steps(self) -> int:
        """The number of steps in each environment."""
        beside = 0 if self.beside_s is None else 1 + BESIDE_SPINS
        return (
            1
            + self.mpi
            + sum(self.spins.values())
            + beside
            + (audit_order.RUNS if self.order_s else 0)
        )


BESIDE_SPINS = 3
ORDER_SEED = 1
FULL = Depth(
    noise_s=5.0,
    spins={0.0001: 10, 0.001: 10, 0.01: 10, 0.1: 10, 1.0: 5, 10.0: 1},
    beside_s=3.0,
    mpi=True,
    order_s=15.0,
)
QUICK = Depth(noise_s=2.0, spins={0.01: 5, 0.1: 5})


def audit(
    environments: Mapping[str, Environment],
    variables: Mapping[str, str],
    depth: Depth,
    listener: Listener,
    folder: Path,
    start: Starter = boot,
) -> Sequence[AuditCard]:
    """Measure each environment, by its label; what its programs print goes to `folder`. Raises
    VtaxError when an environment does not come up, or cannot run vtax-agent.
    """
    listener.extended(depth.steps * len(environments))
    variants: list[Variant] = []
    tasks: dict[str, Sequence[_Task]] = {}
    steps: list[Step] = []
    competitors: dict[str, Competitor] = {}
    for number, (label, environment) in enumerate(environments.items()):
        work = folder / str(number)
        work.mkdir(mode=0o700)
        out = folder / f"{number}-out"
        variants.append(Variant(label, environment, work))
        tasks[label] = _tasks(environment, depth)
        steps += _steps(label, tasks[label], out)
        if depth.beside_s is not None:
            rival = Competitor(
                environment, folder / f"{number}-beside", kept_cpus(environment, matched=True),
                _spin(environment, TIMEOUT_S), variables, start,
            )  # fmt: skip
            competitors[label] = rival
            beside = label + BESIDE
            variants.append(Variant(beside, environment, work, enter=rival.enter))
            tasks[beside] = _beside_tasks(environment, depth.beside_s)
            steps += _steps(beside, tasks[beside], out)
    seen = {label: _Seen(each.emulates_clock()) for label, each in environments.items()}
    keeper = _Keeper(seen, tasks, competitors)
    with contextlib.ExitStack() as stack:
        for rival in competitors.values():
            stack.callback(rival.close)
        Runner(Plan(variants, steps, variables, matched=True), keeper, listener, start).run()
    drift: Mapping[str, OrderDrift] = {}
    if depth.order_s:
        drift = drifts(environments, variables, depth.order_s, ORDER_SEED, listener, start)
    return [card(label, keeper.observed(label), drift.get(label)) for label in environments]


@dataclass(slots=True)
class _Seen:
    """What was seen of a machine, in the form that `Observed` takes."""

    emulated_clock: bool = False
    clocks: Mapping[str, Any] = field(default_factory=dict)
    skews: list[tuple[float, Skew]] = field(default_factory=list)
    timed: list[Timed] = field(default_factory=list)
    interruptions: list[Interruption] = field(default_factory=list)
    mpi: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Task:
    """What a machine runs once, and what its result is used for."""

    folder: str
    argv: Sequence[str]
    keep: Callable[[_Seen, Repetition], None]


def _tasks(environment: Environment, depth: Depth) -> Sequence[_Task]:
    tasks = [_Task("clocks", _look(environment, depth.noise_s), _keep_clocks)]
    if depth.mpi and environment.has_folder(binaries.FOLDER):
        tasks.append(_Task("mpi", (str(binaries.find(MPI_CLOCK)),), _keep_mpi))
    durations = [
        duration
        # The durations take turns, so that none has a part of the time to itself.
        for run in range(max(depth.spins.values()))
        for duration, runs in depth.spins.items()
        if run < runs
    ]
    return tasks + _spins(environment, "spin", durations)


def _beside_tasks(environment: Environment, noise_s: float) -> Sequence[_Task]:
    look = _Task("clocks-beside", _look(environment, noise_s), _keep_clocks)
    return [look, *_spins(environment, "spin-beside", [1.0] * BESIDE_SPINS)]


def _spins(environment: Environment, name: str, durations: Sequence[float]) -> list[_Task]:
    return [
        _Task(f"{name}-{number}", _spin(environment, duration), _Timer(duration).keep)
        for number, duration in enumerate(durations)
    ]


def _steps(label: str, tasks: Sequence[_Task], out: Path) -> Sequence[Step]:
    return [
        Step(label, number, Command(tuple(task.argv), timeout_s=TIMEOUT_S), task.folder, out)
        for number, task in enumerate(tasks)
    ]


def _look(environment: Environment, noise_s: float) -> Sequence[str]:
    return (environment.agent_inside(), "clocks", "--seconds", str(noise_s))


def _spin(environment: Environment, seconds: float) -> Sequence[str]:
    agent = environment.agent_inside()
    return (agent, "workload", "gzip-like", "--seconds", str(seconds), "--mem", "1M")


def _keep_clocks(seen: _Seen, this: Repetition) -> None:
    _require_success(this)
    seen.clocks = _parsed(this)


def _keep_mpi(seen: _Seen, this: Repetition) -> None:
    # A machine without MPI, or whose MPI does not start, has no fault of a clock.
    if this.finished[0].outcome.exit_code == 0:
        seen.mpi = _parsed(this)


@dataclass(frozen=True, slots=True)
class _Timer:
    asked_s: float

    def keep(self, seen: _Seen, this: Repetition) -> None:
        _require_success(this)
        outcome = this.finished[0].outcome
        seen.timed.append(Timed(self.asked_s, outcome.wall_s, outcome.cpu_s))


def _require_success(this: Repetition) -> None:
    if this.finished[0].outcome.exit_code != 0:
        said = tail(this.exchange.read_text("stderr", OUTPUT_BYTES)) or "it says nothing"
        raise VtaxError(f"{this.label}: {Path(this.argv[0]).name} {this.argv[1]}: {said}")


@dataclass(slots=True)
class _Keeper(Keeper):
    seen: dict[str, _Seen]
    tasks: Mapping[str, Sequence[_Task]]
    competitors: Mapping[str, Competitor]

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        self._measure_skew(variant.label, machine)

    def done(self, done: Done) -> None:
        label, number = done.step.variant, done.step.repetition
        own = self.seen.setdefault(label, _Seen())
        self.tasks[label][number].keep(own, done.repetition)
        if number < len(self.tasks[label]) - 1:
            return
        if label.endswith(BESIDE):
            self.competitors[label.removesuffix(BESIDE)].close()
        else:
            self._measure_skew(label, done.repetition.machine)
            if label in self.competitors and not own.emulated_clock:
                own.interruptions += _interruptions(done.repetition.machine)

    def observed(self, label: str) -> Observed:
        own, beside = self.seen[label], self.seen.get(label + BESIDE)
        return Observed(
            own.clocks,
            None if own.emulated_clock else tuple(own.skews),
            tuple(own.timed),
            None if beside is None else Beside(beside.clocks, tuple(beside.timed)),
            tuple(own.interruptions),
            own.mpi,
        )

    def _measure_skew(self, label: str, machine: MachineLike) -> None:
        if not self.seen[label].emulated_clock:
            self.seen[label].skews.append((time.monotonic(), machine.clock_skew()))


def _interruptions(machine: MachineLike) -> Sequence[Interruption]:
    """Stop the machine for a while, and switch it to the other paging mode and back."""
    found = []
    if pause := machine.offer(Pause):
        before = machine.clock_skew()
        pause.pause()
        try:
            time.sleep(PAUSE_S)
        finally:
            pause.resume()
        found.append(Interruption("pause", before, machine.clock_skew()))
    if switch := machine.offer(Switch):
        mode, before = switch.mode(), machine.clock_skew()
        switch.to("shadow" if mode == "nested" else "nested")
        found.append(Interruption("switch", before, machine.clock_skew()))
        switch.to(mode)
    return found


def _parsed(this: Repetition) -> Mapping[str, Any]:
    text = this.exchange.read_text("stdout", OUTPUT_BYTES)
    try:
        return foreign_json.parse_object(text)
    except ValueError:
        raise VtaxError(
            f"{this.label}: {Path(this.argv[0]).name} printed no JSON object: {text[:80]!r}"
        ) from None
