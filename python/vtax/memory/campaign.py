"""`memory`: a program at growing sizes under a memory limit, a fresh process for each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.runner.campaign import Request, StagedCampaign, require_limited
from vtax.core.runner.matching import common_shape
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Done, Step, Variant
from vtax.core.runner.samples import sample
from vtax.environments.base import Environment, MachineLike
from vtax.memory import analysis
from vtax.memory.analysis import Measured, SizedRun, Used
from vtax.memory.record import MemoryRecord
from vtax.memory.sized import SizedProgram
from vtax.workloads.base import Command, Metric, Outcome

RESULT = "memory.json"
RESULT_BYTES = 1 << 20
SIGKILL = 9
SHELL = 'exec "$0" memory --out "$VTAX_RESULTS/' + RESULT + '" "$@"'
"""The command line of a shell, because only the machine knows where its folder of results is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest(Request):
    """What `vtax memory` is asked for."""

    environments: Mapping[str, Environment]
    """Environments by spec."""
    program: SizedProgram
    sizes: Sequence[int]
    runs: int
    timeout_s: float | None = None
    """The limit for one run."""
    working_set: bool = False
    """Whether to find how much memory the program uses within a second, too."""


class _Point(NamedTuple):
    size: int
    round: int


@dataclass(eq=False)
class MemoryCampaign(StagedCampaign[MemoryRequest, MemoryRecord, _Point]):
    """Every size in every environment, in rounds."""

    _seen: dict[str, _Seen] = field(init=False)
    _read: SizedRun | None = field(default=None, init=False)
    _too_slow: bool = field(default=False, init=False)
    """Whether the step that is being read did not end within its time limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._seen = {label: _Seen() for label in self.request.environments}

    @property
    def found(self) -> bool:
        """Whether a run gave a value, or was killed for lack of memory."""
        return any(run.end != "failed" for seen in self._seen.values() for run in seen.runs)

    @property
    def first_failure(self) -> str | None:
        """The message of the first run that failed."""
        runs = (run for seen in self._seen.values() for run in seen.runs)
        return next((run.message for run in runs if run.message), None)

    def record(self) -> MemoryRecord:
        request, program = self.request, self.request.program
        measured = [self._measured(label) for label in request.environments]
        return MemoryRecord(
            **self._head(),
            name="memory",
            state=self.state,
            argv=program.argv(),
            metric=program.name,
            unit=program.unit,
            better=program.better,
            sizes=tuple(request.sizes),
            runs=request.runs,
            seed=request.seed,
            environments=tuple(
                analysis.environment(each, program.unit, program.better, request.seed)
                for each in measured
            ),
            differences=analysis.compared(measured, program.better),
        )

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        # A program that grows must not take the memory of this machine.
        require_limited(machine)
        seen = self._seen[variant.label]
        seen.facts = dict(machine.facts)
        seen.notes = tuple(machine.launch.notes)

    def read(self, this: Repetition) -> None:
        size, number = self._point(this)
        finished = this.finished[0]
        self._too_slow = finished.outcome.timed_out
        if doubt := finished.doubt():
            raise VtaxError(f"not believed: {doubt}")
        seen = _used(this)
        if _was_killed(finished.outcome, seen):
            self._read = SizedRun(size, number, "oom", None, seen)
        else:
            program = self.request.program
            wall_s = seen.wall_s or finished.outcome.wall_s
            value = program.value(finished.outcome, wall_s, this.exchange)
            self._read = SizedRun(size, number, "ok", value, seen)
            this.metrics.append(Metric(program.name, program.unit, program.better, value))
        this.metrics += _metrics(seen)

    def done(self, done: Done) -> None:
        run = self._read
        assert run is not None
        self._seen[done.step.variant].runs.append(run)
        name = f"{self.request.program.name} {run.size}"
        rows = [sample(None, name, each, done, run.round) for each in done.repetition.metrics]
        self._keep(rows)

    def failed(self, step: Step, error: VtaxError) -> None:
        size, number = self._point(step)
        run = SizedRun(size, number, "failed", None, message=str(error), too_slow=self._too_slow)
        self._too_slow = False
        self._seen[step.variant].runs.append(run)
        self._keep()

    def _variants(self) -> Sequence[Variant]:
        made = self.request.environments.items()
        return [Variant(label, each, self.folder.raw(label)) for label, each in made]

    def _stages(self) -> Iterator[Sequence[Step]]:
        """One stage: in each round every size in every environment once, in a new random order."""
        request = self.request
        shape = common_shape(request.environments.values())
        own = {size: request.program.command(size, shape) for size in request.sizes}
        commands = {
            f"{label} {size}": (label, size, self._observed(environment, command))
            for label, environment in request.environments.items()
            for size, command in own.items()
        }
        for _ in range(request.runs):
            self._order.add(dict.fromkeys(commands, 1))
        yield [self._sized(*commands[name], number) for name, number in self._order.order]

    def _observed(self, environment: Environment, own: Command) -> Command:
        """The program's command below an agent that says what memory it used."""
        asked = ("--working-set",) if self.request.working_set else ()
        line = (environment.agent_inside(), *asked, "--", *own.argv)
        timeout_s = self.request.timeout_s
        return replace(own, argv=("/bin/sh", "-c", SHELL, *line), timeout_s=timeout_s)

    def _sized(self, label: str, size: int, command: Command, number: int) -> Step:
        folder, out = f"size-{size}-{number}", self.folder.instruments(label)
        return self._step(label, number, command, folder, out, _Point(size, number))

    def _measured(self, label: str) -> Measured:
        environment, seen = self.request.environments[label], self._seen[label]
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
