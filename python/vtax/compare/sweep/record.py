"""The record of `vtax compare --param`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vtax.core.formats.model import Better, Count, EnvironmentRecord, Strict, VerbRecord
from vtax.core.statistics.results import Verdict


class SweepResult(Strict):
    """A metric of an environment at one combination of values."""

    environment: str
    metric: str
    unit: str
    """As in samples.parquet."""
    better: Better
    """The better direction."""
    n: Count
    """Repetitions."""
    median: float | None
    median_low: float | None
    median_high: float | None
    """The median and its 95 % interval."""
    percent_of_baseline: float | None
    ci_low: float | None
    ci_high: float | None
    """Performance in percent of the baseline's; its 95 % interval."""
    verdict: Verdict
    """As of a comparison."""


class SweepPoint(Strict):
    """One combination of values."""

    values: dict[str, str]
    """The value of each parameter."""
    workload: str
    """`workload` of its samples."""
    environments: dict[str, str]
    """The environments compared there, and the name of each in the whole sweep: as it was typed,
    where the values tell the rest (`uml:mem={mem}`)."""
    results: tuple[SweepResult, ...]
    """Every metric of every environment."""
    failures: tuple[str, ...] = ()
    """What failed."""


class SweepCliff(Strict):
    """Where an environment begins to cost more, along a parameter of numbers."""

    environment: str
    metric: str
    """Its name in the whole sweep; what falls."""
    past: float | None
    """The largest value before performance in percent of the baseline falls by more than 10 %, by
    the intervals, for all larger values; None: it does not."""


class ComparisonSweepRecord(VerbRecord):
    """The content of `run.json` of `vtax compare --param`."""

    has_page: ClassVar[bool] = True

    verb: Literal["compare sweep"] = "compare sweep"
    state: Literal["running", "complete", "interrupted", "budget", "failed"] = "running"
    """As of `compare`."""
    run_id: str
    """Random; each sample has it too."""
    parameters: dict[str, tuple[str, ...]]
    """The values of each parameter, in the order given."""
    drawn: dict[str, str] = Field(default_factory=dict)
    """What each round draws a value from, the same at all combinations, by parameter."""
    workload: tuple[str, ...]
    """The command, with `{NAME}` for each parameter."""
    repetitions: Count
    """Rounds, in which every environment runs every combination once."""
    seed: int
    """The seed of the order, and of what rounds draw."""
    margin_percent: float
    """As of `compare`."""
    lead: str
    """The metric that stands for the whole."""
    environments: tuple[EnvironmentRecord, ...]
    """Each machine."""
    points: tuple[SweepPoint, ...] = ()
    """In the order of the values."""
    cliffs: tuple[SweepCliff, ...] = ()
    """One for each environment with a baseline, where one parameter has numbers."""
