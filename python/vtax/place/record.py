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
    speed_obtained_percent: float | None
    """Speed as measured, the mean of the runs; None: not measured."""
    backend: str
    relative_percent: float | None
    """Throughput in percent of the control of the same rounds; 100 by definition at full speed.
    None: no round has both the point and its control."""
    low: float | None
    """95 % interval, with `high`; None: fewer than two rounds."""
    high: float | None
    service_cpu_percent: float | None
    """CPU seconds per second of the service domain, in percent of one core at any speed."""
    device_percent: float | None
    """In percent of the stated rate of the link or disk."""
    combined_usage_percent: float | None
    """The sum of `service_cpu_percent` and `device_percent`."""
    n: Count
    """The number of runs behind the point."""
    throughput: float
    """The median of these runs."""
    unit: str
    left_out: Count = 0
    """Runs that do not count: the load generator was saturated, or the speed was not held."""
    marks: tuple[str, ...] = ()
    """Why the point is kept apart: it counts for no elasticity."""


class PlaceElasticity(Strict):
    """Percent of throughput lost per percent of speed lost, with one backend."""

    backend: str
    elasticity: float
    low: float | None
    high: float | None


class PlaceLoad(Strict):
    """A load in an environment."""

    environment: str
    load: str
    points: tuple[PlacePoint, ...]
    elasticity: float | None
    """The mean over backends; None: no point counts."""
    low: float | None
    """The 95 % interval, with `high`; with several backends, from their lowest bound to their
    highest."""
    high: float | None
    by_backend: tuple[PlaceElasticity, ...] = ()
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
    rank_correlation: float | None
    """None: there are fewer pairs than an answer takes."""
    low: float | None
    high: float | None
    n: Count
    """The number of pairs of environment and load that have both values."""
    answer: Answer
    reason: str


class Predictor(Strict):
    """A straight line from one predictor to elasticity, with what its prediction interval needs."""

    name: str
    intercept: Finite
    slope: Finite
    n: Count
    mean: Finite
    """The mean of the predictor's values."""
    sum_of_squares: Finite
    """The sum of the squares of their distances from the mean."""
    residual: Finite
    """Standard deviation about the line, with n - 2 degrees of freedom."""
    least: Finite
    """The smallest of the values, with `most` the largest; nothing is predicted beyond them."""
    most: Finite
    leave_one_out_error: Finite
    """Root mean square error of the predictions of pairs that were left out, as in the next."""
    mean_error: Finite
    """The error with the mean of the others as the prediction, which a predictor has to beat."""


class PlaceEnvironment(Strict):
    """An environment of `vtax place measure`."""

    spec: str
    description: str
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
    """Why the environment has no slow points."""
    notes: tuple[str, ...] = ()


class PlaceRecord(VerbRecord):
    """The content of `run.json` of `vtax place measure`."""

    has_page: ClassVar[bool] = True

    verb: Literal["place"] = "place"
    state: Literal["running", "complete", "interrupted", "budget", "failed"] = "running"
    slowed: Literal["service", "vcpus"] = "service"
    """Whose threads are slowed; `vtax study asymmetric-cores` slows a guest's vCPUs too."""
    backends: tuple[str, ...]
    does_not: dict[str, str] = Field(default_factory=dict)
    """For each backend, what it does not reproduce of a slow core."""
    speeds: tuple[float, ...]
    """Speeds asked for, in percent of full speed."""
    seconds: float
    """The length of each measurement."""
    rounds: Count
    seed: int
    """The seed of the order."""
    environments: tuple[PlaceEnvironment, ...] = ()
    loads: tuple[PlaceLoad, ...] = ()
    hypothesis: PlaceHypothesis | None = None
    """The hypothesis about Combined Usage; None: nothing was measured."""
    rivals: tuple[PlaceHypothesis, ...] = ()
    predictor: Predictor | None = None
    """What `vtax place advise` uses; None: nothing predicts."""
    findings: tuple[str, ...] = ()
    """What a reader must know about the numbers."""
    failures: tuple[str, ...] = ()


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
