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
    """As asked for."""
    speed_obtained_percent: float | None
    """As measured, the mean of the runs."""
    backend: str
    """How the core was made slow."""
    relative_percent: float | None
    low: float | None
    high: float | None
    """Throughput in percent of the control of the same rounds; its 95 % interval."""
    service_cpu_percent: float | None
    device_percent: float | None
    combined_usage_percent: float | None
    """CPU seconds per second of the service domain, in percent of one core at any speed; use of the
    link or disk, in percent of its stated rate; the sum of both."""
    service_cpu_low: float | None = None
    service_cpu_high: float | None = None
    """The 95 % interval of the service domain's CPU time."""
    watts: float | None = None
    """The host's mean power; None: it has no counter of energy."""
    n: Count
    """Runs behind the point."""
    throughput: float
    """Their median."""
    unit: str
    """The throughput's unit."""
    left_out: Count = 0
    """Runs that do not count: the load generator was saturated, or the speed not held."""
    marks: tuple[str, ...] = ()
    """Why the point counts for no elasticity."""


class PlaceElasticity(Strict):
    """Percent of throughput lost per percent of speed lost, with one backend."""

    backend: str
    """How the core was made slow."""
    elasticity: float
    """As of a load."""
    low: float | None
    high: float | None
    """Its 95 % interval."""


class PlaceLoad(Strict):
    """A load in an environment."""

    environment: str
    load: str
    """Where, and what."""
    points: tuple[PlacePoint, ...]
    """Each speed with each backend."""
    elasticity: float | None
    low: float | None
    high: float | None
    """Percent of throughput lost per percent of speed lost, the mean over backends; its 95 %
    interval, from the backends' lowest bound to their highest."""
    by_backend: tuple[PlaceElasticity, ...] = ()
    """The elasticity with one backend."""
    at_full_speed: dict[str, float | None]
    """Each predictor in the controls."""

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
    low: float | None
    high: float | None
    """Spearman's, with elasticity, and its 95 % interval; None: fewer than 12 pairs."""
    n: Count
    """Pairs of environment and load with both values."""
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
    """Fitted pairs."""
    mean: Finite
    sum_of_squares: Finite
    residual: Finite
    """The mean of the predictor's values; the sum of the squares about it; the standard deviation
    about the line, with n - 2 degrees of freedom."""
    least: Finite
    most: Finite
    """The range of the values, beyond which nothing is predicted."""
    leave_one_out_error: Finite
    mean_error: Finite
    """Root mean square errors for pairs left out: of the line; of the others' mean, which the line
    has to beat."""


class PlaceEnvironment(Strict):
    """An environment of `vtax place measure`."""

    spec: str
    description: str
    """As typed, and what it is, in words."""
    service: tuple[str, ...]
    """Names and roles of its service threads (or slowed vCPUs)."""
    machine_cpus: tuple[Count, ...]
    """The machine's CPUs on the host."""
    service_cpu: Count | None
    """The CPU of its service threads; None: the user named them."""
    client_cpu: Count
    """The CPU of the load's client."""
    absent: str | None = None
    """Why it has no slow points."""
    notes: tuple[str, ...] = ()
    """What a reader must know."""


class PlaceRecord(VerbRecord):
    """The content of `run.json` of `vtax place measure`."""

    has_page: ClassVar[bool] = True

    verb: Literal["place"] = "place"
    state: Literal["running", "complete", "interrupted", "budget", "failed"] = "running"
    """As of `compare`."""
    slowed: Literal["service", "vcpus"] = "service"
    """Whose threads are slowed."""
    backends: tuple[str, ...]
    """How cores were made slow."""
    does_not: dict[str, str] = Field(default_factory=dict)
    """What each backend does not reproduce of a slow core."""
    speeds: tuple[float, ...]
    """In percent of full speed."""
    seconds: float
    """The length of each measurement."""
    rounds: Count
    seed: int
    """Rounds in which every point runs once; the seed of the order."""
    environments: tuple[PlaceEnvironment, ...] = ()
    """What was measured where."""
    loads: tuple[PlaceLoad, ...] = ()
    """Each load in each environment."""
    hypothesis: PlaceHypothesis | None = None
    """About Combined Usage."""
    rivals: tuple[PlaceHypothesis, ...] = ()
    """The same of each other predictor."""
    predictor: Predictor | None = None
    """Elasticity as a straight line, for `vtax place advise`."""
    findings: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    """What a reader must know; what failed."""


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
