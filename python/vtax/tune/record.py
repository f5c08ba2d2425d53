"""The record of `vtax tune`: `run.json` of its runs."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vtax.core.formats.model import Count, Strict, VerbRecord
from vtax.tune.tuning import CacheEdge, Curve, Probe, Routine, Start


class TunePerformance(Strict):
    """A routine in the rounds of `vtax tune`: the environment's own winner, or a library."""

    n: Count
    """The number of rounds that gave a value."""
    gflops: float
    """The median over these rounds."""
    low: float | None
    """95 % interval of the median, with `high`."""
    high: float | None


class TuneRoutine(TunePerformance):
    """A routine with the winner of its environment."""

    name: str


class TunePeer(TunePerformance):
    """The DGEMM of a library, or of generated code with one instruction set, in one environment."""

    name: str
    library: str
    version: str | None
    percent_of_openblas: float | None
    percent_of_peak: float | None = None
    """For generated code: percent of its instruction set's register peak by the probes."""


class TuneEnvironment(Strict):
    """What `vtax tune` found in one environment."""

    spec: str
    description: str
    probes: tuple[Probe, ...] = ()
    curves: tuple[Curve, ...] = ()
    winner: dict[str, bool | int | float | str] | None
    """The parameters of the first routine and its `gflops`; None: there is no winner."""
    percent_of_openblas: float | None
    """The winner's performance, as in `percent_of_peak`."""
    percent_of_peak: float | None = None
    searched: tuple[Routine, ...] = ()
    """The parameters of each routine, from the search or, with --use, as given."""
    routines: tuple[TuneRoutine, ...] = ()
    """Each routine as measured in the rounds."""
    measured_size: Count | None
    """Rows of the matrices in the rounds, which is less where the environment is slow; None: no
    search ended."""
    peers: tuple[TunePeer, ...] = ()
    absent: dict[str, str] = Field(default_factory=dict)
    """The parts of this record that were not measured, with the reason."""
    start: Start | None = None
    """None: there was no search."""
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
    """The loss against its own parameters; below 0: the other's are faster."""
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
    """The value of `b` in percent of the value of `a`, with its 95 % interval."""
    low: float | None = None
    high: float | None = None
    verdict: Literal["equivalent", "differs", "not known"]
    meaning: str | None = None
    """A further remark, e.g. that a parameter differs by selection variability."""


class TuneRecord(VerbRecord):
    """The content of `run.json` of `vtax tune`."""

    has_page: ClassVar[bool] = True

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
    """The budget of each search."""
    rounds: Count
    margin_percent: float
    seed: int
    """The seed of the order and of the bootstrap."""
    environments: tuple[TuneEnvironment, ...] = ()
    transfer: tuple[TuneTransfer, ...] = ()
    equivalence: tuple[TuneEquivalence, ...] = ()
