"""What an analysis of a run finds: results, verdicts and flags."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vtax.formats.model import Better, ComparisonRecord


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
    """For an inconclusive verdict: about how many repetitions would decide it."""
    reason: str | None
    """Why there is no number, or none to compare with."""


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
    record: ComparisonRecord
    baseline: str
    results: tuple[Result, ...]
    flags: tuple[Flag, ...]
