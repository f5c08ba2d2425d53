"""Whether a thread may go to slow cores: what its guest loses there, and whether that is allowed.

The loss at a speed is elasticity times the speed that is lost (vtax.place.analysis). It is the
guest's whole throughput, measured or predicted with all service threads slowed together, so a
single thread of several costs at most that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vtax.place.analysis import FULL
from vtax.place.hypothesis import predicted
from vtax.place.record import Advice, PlaceLoad, Predictor, ThreadAdvice
from vtax.place.service_domain import VCPU


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Elasticity with its 95 % interval, and its source."""

    value: float
    low: float
    high: float
    source: str
    """Ends a sentence, such as `measured in uml:net=vde with http`."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of the host, as advice sees it."""

    pid: int
    tid: int
    name: str
    role: str
    guest: str | None


def measured(load: PlaceLoad) -> Sensitivity | None:
    """The sensitivity of a load that was measured; None without an interval."""
    if load.elasticity is None or load.low is None or load.high is None:
        return None
    source = f"measured in {load.environment} with {load.load}"
    return Sensitivity(load.elasticity, load.low, load.high, source)


def by_predictor(by: Predictor | None, values: Mapping[str, float | None]) -> Sensitivity | None:
    """The sensitivity of a thread with these values; None: nothing predicts it, or not that far.

    `values` are named as `vtax.place.analysis.at_full_speed` names them.
    """
    value = values.get(by.name) if by else None
    found = predicted(by, value) if by and value is not None else None
    if by is None or value is None or found is None:
        return None
    return Sensitivity(*found, f"predicted from its {by.name} of {value:.3g}")


def loss(sensitivity: Sensitivity, speed_percent: float) -> tuple[float, float, float]:
    """Percent of throughput lost on cores of that speed, with the interval; below 0: a gain.

    No more than 100 % can be lost, whatever a wide interval says.
    """
    lost = FULL - speed_percent
    value, low, high = (
        min(each * lost, FULL) for each in (sensitivity.value, sensitivity.low, sensitivity.high)
    )
    return value, low, high


def advise(
    thread: Thread, sensitivity: Sensitivity | None, speed_percent: float, budget_percent: float
) -> ThreadAdvice:
    """Advice for cores of that speed, where the thread's guest may lose `budget_percent`."""
    expected, low, high = loss(sensitivity, speed_percent) if sensitivity else (None, None, None)
    advice, reason = _judged(thread, sensitivity, high, speed_percent, budget_percent)
    return ThreadAdvice(
        pid=thread.pid,
        tid=thread.tid,
        name=thread.name,
        role=thread.role,
        guest=thread.guest,
        advice=advice,
        expected_loss_percent=expected,
        low=low,
        high=high,
        reason=reason,
    )


def _judged(
    thread: Thread,
    sensitivity: Sensitivity | None,
    high: float | None,
    speed_percent: float,
    budget_percent: float,
) -> tuple[Advice, str]:
    if thread.role == VCPU:
        return "fast", "it runs the guest itself"
    if sensitivity is None or high is None:
        return "unknown", "nothing measured or predicted says how sensitive it is"
    at = f"at {speed_percent:g} % of full speed"
    if high <= budget_percent:
        return "slow", f"its guest loses at most {max(high, 0.0):.1f} % {at}, {sensitivity.source}"
    return "fast", (
        f"its guest may lose {high:.1f} % {at}, more than {budget_percent:g} %,"
        f" {sensitivity.source}"
    )
