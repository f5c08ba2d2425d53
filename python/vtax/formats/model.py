"""What a run is made of: the schema of `run.json`, the rows of `samples.parquet`, and the results.

`docs/run-folder.md` describes the same for readers of the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1

Better = Literal["higher", "lower"]


class Verdict(StrEnum):
    """What the interval on the ratio to the baseline says, given the margin."""

    BASELINE = "baseline"
    SLOWER = "slower"
    FASTER = "faster"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARED = "not compared"
    """Measured here, but the baseline has no such value (KVM's counters of a lab)."""
    NOT_MEASURED = "not measured"


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
    value: float
    repetition: int
    """Counted from 0 within the environment; the warm-up is not recorded."""
    boot: int
    """Which start of the machine this repetition ran in, from 0."""
    position: int
    """Place in the order in which the campaign ran its repetitions, from 0."""
    wall_s: float
    """By the clock of the machine itself."""
    cpu_s: float
    """User plus system time by the accounting of the machine itself."""
    steal_s: float | None
    host_wall_s: float
    """The same stretch by the host's clock, channel round trip included."""
    max_rss_bytes: int
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Failure(Strict):
    """A repetition that gave no samples, and why."""

    environment: str
    repetition: int
    message: str


class EnvironmentRecord(Strict):
    """An environment of the run: what was asked for, what it turned out to be."""

    label: str
    """Unique in the run; the key of samples and results."""
    spec: str
    """As given on the command line (a matched baseline: as vtax made it)."""
    role: Literal["baseline", "control", "measured"]
    baseline: str | None
    """The label of the environment this one is compared with; None for a baseline."""
    description: str
    """What it really is, in words, e.g. ``user-mode Linux 6.1.176, 1 CPU, 1 GiB``."""
    cpus: int | None = None
    """CPUs that its programs may use: the pinned ones of a native, the virtual ones of a guest."""
    memory_bytes: int | None = None
    """Of the guest, or the limit of a native; None: no limit."""
    facts: dict[str, Any]
    """As `vtax-agent facts` prints them."""
    libraries: dict[str, str] = Field(default_factory=dict)
    """Library as resolved inside the environment: ``{"libblas.so.3": "/usr/lib/... (0.3.21)"}``."""
    boot_s: tuple[float, ...] = ()
    """Seconds from starting each machine to its hello."""
    differences: tuple[str, ...] = ()
    """What still differs from the baseline and could not be removed, one sentence each."""
    notes: tuple[str, ...] = ()
    """What the boot probe found, e.g. why KVM was not used."""


class RunRecord(Strict):
    """The content of `run.json`."""

    schema_version: int = SCHEMA_VERSION
    vtax_version: str
    verb: str
    command_line: tuple[str, ...]
    name: str
    started_utc: str
    finished_utc: str | None = None
    state: Literal["running", "complete", "interrupted", "budget", "failed"] = "running"
    """A run whose writer was killed stays `running`; readers treat it as cut short."""
    workload: str
    workload_parameters: dict[str, Any]
    recording: dict[str, Any] | None = None
    """What `vtax record` was asked for; None for other verbs."""
    environment_variables: dict[str, str] = Field(default_factory=dict)
    """Variables that change a result and that the workload saw."""
    scrubbed_variables: dict[str, str] = Field(default_factory=dict)
    """Such variables that vtax took away (kept with --keep-env)."""
    repetitions: int
    reboot: Literal["each", "never"]
    budget_s: float | None
    margin_percent: float
    seed: int
    """Of the random order and of the bootstrap."""
    expected_metrics: tuple[tuple[str, str, Better], ...] = ()
    """(name, unit, better) of what each repetition should give, in display order."""
    order: tuple[tuple[str, int], ...]
    """(environment label, repetition) in the planned order."""
    environments: tuple[EnvironmentRecord, ...]
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """One environment and metric, analysed."""

    environment: str
    workload: str
    metric: str
    unit: str
    better: Better
    n: int
    best: float | None
    median: float | None
    stdev: float | None
    """Sample standard deviation (n - 1); None for n < 2."""
    median_low: float | None
    median_high: float | None
    """Bootstrap 95 % interval of the median, in the metric's unit."""
    percent_of_baseline: float | None
    """Performance as % of the baseline's (seed 002, equation 3): for a time the ratio is inverted,
    so that 100 is the baseline's speed and 50 half of it, whatever the metric. Ratio of medians."""
    percent_of_baseline_best: float | None
    """The same from the best values, as the seed combines."""
    ci_low: float | None
    ci_high: float | None
    """95 % interval of `percent_of_baseline`."""
    verdict: Verdict
    repetitions_to_settle: int | None
    """For an inconclusive verdict: about how many repetitions would settle it."""
    reason: str | None
    """Why there is no number, for `not measured`."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A reason not to take a number at face value."""

    environment: str
    metric: str | None
    """None: the whole environment."""
    kind: str
    """`timer-inversion`, `steal`, `steal-unknown`, `aa-control`, `drift`, `clock-disagreement`,
    `failures`, `few-repetitions`, `cut-short`, ..."""
    message: str
    """A sentence a newcomer understands, with the numbers."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that the table, the report and `--json` show."""

    run: str
    record: RunRecord
    baseline: str
    results: tuple[Result, ...]
    flags: tuple[Flag, ...]
