"""The records of runs, one type per verb, and the rows of `samples.parquet`.

A record is `run.json`, of a sweep `sweep.json`, of a study `study.json`. `docs/run-folder.md`
describes the same for readers of the files; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from vtax.formats.tuning import CacheEdge, Curve, Probe, Routine

Better = Literal["higher", "lower"]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Scalar = bool | int | float | str
Clock = Literal["wall", "cpu", "tsc", "host"]
"""By which a program is timed: the machine's own wall clock, the CPU time that it accounts, the
time stamp counter, the host's wall clock."""
Count = Annotated[int, Field(strict=True, ge=0)]


@dataclass(frozen=True, slots=True)
class Sample:
    """One metric of one finished repetition: a row of `samples.parquet`.

    `wall_s`, `cpu_s`, `steal_s` and `host_wall_s` describe the whole repetition the metric is
    from. `None` means not known, never zero.
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
    """Which start of the machine this repetition ran in, from 0."""
    position: Count
    """Position in the order in which the campaign ran its repetitions, from 0."""
    wall_s: Finite
    """By the clock of the machine itself."""
    cpu_s: Finite
    """User plus system time by the accounting of the machine itself."""
    steal_s: Finite | None
    host_wall_s: Finite
    """The same repetition by the host's clock, channel round trip included."""
    max_rss_bytes: Count
    minor_faults: Count
    major_faults: Count
    voluntary_switches: Count
    involuntary_switches: Count
    tsc_ticks: Count | None = None
    """Ticks of the time stamp counter around the command; None: there is none, or an older vtax
    made the run."""
    round: Count | None = None
    """The round of the campaign, from 0, in which it ran; None in runs that an older vtax made,
    where it is the repetition."""
    ran_s: Finite | None = None
    """How long the kernel ran that gave the value; None: not known."""
    audit: str | None = None
    """The worse verdict of the environment's audits before and after the run; None: not audited."""
    run_id: str | None = None
    """The run's; None in runs that an older vtax made."""

    def row(self) -> dict[str, Any]:
        """Column to value. `dataclasses.asdict` would copy each value, ten times as slowly."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


WORKING_SET = "working_set_bytes"
"""The parameter of a workload that says how much memory its kernels go over."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Failure(Strict):
    """A repetition that gave no samples, and why."""

    environment: str
    repetition: int
    message: str
    believed: bool = True
    """False: what the machine said of itself contradicts what the host saw."""


class AuditVerdict(StrEnum):
    """Of a check, and of an environment: its worst check's."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class AuditCheck(Strict):
    """One line of an audit's report card."""

    name: str
    verdict: AuditVerdict
    value: float | None
    unit: str
    low: float | None
    high: float | None
    """95 % interval, or a bound where the value has one."""
    threshold: float
    """Beyond it the check fails."""
    reason: str
    metrics: tuple[str, ...]
    """What is not to be trusted unless it passes."""
    remedy: str | None


class AuditCard(Strict):
    """The report card of an environment."""

    spec: str
    verdict: AuditVerdict
    shortest_duration_s: float | None
    """The shortest duration that its clock times to 1 %."""
    checks: tuple[AuditCheck, ...]


class MachineRecord(Strict):
    """A machine of the run: what was asked for, what it turned out to be."""

    spec: str
    """As given on the command line (a matched baseline: as vtax made it)."""
    description: str
    """What it really is, in words, e.g. ``user-mode Linux 6.1.176, 1 CPU, 1 GiB``."""
    cpus: int | None = None
    """CPUs that its programs may use: the pinned ones of a native, the virtual ones of a guest."""
    memory_bytes: int | None = None
    """Of the guest, or the limit of a native; None: no limit."""
    facts: dict[str, Any]
    """As `vtax-agent facts` prints them."""
    boot_s: tuple[float, ...] = ()
    """Seconds from each start of the machine to its hello."""
    notes: tuple[str, ...] = ()
    """What the boot probe found, e.g. why KVM was not used."""


class EnvironmentRecord(MachineRecord):
    """An environment of a comparison."""

    label: str
    """Unique in the run; the key of samples and results."""
    role: Literal["baseline", "control", "measured"]
    baseline: str | None
    """The label of the environment this one is compared with; None for a baseline."""
    tsc_hz: float | None = None
    """What makes seconds of its samples' `tsc_ticks`: the rate of this host's counter by this
    host's clock, over ssh that of the other machine. None: not known, or not constant."""
    emulated_clock: bool = False
    """Its clock counts instructions, and need not agree with the host's."""
    libraries: dict[str, str] = Field(default_factory=dict)
    """Library as resolved inside the environment: ``{"libblas.so.3": "/usr/lib/... (0.3.21)"}``."""
    differences: tuple[str, ...] = ()
    """What still differs from the baseline and could not be removed, one sentence each."""


class _Record(Strict):
    """What every verb records of its run."""

    schema_version: Literal[2] = 2
    vtax_version: str
    command_line: tuple[str, ...]
    name: str
    started_utc: str
    finished_utc: str | None = None


class ComparisonRecord(_Record):
    """The content of `run.json` of `vtax compare`."""

    verb: Literal["compare"] = "compare"
    run_id: str | None = None
    """Random, made at the start: each sample has it too. None: an older vtax made the run."""
    state: Literal["running", "complete", "interrupted", "budget", "failed"] = "running"
    """A run whose writer was killed stays `running`; readers treat it as cut short."""
    workload: str
    workload_parameters: dict[str, Any]
    environment_variables: dict[str, str] = Field(default_factory=dict)
    """Variables that change a result and that the workload saw."""
    scrubbed_variables: dict[str, str] = Field(default_factory=dict)
    """Such variables that vtax took away (kept with --keep-env)."""
    repetitions: int
    """Rounds with one run of each environment; with `until_percent` the first ones."""
    until_percent: float | None = None
    """The half width of intervals at which the run was to end."""
    reboot: Literal["each", "never"]
    budget_s: float | None
    margin_percent: float
    clock: Clock = "wall"
    """Whose time of the whole program leads."""
    seed: int
    """Of the random order and of the bootstrap."""
    workdir: str | None = None
    """Where command lines ran; None: in the folder of their results."""
    expected_metrics: tuple[tuple[str, str, Better], ...] = ()
    """(name, unit, better) of what each repetition should give, in display order."""
    order: tuple[tuple[str, int], ...]
    """(environment label, repetition) in the planned order."""
    environments: tuple[EnvironmentRecord, ...]
    audit_before: tuple[AuditCard, ...] = ()
    audit_after: tuple[AuditCard, ...] = ()
    """Of `--audit`: one card for each environment but the A/A control, by its label."""
    failures: tuple[Failure, ...] = ()


class AuditRecord(_Record):
    """The content of `run.json` of `vtax audit`."""

    verb: Literal["audit"] = "audit"
    quick: bool
    environments: tuple[AuditCard, ...]


class MemoryPoint(Strict):
    """The runs of one size in one environment of `vtax memory`."""

    size: Count
    n: Count
    """Runs that gave a value."""
    median: float | None
    low: float | None
    """The smallest value, as `high` is the largest."""
    high: float | None
    unit: str
    end: Literal["ok", "oom", "failed"]
    """How most runs ended: with a value, by the kernel's OOM killer, otherwise."""
    killed: Count
    """Runs that the OOM killer ended."""
    failed: Count
    """Runs that ended otherwise without a value."""
    message: str | None = None
    """Why the last of the failed ones did."""
    swap_bytes: float | None
    """The most that was swapped out at a time, as all that follow: the median run; None: not
    known."""
    swapped_in_bytes: float | None
    swapped_out_bytes: float | None
    max_rss_bytes: float | None
    working_set_bytes: float | None
    """What the program's first process used within a second; None also when nobody asked."""
    major_faults: float | None
    minor_faults: float | None
    dtlb_misses: float | None
    """Of loads. None also where there is no PMU, as of `itlb_misses`."""
    itlb_misses: float | None
    stalled_s: float | None
    """Time in which some task waited for memory (PSI)."""


class MemoryCliff(Strict):
    """The edge past which performance is lost."""

    size: Count | None
    """The largest size before it; None: the smallest has fallen."""
    low: Count | None
    """The edge lies above this size and not above `high`, with 95 % confidence."""
    high: Count


class MemoryEnvironment(Strict):
    """What `vtax memory` found in one environment."""

    spec: str
    description: str
    memory_bytes: Count | None
    """What programs and, in a guest, its kernel may use."""
    kernel_bytes: dict[str, int | None]
    """Of the kernel while programs ran, by part; None: the machine does not say."""
    absent: dict[str, str] = Field(default_factory=dict)
    """What could not be measured, with the reason."""
    points: tuple[MemoryPoint, ...]
    cliff: MemoryCliff | None
    """None: performance does not fall."""
    user_bytes: Count | None
    """The largest resident set of the program at the last size before the cliff; None: no cliff,
    or no size before it."""
    notes: tuple[str, ...] = ()


class MemoryDifference(Strict):
    """Whether the cliffs of two environments differ."""

    a: str
    b: str
    size_a: float | None
    """The mean of the middles of the rounds' own edges; None: not every round has one."""
    size_b: float | None
    p: float | None
    """Of the permutation test; None: too few rounds."""
    verdict: Literal["differ", "no difference shown", "not known"]


class MemoryRecord(_Record):
    """The content of `run.json` of `vtax memory`."""

    verb: Literal["memory"] = "memory"
    state: Literal["running", "complete", "interrupted", "budget", "failed"] = "running"
    argv: tuple[str, ...]
    """The program; `{size}` stands for a size."""
    metric: str
    unit: str
    better: Better
    sizes: tuple[Count, ...]
    runs: Count
    """Of each size in each environment."""
    seed: int
    """Of the order and of the bootstrap."""
    environments: tuple[MemoryEnvironment, ...] = ()
    differences: tuple[MemoryDifference, ...] = ()


class TunePerformance(Strict):
    """A routine in the rounds of `vtax tune`: the environment's own winner, or a library."""

    n: Count
    """Rounds that gave a value."""
    gflops: float
    """Their median."""
    low: float | None
    """95 % interval of the median, as `high`."""
    high: float | None


class TuneRoutine(TunePerformance):
    """A routine with the winner of its environment."""

    name: str


class TunePeer(TunePerformance):
    """A library's DGEMM in one environment."""

    name: str
    library: str
    version: str | None
    percent_of_openblas: float | None


class TuneEnvironment(Strict):
    """What `vtax tune` found in one environment."""

    spec: str
    description: str
    probes: tuple[Probe, ...] = ()
    curves: tuple[Curve, ...] = ()
    winner: dict[str, bool | int | float | str] | None
    """The parameters of the first routine and its `gflops`; None: there is none."""
    percent_of_openblas: float | None
    """The winner's."""
    searched: tuple[Routine, ...] = ()
    """By the search or, with --use, as given: the parameters of each routine."""
    routines: tuple[TuneRoutine, ...] = ()
    """As measured in the rounds."""
    measured_size: Count | None
    """Rows of the matrices in the rounds, which is less where the environment is slow; None: no
    search ended."""
    peers: tuple[TunePeer, ...] = ()
    absent: dict[str, str] = Field(default_factory=dict)
    """Libraries that were not measured, with the reason."""
    search_s: float | None
    """None: there was no search."""
    resumed: Count = 0
    """Trials that an earlier search had made."""
    complete: bool = True
    """False: the budget ended the search."""
    cache_edge: CacheEdge | None = None
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


class TuneTransfer(Strict):
    """A routine with the parameters that were tuned in another environment."""

    routine: str
    here: str
    winner_of: str
    loss_percent: float | None
    """Of the performance with its own parameters; below 0: the other's are faster."""
    low: float | None
    high: float | None
    verdict: Literal["equivalent", "differs", "not known"]
    reason: str | None = None
    """Why it was not measured."""


class TuneEquivalence(Strict):
    """Whether a quantity of two environments is the same."""

    quantity: str
    kind: Literal["probe", "parameter", "performance"]
    a: str
    b: str
    value_a: bool | int | float | str | None
    value_b: bool | int | float | str | None
    percent: float | None = None
    """The value of `b` in percent of that of `a`, with its 95 % interval."""
    low: float | None = None
    high: float | None = None
    verdict: Literal["equivalent", "differs", "not known"]
    meaning: str | None = None
    """What else is to be said of it, e.g. that a parameter differs by selection variability."""


class TuneRecord(_Record):
    """The content of `run.json` of `vtax tune`."""

    verb: Literal["tune"] = "tune"
    state: Literal["running", "complete", "interrupted", "budget", "failed"] = "running"
    search: Literal["lines", "exhaustive"]
    use: str | None
    """The file whose parameters were measured instead of a search."""
    precision: Literal["d", "s", "both"]
    threads: Count
    size: Count
    """Rows and columns of the products that were asked for."""
    budget_s: float
    """Of each search."""
    rounds: Count
    margin_percent: float
    seed: int
    """Of the order and of the bootstrap."""
    environments: tuple[TuneEnvironment, ...] = ()
    transfer: tuple[TuneTransfer, ...] = ()
    equivalence: tuple[TuneEquivalence, ...] = ()


class RecordingRecord(_Record):
    """The content of `run.json` of `vtax record`."""

    verb: Literal["record"] = "record"
    state: Literal["running", "complete", "interrupted", "failed"] = "running"
    argv: tuple[str, ...]
    """The workload's command line; empty: what ran anyway was recorded."""
    recording: dict[str, Any]
    """The options that were given, by name."""
    machine: MachineRecord


class FailedPoint(Strict):
    """A point of a sweep without a result."""

    point: str
    label: str
    error: str


class SweepRecord(Strict):
    """The content of `sweep.json` of `vtax paging sweep`."""

    schema_version: Literal[1] = 1
    verb: Literal["paging sweep"] = "paging sweep"
    vtax: str
    """The version of vtax: points of two versions do not belong in one table."""
    state: Literal["running", "complete", "interrupted", "failed"]
    command_line: tuple[str, ...]
    started: str
    written: str
    name: str
    study: str
    """The text of the design."""
    axes: dict[str, tuple[Scalar, ...]]
    """Column to its values."""
    modes: tuple[str, ...]
    seed: Scalar | None
    """None: the simulation's own."""
    machines: dict[str, dict[str, Any]]
    traces: dict[str, str]
    """Path to the digest of its content."""
    points: Count
    finished: Count
    failed: tuple[FailedPoint, ...]
    scheduler: str | None
    """The address of the Dask cluster; None: local workers."""
    workers: int | None
    versions: dict[str, str]
    """Of Python and the libraries."""
    columns: dict[str, str]
    """What the columns of `sweep.parquet` mean."""


class ClaimRecord(Strict):
    """A claim of a paper, judged."""

    name: str
    section: str
    statement: str
    stated: str = Field(alias="seed")
    """The paper's value. Its word in the file is older than this name."""
    ours: str
    verdict: Literal["holds", "does not hold", "cannot be judged"]
    reason: str
    basis: Literal["result", "told"]


class TableRecord(Strict):
    """A table of a study."""

    name: str
    title: str
    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class FigureRecord(Strict):
    """A figure of a paper; what is drawn is in the report and the Parquet files."""

    number: str
    title: str
    caption: str
    paper: str = Field(alias="seed")
    """What the paper says of it."""


class StudyRecord(Strict):
    """The content of `study.json` of `vtax study`."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    verb: Literal["study"] = "study"
    study: str
    paper: str
    vtax_version: str
    written_utc: str
    setup: dict[str, str]
    cautions: tuple[str, ...]
    claims: tuple[ClaimRecord, ...]
    tables: tuple[TableRecord, ...]
    figures: tuple[FigureRecord, ...]
    files: dict[str, str]
    """The Parquet file of each kind of data."""


RunRecord = Annotated[
    ComparisonRecord
    | AuditRecord
    | MemoryRecord
    | TuneRecord
    | RecordingRecord
    | SweepRecord
    | StudyRecord,
    Field(discriminator="verb"),
]
"""What every verb writes of its run."""
