"""What an analysis of a run finds: results, verdicts and flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from vtax.core.formats.model import Better, BetterFrom, Clock, ComparisonRecord


class Verdict(StrEnum):
    """What the interval on the ratio to the baseline says, given the margin."""

    BASELINE = "baseline"
    SLOWER = "slower"
    FASTER = "faster"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARED = "not compared"
    """Measured here, but the baseline has no such value (such as KVM's counters of a lab)."""
    NOT_MEASURED = "not measured"


class Control(StrEnum):
    """What the baseline, measured against itself, says of a metric."""

    EQUAL = "equal"
    DIFFERS = "differs"
    """Something is wrong: with the machine, or with the way it is measured."""
    TOO_NOISY = "too noisy"
    """Neither: the smallest detectable difference is above the margin."""


@dataclass(frozen=True, slots=True)
class RepetitionsNeeded:
    """How many rounds in all would decide an inconclusive verdict: in four of five cases a number
    in this range."""

    low: int
    high: int | None
    """None: more than vtax counts as reachable."""
    reachable: bool
    """False: the noise of this machine hides the difference, however long it runs."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One estimand: performance as % of the baseline's, its 95 % interval, its own verdict."""

    percent: float
    low: float
    high: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Result:
    """One environment and metric, analysed."""

    environment: str
    workload: str
    metric: str
    unit: str
    better: Better
    better_from: BetterFrom | None
    """Where `better` is from; None: an older vtax made the run, or nothing was measured."""
    n: int
    best: float | None
    median: float | None
    stdev: float | None
    """Sample standard deviation (n - 1); None for n < 2."""
    median_low: float | None
    median_high: float | None
    """Bootstrap 95 % interval of the median, in the metric's unit."""
    percent_of_baseline: float | None
    """Performance as % of the baseline's (the paper on HPC Challenge in virtualized environments,
    equation 3): for a time the ratio is inverted, so that 100 is the baseline's speed and 50 half
    of it, whatever the metric. The mean of the rounds' ratios on the log scale, from 10 rounds on
    trimmed; without two rounds in common, it is the ratio of the medians."""
    percent_of_baseline_best: float | None
    """The same from the best values, which that paper combines."""
    ci_low: float | None
    ci_high: float | None
    """95 % interval of `percent_of_baseline`."""
    verdict: Verdict
    reason: str | None
    """Why there is no number, or none to compare with."""
    smallest_detectable_percent: float | None = None
    """The slowdown that an experiment such as this one would find in four of five cases."""
    repetitions_needed: RepetitionsNeeded | None = None
    """Only for an inconclusive verdict."""
    control: Control | None = None
    """Only for an A/A control."""
    typical: Compared | None = None
    """The typical run: `percent_of_baseline` once more, with a verdict of its own."""
    mean: Compared | None = None
    """The ratio of the means, in which slow runs count as much as they take."""
    p95_percent_of_baseline: float | None = None
    """The ratio of the values that 95 % of runs do not exceed (for a rate: reach); without an
    interval."""
    mixture: str | None = None
    """How values in two groups are shared out: `27 of 30 runs at 1.00x, 3 at 2.0x`."""
    unseen_percent: float | None = None
    """Slow runs rarer than this would probably not have been seen."""
    step_percent: float | None = None
    """How far rounding alone may move the ratio, where values come in steps that do not dither."""
    believed: bool = True
    """False: in some repetition the environment contradicted what the host saw of it."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A reason not to take a number at face value."""

    environment: str
    metric: str | None
    """None: the flag is about the whole environment."""
    kind: str
    """`timer-inversion`, `steal`, `steal-unknown`, `aa-control`, `drift`, `clock-disagreement`,
    `failures`, `few-repetitions`, `cut-short`, ..."""
    message: str
    """A sentence a newcomer understands, with the numbers."""


@dataclass(frozen=True, slots=True)
class NodeRatio:
    """Performance as % of the baseline's on one node, with its 95 % interval."""

    node: str
    rounds: int
    percent: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class NodeSpread:
    """An environment's metric on several nodes (`core.statistics.nodes`)."""

    environment: str
    metric: str
    nodes: tuple[NodeRatio, ...]
    percent: float
    """Performance as % of the baseline's on nodes like these, and its 95 % interval."""
    low: float
    high: float
    between_percent: float
    """Standard deviation between nodes; 0: no more than the noise of repetitions."""


@dataclass(frozen=True, slots=True)
class Detection:
    """What it takes to see a slowdown: to tell it from none with a power of 80 % (at 5 %)."""

    environment: str
    metric: str
    percent: float
    """The slowdown."""
    rounds: int | None
    """None: not within 10,000."""
    low: int | None
    high: int | None
    """The range of rounds in which the true number is in four of five cases."""
    seconds: float | None
    """The time of that many rounds."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that the table, the report and `--json` show."""

    run: str
    record: ComparisonRecord
    baseline: str
    results: tuple[Result, ...]
    flags: tuple[Flag, ...]
    nodes: tuple[NodeSpread, ...] = ()
    """The leading metric node by node, where environments are several nodes."""
    detection: tuple[Detection, ...] = ()
    """How long it would take to see small differences in the leading metric."""


PROGRAM_TIMES: Mapping[Clock, str] = {
    "wall": "wall_s",
    "cpu": "cpu_s",
    "tsc": "tsc_s",
    "host": "host_wall_s",
}
"""The metric that has the whole program's time by each clock."""


def leading_metric(record: ComparisonRecord) -> str:
    """The metric that stands for the whole: the metric that the user asked of a command, else its
    time."""
    asked = record.expected_metrics[0][0] if record.expected_metrics else None
    if record.workload == "command" and asked and asked not in PROGRAM_TIMES.values():
        return asked
    return PROGRAM_TIMES[record.clock]
