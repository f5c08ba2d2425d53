"""The record of `vtax place measure`, and what `vtax place advise --json` prints."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vtax.formats.model import Count, Finite, Strict, VerbRecord

Advice = Literal["fast", "slow", "unknown"]
Answer = Literal["supported", "contradicted", "open", "not known"]


class PlacePoint(Strict):
    """A load at one speed of the service domain's cores, against the control at full speed."""

    speed_asked_percent: float
    speed_obtained_percent: float | None
    """Measured, the mean of the runs; None: not measured."""
    backend: str
    relative_percent: float | None
    """Throughput in percent of the control of the same rounds; 100 by definition at full speed.
    None: no round has both."""
    low: float | None
    """95 % interval, as `high`; None: fewer than two rounds."""
    high: float | None
    service_cpu_percent: float | None
    """CPU seconds per second of the service domain, of one core at any speed."""
    device_percent: float | None
    """Of the link's or disk's stated rate."""
    combined_usage_percent: float | None
    """Their sum."""
    n: Count
    """Runs that it is from."""
    throughput: float
    """Their median."""
    unit: str
    left_out: Count = 0
    """Runs that count for nothing, because the load generator was saturated or the speed not
    held."""
    marks: tuple[str, ...] = ()
    """Why it is kept apart: it counts for no elasticity."""


class PlaceElasticity(Strict):
    """Percent of throughput lost per percent of speed lost, with one backend."""

    backend: str
    elasticity: float
    low: float | None
    high: float | None


class PlaceSimulation(Strict):
    """How well a queueing model of the load predicts the points below full speed."""

    n: Count
    mean_model_error_percent: float
    """In points of percent of full performance, as the next."""
    worst_model_error_percent: float


class PlaceLoad(Strict):
    """A load in an environment."""

    environment: str
    load: str
    points: tuple[PlacePoint, ...]
    elasticity: float | None
    """The mean of the backends'; None: no point that counts."""
    low: float | None
    """With several backends, from the lowest of their intervals to the highest."""
    high: float | None
    by_backend: tuple[PlaceElasticity, ...] = ()
    at_full_speed: dict[str, float | None]
    """Predictor to its value in the controls; None: not measured."""
    simulation: PlaceSimulation | None = None
    """None: too little was measured for a model."""


class PlaceHypothesis(Strict):
    """Spearman's correlation of a predictor with elasticity over loads and environments."""

    predictor: str
    rank_correlation: float | None
    """None: fewer pairs than an answer takes."""
    low: float | None
    high: float | None
    n: Count
    """Pairs of environment and load that have both."""
    answer: Answer
    reason: str


class Predictor(Strict):
    """Elasticity from one predictor: a straight line, with what its prediction interval needs."""

    name: str
    intercept: Finite
    slope: Finite
    n: Count
    mean: Finite
    """Of the predictor's values."""
    sum_of_squares: Finite
    """Of their distances from the mean."""
    residual: Finite
    """Standard deviation about the line, with n - 2."""
    least: Finite
    """The range of the values; nothing is predicted beyond it."""
    most: Finite
    leave_one_out_error: Finite
    """Root mean square of the predictions of pairs left out, as the next."""
    mean_error: Finite
    """Of the mean of the others as the prediction: what a predictor has to beat."""


class PlaceEnvironment(Strict):
    """An environment of `vtax place measure`."""

    spec: str
    description: str
    service: tuple[str, ...]
    """Names and roles of its service threads; of its vCPUs where these were slowed, which `notes`
    says."""
    machine_cpus: tuple[Count, ...]
    """CPUs of this host that the machine was kept on."""
    service_cpu: Count | None
    """That its service threads were kept on; None: threads that the user named, as they were."""
    client_cpu: Count
    """That the load's client was kept on."""
    absent: str | None = None
    """Why it has no slow points."""
    notes: tuple[str, ...] = ()


class PlaceRecord(VerbRecord):
    """The content of `run.json` of `vtax place measure`."""

    verb: Literal["place"] = "place"
    state: Literal["running", "complete", "interrupted", "budget", "failed"] = "running"
    slowed: Literal["service", "vcpus"] = "service"
    """Whose threads; `vtax study asymmetric-cores` slows a guest's vCPUs too."""
    backends: tuple[str, ...]
    does_not: dict[str, str] = Field(default_factory=dict)
    """Backend to what it does not reproduce of a slow core."""
    speeds: tuple[float, ...]
    """Percent of full speed, as asked for."""
    seconds: float
    """Of each measurement."""
    rounds: Count
    seed: int
    """Of the order."""
    environments: tuple[PlaceEnvironment, ...] = ()
    loads: tuple[PlaceLoad, ...] = ()
    hypothesis: PlaceHypothesis | None = None
    """Of Combined Usage; None: nothing was measured."""
    rivals: tuple[PlaceHypothesis, ...] = ()
    predictor: Predictor | None = None
    """What `vtax place advise` uses; None: nothing predicts."""
    findings: tuple[str, ...] = ()
    """What a reader must know of the numbers."""
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
    """Of its guest's throughput on the slow cores; None: not known."""
    low: float | None
    high: float | None
    reason: str


class AdviceList(Strict):
    """What `vtax place advise --json` prints."""

    threads: tuple[ThreadAdvice, ...]
