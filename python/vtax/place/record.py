"""The record of `vtax place measure`, and what `vtax place advise --json` prints."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from vtax.core.formats.model import Count, Finite, Strict, VerbRecord

Advice = Literal["fast", "slow", "unknown"]
Answer = Literal["supported", "contradicted", "open", "not known"]


class PlacePoint(Strict):
    """A load at one speed of the service domain's cores, against the control at full speed."""

    speed_asked_percent: float
    """Speed asked for, in percent of full speed."""
    speed_obtained_percent: float | None
    """Speed as measured, the mean of the runs, in percent of full speed; None: not measured."""
    backend: str
    """How the core was made slow."""
    relative_percent: float | None
    """Throughput in percent of the control of the same rounds; 100 by definition at full speed.
    None: no round has both the point and its control."""
    low: float | None
    high: float | None
    """Its 95 % interval; None: fewer than two rounds."""
    service_cpu_percent: float | None
    """CPU seconds per second of the service domain, in percent of one core at any speed; None: not
    measured."""
    device_percent: float | None
    """Use of the link or disk, in percent of its stated rate; None: not measured."""
    combined_usage_percent: float | None
    """The sum of `service_cpu_percent` and `device_percent`; None: not measured."""
    n: Count
    """The number of runs behind the point."""
    throughput: float
    """The median of these runs."""
    unit: str
    """The throughput's unit."""
    left_out: Count = 0
    """Runs that do not count: the load generator was saturated, or the speed was not held."""
    marks: tuple[str, ...] = ()
    """Why the point is kept apart: it counts for no elasticity."""


class PlaceElasticity(Strict):
    """Percent of throughput lost per percent of speed lost, with one backend."""

    backend: str
    """How the core was made slow."""
    elasticity: float
    """As of a load."""
    low: float | None
    high: float | None
    """Its 95 % interval; None: too few rounds."""


class PlaceLoad(Strict):
    """A load in an environment."""

    environment: str
    load: str
    """Where, and what."""
    points: tuple[PlacePoint, ...]
    """What each speed gave, with each backend."""
    elasticity: float | None
    """Percent of throughput lost per percent of speed lost, the mean over backends; None: no point
    counts."""
    low: float | None
    high: float | None
    """Its 95 % interval; with several backends, from their lowest bound to their highest. None: too
    few rounds."""
    by_backend: tuple[PlaceElasticity, ...] = ()
    """The elasticity with one backend."""
    at_full_speed: dict[str, float | None]
    """The value of each predictor in the controls; None: not measured."""

    @model_validator(mode="before")
    @classmethod
    def _without_simulation(cls, given: Any) -> Any:
        """Older runs have the error of a queueing model, which nothing uses."""
        if isinstance(given, dict):
            return {name: value for name, value in given.items() if name != "simulation"}
        return given


class PlaceHypothesis(Strict):
    """Spearman's correlation of a predictor with elasticity over loads and environments."""

    predictor: str
    """`combined usage`, `service CPU`, `run delay`, `batching` or `instructions per packet`."""
    rank_correlation: float | None
    """Spearman's, with elasticity; None: fewer than 12 pairs."""
    low: float | None
    high: float | None
    """Its 95 % interval."""
    n: Count
    """The number of pairs of environment and load that have both values."""
    answer: Answer
    """`supported`: more of it goes with less sensitivity; `contradicted`: with more; `open`: the
    interval holds 0."""
    reason: str
    """Why."""


class Predictor(Strict):
    """A straight line from one predictor to elasticity, with what its prediction interval needs."""

    name: str
    """As `predictor` of a hypothesis."""
    intercept: Finite
    slope: Finite
    """The line."""
    n: Count
    """The number of pairs that the line is fitted to."""
    mean: Finite
    """The mean of the predictor's values."""
    sum_of_squares: Finite
    """The sum of the squares of their distances from the mean."""
    residual: Finite
    """Standard deviation about the line, with n - 2 degrees of freedom."""
    least: Finite
    most: Finite
    """The smallest and the largest of the values; nothing is predicted beyond them."""
    leave_one_out_error: Finite
    """Root mean square error of the line's predictions for pairs that were left out."""
    mean_error: Finite
    """The same with the mean of the others as the prediction, which a predictor has to beat."""


class PlaceEnvironment(Strict):
    """An environment of `vtax place measure`."""

    spec: str
    """As on the command line."""
    description: str
    """What it really is, in words."""
    service: tuple[str, ...]
    """Names and roles of its service threads, or of its vCPUs where these were slowed (`notes` says
    so)."""
    machine_cpus: tuple[Count, ...]
    """The CPUs of this host that the machine was kept on."""
    service_cpu: Count | None
    """The CPU that its service threads were kept on; None: the user named the threads, which were
    not moved."""
    client_cpu: Count
    """The CPU that the load's client was kept on."""
    absent: str | None = None
    """Why the environment has no slow points; None: it has."""
    notes: tuple[str, ...] = ()
    """What a reader must know, such as CPUs that two of these share."""


class PlaceRecord(VerbRecord):
    """The content of `run.json` of `vtax place measure`."""

    has_page: ClassVar[bool] = True

    verb: Literal["place"] = "place"
    state: Literal["running", "complete", "interrupted", "budget", "failed"] = "running"
    """As of `compare`."""
    slowed: Literal["service", "vcpus"] = "service"
    """Whose threads are slowed: `vtax study asymmetric-cores` slows a guest's vCPUs too."""
    backends: tuple[str, ...]
    """How cores were made slow."""
    does_not: dict[str, str] = Field(default_factory=dict)
    """For each backend, what it does not reproduce of a slow core."""
    speeds: tuple[float, ...]
    """Speeds asked for, in percent of full speed."""
    seconds: float
    """The length of each measurement."""
    rounds: Count
    """Rounds in which every point runs once."""
    seed: int
    """The seed of the order."""
    environments: tuple[PlaceEnvironment, ...] = ()
    """What was measured where."""
    loads: tuple[PlaceLoad, ...] = ()
    """Each load in each environment."""
    hypothesis: PlaceHypothesis | None = None
    """The hypothesis about Combined Usage; None: nothing was measured."""
    rivals: tuple[PlaceHypothesis, ...] = ()
    """The same of each other predictor."""
    predictor: Predictor | None = None
    """Elasticity as a straight line, for `vtax place advise`; None: nothing predicts."""
    findings: tuple[str, ...] = ()
    """What a reader must know about the numbers, such as backends that disagree."""
    failures: tuple[str, ...] = ()
    """What failed."""


class ThreadAdvice(Strict):
    """A thread in the output of `vtax place advise --json`."""

    pid: Count
    tid: Count
    name: str
    role: str
    guest: str | None
    advice: Advice
    expected_loss_percent: float | None
    """The loss of its guest's throughput on the slow cores; None: not known."""
    low: float | None
    high: float | None
    reason: str


class AdviceList(Strict):
    """What `vtax place advise --json` prints."""

    threads: tuple[ThreadAdvice, ...]
