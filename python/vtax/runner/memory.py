"""`memory`: a program at growing sizes under a memory limit, a fresh process for each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vtax import __version__, foreign_json
from vtax.analysis import memory as analysis
from vtax.analysis.memory import Measured, SizedRun, Used
from vtax.environments.base import Environment, MachineLike
from vtax.errors import VtaxError
from vtax.formats.folder import RunFolder
from vtax.formats.memory import MemoryRecord
from vtax.runner import campaign
from vtax.runner.plan import Interleaving
from vtax.runner.repetition import Repetition
from vtax.runner.runner import Done, Listener, Plan, Starter, State, Step, Variant
from vtax.runner.runner import boot as boot_machine
from vtax.runner.samples import sample
from vtax.workloads.base import Command, MachineShape, Metric, Outcome
from vtax.workloads.sized import SizedProgram

RESULT = "memory.json"
RESULT_BYTES = 1 << 20
SIGKILL = 9
SHELL = 'exec "$0" memory --out "$VTAX_RESULTS/' + RESULT + '" "$@"'
"""The command line of a shell, because only the machine knows where its folder of results is."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a campaign."""

    environments: Mapping[str, Environment]
    """Environments by spec."""
    program: SizedProgram
    sizes: Sequence[int]
    runs: int
    seed: int
    variables: Mapping[str, str]
    """The complete environment of the program's processes."""
    command_line: tuple[str, ...]
    timeout_s: float | None = None
    """The limit for one run."""
    budget_s: float | None = None
    working_set: bool = False
    """Whether to find how much memory the program uses within a second, too."""
    workdir: Path | None = None
    """The folder in which a command line runs."""


class MemoryCampaign(campaign.Campaign[MemoryRecord]):
    """One campaign in one run folder."""

    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        listener: Listener,
        start: Starter = boot_machine,
    ) -> None:
        super().__init__(folder, listener, start)
        self._settings = settings
        self._seen = {label: _Seen() for label in settings.environments}
        self._made: dict[str, tuple[int, int]] = {}
        """Size and round of each step, by its folder."""
        self._read: SizedRun | None = None
        self._too_slow = False
        """Whether the step that is being read did not end within its time limit."""

    @property
    def found(self) -> bool:
        """Whether a run gave a value, or was killed for lack of memory."""
        return any(run.end != "failed" for seen in self._seen.values() for run in seen.runs)

    @property
    def first_failure(self) -> str | None:
        """The message of the first run that failed."""
        runs = (run for seen in self._seen.values() for run in seen.runs)
        return next((run.message for run in runs if run.message), None)

    def record(self, state: State) -> MemoryRecord:
        """The record of what is known by now."""
        settings = self._settings
        program = settings.program
        measured = [self._measured(label) for label in settings.environments]
        return MemoryRecord(
            vtax_version=__version__,
            command_line=settings.command_line,
            name="memory",
            started_utc=self._started,
            finished_utc=self._finished(state),
            state=state,
            argv=program.argv(),
            metric=program.name,
            unit=program.unit,
            better=program.better,
            sizes=tuple(settings.sizes),
            runs=settings.runs,
            seed=settings.seed,
            environments=tuple(
                analysis.environment(each, program.unit, program.better, settings.seed)
                for each in measured
            ),
            differences=analysis.compared(measured, program.better),
        )

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        if reason := machine.hello.get("memory_limit_error"):
            # A program that grows must not take the memory of this machine.
            raise VtaxError(f"its memory is not limited: {reason}")
        seen = self._seen[variant.label]
        seen.facts = dict(machine.facts)
        seen.notes = tuple(machine.launch.notes)

    def read(self, this: Repetition) -> None:
        size, number = self._made[this.folder]
        finished = this.finished[0]
        self._too_slow = finished.outcome.timed_out
        if doubt := finished.doubt():
            raise VtaxError(f"not believed: {doubt}")
        seen = _used(this)
        if _was_killed(finished.outcome, seen):
            self._read = SizedRun(size, number, "oom", None, seen)
        else:
            program = self._settings.program
            wall_s = seen.wall_s or finished.outcome.wall_s
            value = program.value(finished.outcome, wall_s, this.exchange)
            self._read = SizedRun(size, number, "ok", value, seen)
            this.metrics.append(Metric(program.name, program.unit, program.better, value))
        this.metrics += _metrics(seen)

    def done(self, done: Done) -> None:
        run = self._read
        assert run is not None
        self._seen[done.step.variant].runs.append(run)
        name = f"{self._settings.program.name} {run.size}"
        rows = [sample(None, name, each, done, run.round) for each in done.repetition.metrics]
        self._keep(rows)
        self._end_round(run.round)

    def failed(self, step: Step, error: VtaxError) -> None:
        size, number = self._made[step.folder]
        run = SizedRun(size, number, "failed", None, message=str(error), too_slow=self._too_slow)
        self._too_slow = False
        self._seen[step.variant].runs.append(run)
        self._end_round(number)

    def _end_round(self, number: int) -> None:
        """Keep everything at the end of a round: vtax may be killed at any time."""
        whole = len(self._settings.sizes) * len(self._settings.environments)
        finished = sum(run.round == number for seen in self._seen.values() for run in seen.runs)
        if finished == whole:
            self._save()

    def _plan(self) -> Plan:
        settings = self._settings
        raw = self._folder.raw
        return Plan(
            [Variant(label, each, raw(label)) for label, each in settings.environments.items()],
            self._steps(),
            settings.variables,
            budget_s=settings.budget_s,
            workdir=settings.workdir,
            matched=True,
        )

    def _steps(self) -> Sequence[Step]:
        """One round: every size in every environment once, in a new random order."""
        settings = self._settings
        shapes = [each.shape() for each in settings.environments.values()]
        shape = MachineShape(
            min(each.cpus for each in shapes), min(each.memory_bytes for each in shapes)
        )
        pairs = {
            f"{label} {size}": (label, size)
            for label in settings.environments
            for size in settings.sizes
        }
        order = Interleaving(settings.seed)
        for _ in range(settings.runs):
            order.add(dict.fromkeys(pairs, 1))
        return [self._step(*pairs[name], number, shape) for name, number in order.order]

    def _step(self, label: str, size: int, number: int, shape: MachineShape) -> Step:
        own = self._settings.program.command(size, shape)
        agent = self._settings.environments[label].agent_inside()
        asked = ("--working-set",) if self._settings.working_set else ()
        command = Command(
            ("/bin/sh", "-c", SHELL, agent, *asked, "--", *own.argv),
            own.environment,
            own.files,
            self._settings.timeout_s,
            own.in_user_folder,
        )
        folder = f"size-{size}-{number}"
        self._made[folder] = (size, number)
        return Step(label, number, command, folder, self._folder.instruments(label))

    def _measured(self, label: str) -> Measured:
        environment, seen = self._settings.environments[label], self._seen[label]
        return Measured(
            label,
            environment.description(seen.facts),
            environment.memory_limit(),
            environment.is_guest and not environment.is_remote,
            seen.runs,
            seen.notes,
        )


@dataclass(slots=True)
class _Seen:
    """What the campaign learns about one environment."""

    facts: dict[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    runs: list[SizedRun] = field(default_factory=list)


def _used(this: Repetition) -> Used:
    """What the run used, as far as the machine says it. Only the form of its answer is trusted."""
    try:
        return analysis.used(
            foreign_json.parse_object(this.exchange.read_text(RESULT, RESULT_BYTES))
        )
    except (VtaxError, ValueError):
        return Used()


def _was_killed(outcome: Outcome, seen: Used) -> bool:
    """Whether the kernel killed the program for lack of memory, by the machine's count."""
    killed = outcome.signal == SIGKILL or outcome.exit_code == 128 + SIGKILL
    return killed and not outcome.timed_out and bool(seen.killed)


_KEPT: Sequence[tuple[str, str, Callable[[Used], float | None]]] = (
    ("swap_bytes", "B", lambda used: used.swap_bytes),
    ("swapped_in_bytes", "B", lambda used: used.swapped_in_bytes),
    ("swapped_out_bytes", "B", lambda used: used.swapped_out_bytes),
    ("program_rss_bytes", "B", lambda used: used.max_rss_bytes),
    ("program_working_set_bytes", "B", lambda used: used.working_set_bytes),
    ("program_major_faults", "", lambda used: used.major_faults),
    ("program_minor_faults", "", lambda used: used.minor_faults),
    ("program_dtlb_misses", "", lambda used: used.dtlb_misses),
    ("program_itlb_misses", "", lambda used: used.itlb_misses),
    ("stalled_s", "s", lambda used: used.stalled_s),
    ("killed", "", lambda used: used.killed),
)


def _metrics(seen: Used) -> Sequence[Metric]:
    values = ((name, unit, read(seen)) for name, unit, read in _KEPT)
    return [Metric(name, unit, "lower", float(value)) for name, unit, value in values
            if value is not None]  # fmt: skip
