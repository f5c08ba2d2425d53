"""The records of runs, one type per verb, and the rows of `samples.parquet`.

A record is `run.json`, for a sweep `sweep.json`, for a study `study.json`. The tables
of `docs/run-folder.md` are made from the docstrings of fields; a docstring speaks for its field and
for those straight above it that have none.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from vtax.core.units import OUT_OF_RANGE, is_quantity

Better = Literal["higher", "lower"]
BetterFrom = Literal["given", "unit", "assumed"]
"""The source of a metric's direction: the user or the workload, its unit, or an assumption."""


def _quantity(value: float) -> float:
    if not is_quantity(value):
        raise ValueError(f"{value:g} is {OUT_OF_RANGE}")
    return value


Finite = Annotated[float, Field(strict=True, allow_inf_nan=False), AfterValidator(_quantity)]
Scalar = bool | int | float | str
Clock = Literal["wall", "cpu", "tsc", "host"]
"""The clock that times a program: the machine's own wall clock, the CPU time that the machine
accounts, the time stamp counter, or the host's wall clock."""
Count = Annotated[int, Field(strict=True, ge=0)]


@dataclass(frozen=True, slots=True)
class Sample:
    """One metric of one finished repetition: a row of `samples.parquet`.

    `wall_s`, `cpu_s`, `steal_s` and `host_wall_s` describe the whole repetition that gave the
    metric. `None` means not known, never zero.
    """

    environment: str
    """The environment's label, e.g. ``uml:mem=1G`` or, for the A/A control, ``native#aa``."""
    workload: str
    metric: str
    unit: str
    better: Better
    value: Finite
    repetition: Count
    """Counted from 0 within the environment; the warm-up is not recorded."""
    boot: Count
    """The start of the machine that this repetition ran in, counted from 0."""
    position: Count
    """Position in the order in which the campaign ran its repetitions, from 0."""
    wall_s: Finite
    """Wall time by the clock of the machine itself, or by the host's where that clock lacks too
    much."""
    cpu_s: Finite
    """User plus system time by the accounting of the machine itself."""
    steal_s: Finite | None
    host_wall_s: Finite
    """The same repetition by the host's clock, from the message that the command begins to the
    message that it has ended."""
    max_rss_bytes: Count
    minor_faults: Count
    major_faults: Count
    voluntary_switches: Count
    involuntary_switches: Count
    tsc_ticks: Count | None = None
    """Ticks of the time stamp counter around the command; None: the machine has no such counter, or
    an older vtax made the run."""
    round: Count | None = None
    """The round of the campaign, from 0, in which the repetition ran; None in runs that an older
    vtax made, where the round is `repetition`."""
    ran_s: Finite | None = None
    """How long the kernel that gave the value ran; None: not known."""
    audit: str | None = None
    """The worse verdict of the environment's audits before and after the run; None: not audited."""
    run_id: str | None = None
    """The id of the run; None in runs that an older vtax made."""
    told_wall_s: Finite | None = None
    """What the machine said where `wall_s` is the host's; None: `wall_s` is the machine's."""
    user_s: Finite | None = None
    """User time by the accounting of the machine itself; None in runs that an older vtax made."""
    node: str | None = None
    """The node that the repetition ran on; None: the environment is one machine."""
    drawn: str | None = None
    """What the round drew, as `NAME=VALUE, ...`; None: nothing is drawn."""
    cpus: str | None = None
    """The host's CPUs that it was moved to, as `0,1`; None: it was not moved."""
    beside_s: Finite | None = None
    """Seconds of `host_wall_s` in which the other one of its round ran too; None: nothing did."""
    later_s: Finite | None = None
    """How much later than the other one of its round it began, by the host's clock; None: nothing
    ran at the same time."""

    def row(self) -> dict[str, Any]:
        """Values by column. `dataclasses.asdict` would copy each value, ten times as slowly."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


WORKING_SET = "working_set_bytes"
"""The parameter of a workload that says how much memory its kernels use."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Failure(Strict):
    """A repetition that gave no samples, and why."""

    environment: str
    """Its label."""
    repetition: int
    """From 0."""
    message: str
    """Why it gave no samples."""
    believed: bool = True
    """False: what the machine said contradicts what the host saw."""


class AuditVerdict(StrEnum):
    """The verdict on a check, or on an environment: that of its worst check."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"

    @classmethod
    def worst(cls, verdicts: Collection[AuditVerdict]) -> AuditVerdict:
        """The worst of these verdicts; nothing is known without any."""
        order = (cls.FAIL, cls.WARN, cls.UNKNOWN, cls.PASS)
        return next((each for each in order if each in verdicts), cls.UNKNOWN)


class AuditCheck(Strict):
    """One line of an audit's report card."""

    name: str
    """As in docs/audit.md."""
    verdict: AuditVerdict
    """Its verdict."""
    value: float | None
    """What was measured."""
    unit: str
    """The value's unit."""
    low: float | None
    high: float | None
    """The 95 % interval, or a bound."""
    threshold: float
    """Beyond it the check fails."""
    reason: str
    """Why the threshold is there."""
    metrics: tuple[str, ...]
    """The times to trust only if it passes."""
    remedy: str | None
    """What to do."""


class AuditCard(Strict):
    """The report card of an environment."""

    spec: str
    """As typed."""
    verdict: AuditVerdict
    """That of its worst check."""
    shortest_duration_s: float | None
    """The shortest duration that its clock times to 1 %."""
    checks: tuple[AuditCheck, ...]
    """The lines of the card."""


class MachineRecord(Strict):
    """A machine of the run: what was asked for, and what it turned out to be."""

    spec: str
    description: str
    """As typed, or as vtax matched it; what it is, in words."""
    cpus: int | None = None
    memory_bytes: int | None = None
    """A native machine's pinned CPUs and memory limit, a guest's CPUs and memory."""
    facts: dict[str, Any]
    """As `vtax-agent facts` prints them."""
    boot_s: tuple[float, ...] = ()
    """Seconds from start to hello."""
    notes: tuple[str, ...] = ()
    """What the boot probe found."""


class EnvironmentRecord(MachineRecord):
    """An environment of a comparison."""

    label: str
    """The key of samples; `…#aa` is the A/A control."""
    role: Literal["baseline", "control", "measured"]
    """In the comparison; `control`: the A/A control."""
    baseline: str | None
    """The label of what it is compared with."""
    tsc_hz: float | None = None
    """The rate of `tsc_ticks`: this host's or, over ssh and of an emulated CPU, the other
    machine's."""
    emulated_clock: bool = False
    host_clock: bool = False
    """Whether its clock counts instructions (`qemu-arm64`); whether it is the host's own."""
    libraries: dict[str, str] = Field(default_factory=dict)
    """The path and version of each library in it."""
    left_processes: int = 0
    """The most processes that a repetition left running."""
    absent: dict[str, int] = Field(default_factory=dict)
    """Why instruments lack values, each with the number of repetitions that lack them."""
    differences: tuple[str, ...] = ()
    """What still differs from the baseline, in sentences."""


class Kept(Strict):
    """A record in a file: which verb wrote it, in which form."""

    has_page: ClassVar[bool] = False
    """Whether the verb's page is made of its record alone."""

    schema_version: int
    """The record's form; vtax refuses another."""
    verb: str
    """Which verb wrote the file."""


class VerbRecord(Kept):
    """What every verb records about its run."""

    schema_version: Literal[2] = 2
    vtax_version: str
    """The version of vtax."""
    host: str | None = None
    """The name of the machine on which vtax ran; None in runs that an older vtax made."""
    command_line: tuple[str, ...]
    """As typed."""
    name: str
    started_utc: str
    """What ran, in words; ISO time."""
    finished_utc: str | None = None
    """ISO time; None while the run goes on."""


class MetricReading(Strict):
    """How an environment's values of a metric were found in what its program printed."""

    environment: str
    metric: str
    """The environment's label; the metric's name."""
    matches: tuple[Count, ...]
    """Matches in each repetition; 1 also where the user chose among several."""
    units: tuple[str, ...]
    """Printed units that had to be converted."""


class ComparisonRecord(VerbRecord):
    """The content of `run.json` of `vtax compare`."""

    verb: Literal["compare"] = "compare"
    run_id: str | None = None
    """Random; each sample has it too."""
    state: Literal["running", "complete", "interrupted", "budget", "failed"] = "running"
    """`budget`: time was up; `interrupted`: Ctrl-C or SIGTERM."""
    workload: str
    """Its name."""
    workload_parameters: dict[str, Any]
    """Its options; where some are drawn, those of the first round, and `words`: the command with
    `{NAME}`."""
    drawn: dict[str, str] = Field(default_factory=dict)
    """What each round draws a value from (docs/scale.md), by parameter."""
    environment_variables: dict[str, str] = Field(default_factory=dict)
    scrubbed_variables: dict[str, str] = Field(default_factory=dict)
    """Variables that change a result: seen by the workload; taken away by vtax."""
    inputs: tuple[str, ...] = ()
    """What the command did not get of the user's, and what guests saw of a home."""
    repetitions: int
    """Rounds; with `until_percent` the first."""
    until_percent: float | None = None
    """The half width of intervals that was to end the run."""
    reboot: Literal["each", "never"]
    """Whether each repetition had its own start of the machine."""
    budget_s: float | None
    """The most time for the run."""
    margin_percent: float
    """The largest difference that does not matter."""
    clock: Clock = "wall"
    """The clock that leads."""
    duet: bool = False
    """Whether both environments of a round ran at the same time (`--duet`)."""
    seed: int
    """For order and bootstrap."""
    workdir: str | None = None
    """Where command lines ran; None: in the folder of their results."""
    commit: str | None = None
    """As given, or Git's of the folder that vtax ran in, with `-dirty` where files are changed."""
    expected_metrics: tuple[tuple[str, str, Better], ...] = ()
    """(name, unit, better) of each repetition's metrics, in display order."""
    better_from: dict[str, BetterFrom] = Field(default_factory=dict)
    """Where the metrics' directions are from (docs/statistics.md)."""
    readings: tuple[MetricReading, ...] = ()
    """How the metrics of --metric were found."""
    order: tuple[tuple[str, int], ...]
    """(environment label, repetition) as planned."""
    environments: tuple[EnvironmentRecord, ...]
    """Each machine."""
    audit_before: tuple[AuditCard, ...] = ()
    audit_after: tuple[AuditCard, ...] = ()
    """The cards of `--audit`, by label."""
    failures: tuple[Failure, ...] = ()
    """Each repetition without samples."""


class AuditRecord(VerbRecord):
    """The content of `run.json` of `vtax audit`."""

    verb: Literal["audit"] = "audit"
    quick: bool
    """With `--quick`."""
    environments: tuple[AuditCard, ...]
    """A report card each."""


class RecordingRecord(VerbRecord):
    """The content of `run.json` of `vtax record`."""

    verb: Literal["record"] = "record"
    state: Literal["running", "complete", "interrupted", "failed"] = "running"
    """As of `compare`."""
    argv: tuple[str, ...]
    """The workload's command line, or none."""
    recording: dict[str, Any]
    """The options given, by name."""
    machine: MachineRecord
    """What was recorded."""
