"""The report card of a machine's clocks: what was seen of them against written thresholds.

Each check has a limit up to which it passes and one from which it fails; between them it warns.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vtax.audit import limits
from vtax.audit.limits import Limits
from vtax.audit.order_drift import OrderDrift
from vtax.audit.order_drift import Verdict as Drift
from vtax.core.clocks import Skew
from vtax.core.formats.model import AuditCard, AuditCheck, AuditVerdict
from vtax.core.statistics.clocks import shortest_duration_s
from vtax.core.statistics.statistics import share_interval

YES_NO = "yes/no"
"""Unit of a value that is 1 or 0."""
LONG_S = 1.0
"""Runs of this length are judged by equation 1: a tick of 10 ms is 1 % of them."""
_Bounds = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Timed:
    """A run of a program that computes without waiting, by the machine's own clocks."""

    asked_s: float
    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Beside:
    """What was seen while another machine of the same kind computed on the same CPUs."""

    clocks: Mapping[str, Any]
    timed: Sequence[Timed]


@dataclass(frozen=True, slots=True)
class Interruption:
    """The machine was stopped for a while, or switched between nested and shadow paging."""

    name: str
    """`pause` or `switch`."""
    before: Skew
    after: Skew


@dataclass(frozen=True, slots=True)
class Observed:
    """The observations of a machine."""

    clocks: Mapping[str, Any]
    """As `vtax-agent clocks` prints them (docs/audit.md)."""
    skews: Sequence[tuple[float, Skew]] | None
    """Pairs of host time in seconds and the machine's clock less the host's at that time; in order,
    with no interruption between them. None: its clock is emulated and does not follow the
    host's."""
    timed: Sequence[Timed]
    beside: Beside | None = None
    """None: no other machine was run beside it."""
    interruptions: Sequence[Interruption] = ()
    mpi: Mapping[str, Any] | None = None
    """As `vtax-mpi-clock` prints it; None: there is no MPI, or the audit did not ask for it."""


def card(spec: str, observed: Observed, drift: OrderDrift | None = None) -> AuditCard:
    """The report card of a machine; `drift`: what the experiment with the order of sizes found."""
    checks = (*_checks(observed), *(() if drift is None else (_order(drift),)))
    return AuditCard(
        spec=spec,
        verdict=AuditVerdict.worst([check.verdict for check in checks]),
        shortest_duration_s=_shortest_s(observed),
        checks=checks,
    )


def _checks(observed: Observed) -> Iterator[AuditCheck]:
    clock = _clock(observed, "CLOCK_MONOTONIC")
    cost = _mapping(clock.get("cost_ns"))
    yield _check("clock-step", limits.STEP, _number(clock.get("smallest_step")), "ns")
    yield _check(
        "clock-cost", limits.COST, _number(cost.get("median")), "ns",
        (_number(cost.get("min")), _number(cost.get("p99"))),
    )  # fmt: skip
    yield _check("clock-backward", limits.BACKWARD, _backward(clock), "steps")
    yield _check("cpu-clock-step", limits.CPU_STEP, _cpu_step(observed), "ns")
    yield from _cpu_against_wall(observed)
    yield from _timer_step(observed)
    if observed.skews is not None:
        yield _rate(observed.skews)
        yield from _rtc_rate(observed)
    yield _steal(observed)
    yield _check("noise", limits.NOISE, _percent(_lost_share(observed.clocks)), "%")
    if observed.beside is not None:
        yield from _beside(observed.beside)
    yield from map(_interrupted, observed.interruptions)
    if observed.mpi is not None:
        step = _number(observed.mpi.get("smallest_step_ns"))
        claimed = _number(observed.mpi.get("resolution_ns"))
        yield _check("mpi-clock-step", limits.STEP, step, "ns", (claimed, None))


def _check(
    name: str,
    own: Limits,
    value: float | None,
    unit: str,
    bounds: _Bounds = (None, None),
    shown: float | None = None,
) -> AuditCheck:
    """A check of `value`; `shown` is the value to show where that is another one."""
    verdict = _judge(own, value)
    return AuditCheck(
        name=name,
        verdict=verdict,
        value=value if shown is None else shown,
        unit=unit,
        low=bounds[0],
        high=bounds[1],
        threshold=own.fail,
        reason=own.why,
        metrics=own.metrics,
        remedy=None if verdict is AuditVerdict.PASS else own.remedy,
    )


def _judge(own: Limits, value: float | None) -> AuditVerdict:
    if value is None:
        return AuditVerdict.UNKNOWN
    if value <= own.warn:
        return AuditVerdict.PASS
    return AuditVerdict.WARN if value <= own.fail else AuditVerdict.FAIL


def _backward(clock: Mapping[str, Any]) -> float | None:
    ways = [_mapping(clock.get(key)) for key in ("backward_same_cpu", "backward_across_cpus")]
    steps = [count for way in ways if (count := _number(way.get("steps"))) is not None]
    return sum(steps) if steps else None


def _cpu_step(observed: Observed) -> float | None:
    return _number(_clock(observed, "getrusage").get("smallest_step"))


def _cpu_against_wall(observed: Observed) -> Iterator[AuditCheck]:
    """Equation 1 over the durations, and how often CPU time was above wall time."""
    long_s = min(LONG_S, max((run.asked_s for run in observed.timed), default=0.0))
    shares = [
        100 * abs(run.cpu_s / run.wall_s - 1)
        for run in observed.timed
        if run.asked_s >= long_s and run.wall_s > 0
    ]
    value = statistics.median(shares) if shares else None
    bounds = (min(shares), max(shares)) if shares else (None, None)
    yield _check("cpu-against-wall", limits.CPU_WALL, value, "%", bounds)
    # Each of the two times is off by up to a step of its clock.
    steps_s = sum(
        _number(_clock(observed, name).get("smallest_step")) or 0.0
        for name in ("CLOCK_MONOTONIC", "getrusage")
    )
    inverted = sum(run.cpu_s > run.wall_s + steps_s / 1e9 for run in observed.timed)
    total = len(observed.timed)
    yield _check(
        "timer-inversion", limits.INVERSION, 100 * inverted / total if total else None, "%",
        share_interval(inverted, total),
    )  # fmt: skip


def _rate(skews: Sequence[tuple[float, Skew]]) -> AuditCheck:
    """The rate of the machine's clock against the host's, from its first and last offset."""
    if len(skews) < 2:
        return _check("host-rate", limits.RATE, None, "ppm")
    (begin_s, first), (end_s, last) = skews[0], skews[-1]
    # Parts per million: nanoseconds per millisecond.
    span_ms = (end_s - begin_s) * 1e3
    value = (last.offset_ns - first.offset_ns) / span_ms
    within = (last.within_ns + first.within_ns) / span_ms
    return _rate_check("host-rate", limits.RATE, value, within)


def _rtc_rate(observed: Observed) -> Iterator[AuditCheck]:
    """The rate of the machine's clock against its own real-time clock, where it has one."""
    rtc = _mapping(observed.clocks.get("rtc"))
    faster, within = (_number(rtc.get(key)) for key in ("against_monotonic_ppm", "within_ppm"))
    if faster is not None and within is not None:
        yield _rate_check("rtc-rate", limits.RTC_RATE, -faster, within)


def _rate_check(name: str, own: Limits, value: float, within: float) -> AuditCheck:
    """A rate in ppm. What the bound allows is no fault of the clock; a bound as wide as the limit
    says nothing."""
    sure = max(0.0, abs(value) - within) if within <= own.fail else None
    return _check(name, own, sure, "ppm", (value - within, value + within), value)


def _timer_step(observed: Observed) -> Iterator[AuditCheck]:
    """The coarsest step of the timers that wake sleepers, where the kernel shows them (root)."""
    cpus = _mapping(observed.clocks.get("timers")).get("cpus")
    told = cpus if isinstance(cpus, list) else []
    steps = [step for cpu in told if (step := _number(_mapping(cpu).get("resolution_ns")))]
    if steps:
        yield _check("timer-step", limits.TIMER_STEP, max(steps), "ns")


def _steal(observed: Observed) -> AuditCheck:
    present = _mapping(observed.clocks.get("steal")).get("present")
    missing = None if not isinstance(present, bool) else float(not present)
    return _check("steal-unknown", limits.STEAL, missing, YES_NO)


def _beside(beside: Beside) -> Iterator[AuditCheck]:
    """What another machine on the same CPUs takes, and how much of that CPU time does not show."""
    lost = _lost_share(beside.clocks)
    yield _check("noise-beside-guest", limits.BESIDE, _percent(lost), "%")
    shares = [run.cpu_s / run.wall_s for run in beside.timed if run.wall_s > 0]
    unseen = None
    if lost and shares:
        unseen = max(0.0, statistics.median(shares) - (1 - lost)) / lost
    yield _check("stolen-unseen", limits.UNSEEN, _percent(unseen), "%")


def _interrupted(this: Interruption) -> AuditCheck:
    """How much of the interruption the machine's clock lacks, or has too much."""
    value = (this.after.offset_ns - this.before.offset_ns) / 1e6
    within = (this.after.within_ns + this.before.within_ns) / 1e6
    sure = max(0.0, abs(value) - within)
    bounds = (value - within, value + within)
    return _check(f"time-over-{this.name}", limits.PAUSE, sure, "ms", bounds, value)


def _order(drift: OrderDrift) -> AuditCheck:
    """The drift with the order of sizes: a sure one, or a bound; unknown where noise leaves it
    open."""
    none = drift.verdict is Drift.NONE
    value = drift.below_percent if none else drift.drift_percent
    if value is not None and value <= limits.ORDER.warn and not none:
        value = None
    high = drift.below_percent if math.isfinite(drift.below_percent) else None
    bounds = (None if high is None else 0.0, high)
    found = _check("order-drift", limits.ORDER, value, "%", bounds)
    guest = drift.verdict is Drift.GUEST and found.remedy is not None
    return found.model_copy(
        update={
            "reason": f"{drift.text}; {found.reason}",
            "remedy": limits.ORDER_OF_GUEST if guest else found.remedy,
        }
    )


def _shortest_s(observed: Observed) -> float | None:
    clock = _clock(observed, "CLOCK_MONOTONIC")
    return shortest_duration_s(
        _number(clock.get("smallest_step")), _number(_mapping(clock.get("cost_ns")).get("median"))
    )


def _lost_share(clocks: Mapping[str, Any]) -> float | None:
    return _number(_mapping(clocks.get("noise")).get("lost_share"))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _clock(observed: Observed, name: str) -> Mapping[str, Any]:
    return _mapping(_mapping(observed.clocks.get("clocks")).get(name))


def _mapping(value: object) -> Mapping[str, Any]:
    """What the machine said, if it is a mapping; otherwise an empty one."""
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
