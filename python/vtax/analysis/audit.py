"""From what was seen of a machine's clocks to a report card: checks against written thresholds.

Each check has a limit up to which it passes and one from which it fails; between them it warns.
The limits stand here, each with its reason, and in docs/audit.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vtax.clocks import Skew

WALL, CPU = "wall_s", "cpu_s"
ACCURACY = 0.01
"""Of the shortest duration."""
YES_NO = "yes/no"
"""Unit of a value that is 1 or 0."""
PAIRS = 2
"""A duration is the difference of two readings, each off by up to a step."""


class Verdict(StrEnum):
    """Of a check, and of an environment: its worst check's."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


_WORST = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.PASS)


@dataclass(frozen=True, slots=True)
class Timed:
    """A run of a program that computes without waiting, by the machine's own clocks."""

    asked_s: float
    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of a machine."""

    clocks: Mapping[str, Any]
    """As `vtax-agent clocks` prints them (docs/clocks.md)."""
    skews: Sequence[tuple[float, Skew]]
    """Host time in seconds, and the machine's clock less the host's then; in order."""
    timed: Sequence[Timed]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report card."""

    name: str
    verdict: Verdict
    value: float | None
    unit: str
    low: float | None
    high: float | None
    """95 % interval, or a bound where the value has one."""
    threshold: float
    """Beyond it the check fails."""
    reason: str
    metrics: tuple[str, ...]
    """What is not to be trusted unless it passes."""
    remedy: str | None


@dataclass(frozen=True, slots=True)
class Card:
    """The report card of an environment."""

    spec: str
    verdict: Verdict
    shortest_duration_s: float | None
    """The shortest duration that its clock times to 1 %."""
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class _Limits:
    """Of a check."""

    warn: float
    fail: float
    why: str
    metrics: tuple[str, ...]
    remedy: str


STEP = _Limits(
    1e3, 1e6, "1 us is 0.1 % of a millisecond, 1 ms is 1 % of a tenth of a second", (WALL,),
    "use a finer clock source, or time longer runs",
)  # fmt: skip
COST = _Limits(
    200.0, 1e4, "a reading by the vDSO takes 20 to 60 ns, one that leaves the guest 1 us and more",
    (WALL,), "use the clock source tsc or the hypervisor's paravirtual one",
)  # fmt: skip
BACKWARD = _Limits(
    0.0, 0.0, "CLOCK_MONOTONIC never steps back", (WALL, CPU),
    "do not measure here: the kernel's clock is broken; try another clock source",
)  # fmt: skip
CPU_STEP = _Limits(
    1e6, 1e7, "a kernel that accounts CPU time by its tick has steps of 1 to 10 ms", (CPU,),
    "trust CPU times of long runs only: 100 steps for 1 %",
)  # fmt: skip
CPU_WALL = _Limits(
    2.0, 10.0, "a program that only computes uses as much CPU time as wall time passes (equation 1 "
    "of the paper on HPC Challenge in virtualized environments); that paper saw up to 50 %",
    (CPU,), "trust wall time, and look for a busy host where CPU time is the smaller one",
)  # fmt: skip
INVERSION = _Limits(
    0.0, 5.0, "CPU time above wall time, beyond both clocks' steps, cannot be", (WALL, CPU),
    "compare with the host's clock: one of the machine's two is wrong",
)  # fmt: skip
RATE = _Limits(
    500.0, 5000.0, "NTP slews a clock by at most 500 ppm; ten times that is a wrong clock", (WALL,),
    "set the guest's clock source, or take the host's time (host_wall_s)",
)  # fmt: skip
STEAL = _Limits(
    0.0, 1.0, "without a steal clock nobody knows whether the CPU was taken away", (),
    "judge by the A/A control of vtax compare",
)  # fmt: skip
NOISE = _Limits(
    1.0, 5.0, "the time that a loop loses to interrupts, other tasks and other guests is in every "
    "result; 1 % is what most comparisons are about", (WALL,),
    "quieten the host, or pin the machine to CPUs of its own",
)  # fmt: skip


def card(spec: str, observed: Observed) -> Card:
    """The report card of a machine."""
    checks = tuple(_checks(observed))
    found = {check.verdict for check in checks}
    worst = next((each for each in _WORST if each in found), Verdict.UNKNOWN)
    return Card(spec, worst, _shortest_s(observed), checks)


def _checks(observed: Observed) -> Iterator[Check]:
    clock = _clock(observed, "CLOCK_MONOTONIC")
    cost = _mapping(clock.get("cost_ns"))
    yield _check("clock-step", STEP, _number(clock.get("smallest_step")), "ns")
    yield _check(
        "clock-cost", COST, _number(cost.get("median")), "ns",
        (_number(cost.get("min")), _number(cost.get("p99"))),
    )  # fmt: skip
    yield _check("clock-backward", BACKWARD, _backward(clock), "steps")
    yield _check("cpu-clock-step", CPU_STEP, _cpu_step(observed), "ns")
    yield from _cpu_against_wall(observed)
    yield _rate(observed)
    yield _steal(observed)
    noise = _mapping(observed.clocks.get("noise"))
    share = _number(noise.get("lost_share"))
    yield _check("noise", NOISE, None if share is None else 100 * share, "%")


def _check(
    name: str,
    limits: _Limits,
    value: float | None,
    unit: str,
    bounds: tuple[float | None, float | None] = (None, None),
) -> Check:
    verdict = _judge(limits, value)
    return Check(
        name,
        verdict,
        value,
        unit,
        *bounds,
        limits.fail,
        limits.why,
        limits.metrics,
        None if verdict is Verdict.PASS else limits.remedy,
    )


def _judge(limits: _Limits, value: float | None) -> Verdict:
    if value is None:
        return Verdict.UNKNOWN
    if value <= limits.warn:
        return Verdict.PASS
    return Verdict.WARN if value <= limits.fail else Verdict.FAIL


def _backward(clock: Mapping[str, Any]) -> float | None:
    ways = [_mapping(clock.get(key)) for key in ("backward_same_cpu", "backward_across_cpus")]
    steps = [count for way in ways if (count := _number(way.get("steps"))) is not None]
    return sum(steps) if steps else None


def _cpu_step(observed: Observed) -> float | None:
    return _number(_clock(observed, "getrusage").get("smallest_step"))


def _cpu_against_wall(observed: Observed) -> Iterator[Check]:
    """Equation 1 over the durations, and how often CPU time was above wall time."""
    longest = max((run.asked_s for run in observed.timed), default=0.0)
    shares = [
        100 * abs(run.cpu_s / run.wall_s - 1)
        for run in observed.timed
        if run.asked_s == longest and run.wall_s > 0
    ]
    value = statistics.median(shares) if shares else None
    bounds = (min(shares), max(shares)) if shares else (None, None)
    yield _check("cpu-against-wall", CPU_WALL, value, "%", bounds)
    # Each of both times is off by up to a step of its clock.
    steps_s = sum(
        _number(_clock(observed, name).get("smallest_step")) or 0.0
        for name in ("CLOCK_MONOTONIC", "getrusage")
    )
    inverted = sum(run.cpu_s > run.wall_s + steps_s / 1e9 for run in observed.timed)
    total = len(observed.timed)
    yield _check(
        "timer-inversion", INVERSION, 100 * inverted / total if total else None, "%",
        _share_interval(inverted, total),
    )  # fmt: skip


def _share_interval(count: int, total: int) -> tuple[float | None, float | None]:
    """Clopper and Pearson's exact 95 % interval of a share, in percent."""
    if total == 0:
        return None, None
    from scipy.special import betaincinv

    low = 0.0 if count == 0 else float(betaincinv(count, total - count + 1, 0.025))
    high = 1.0 if count == total else float(betaincinv(count + 1, total - count, 0.975))
    return 100 * low, 100 * high


def _rate(observed: Observed) -> Check:
    """The rate of the machine's clock against the host's, from its first and last offset."""
    value = low = high = None
    if len(observed.skews) > 1:
        (begin_s, first), (end_s, last) = observed.skews[0], observed.skews[-1]
        # Parts per million: nanoseconds per millisecond.
        span_ms = (end_s - begin_s) * 1e3
        value = (last.offset_ns - first.offset_ns) / span_ms
        within = (last.within_ns + first.within_ns) / span_ms
        low, high = value - within, value + within
    # What the bound leaves open is no fault of the clock.
    sure = None if low is None or high is None else max(0.0, low, -high)
    found = _check("host-rate", RATE, sure, "ppm", (low, high))
    wide = low is not None and high is not None and high - low > 2 * RATE.fail
    verdict = Verdict.UNKNOWN if wide else found.verdict
    return Check(
        found.name, verdict, value, found.unit, low, high, found.threshold, found.reason,
        found.metrics, found.remedy,
    )  # fmt: skip


def _steal(observed: Observed) -> Check:
    present = _mapping(observed.clocks.get("steal")).get("present")
    missing = None if not isinstance(present, bool) else float(not present)
    return _check("steal-unknown", STEAL, missing, YES_NO)


def _shortest_s(observed: Observed) -> float | None:
    clock = _clock(observed, "CLOCK_MONOTONIC")
    step = _number(clock.get("smallest_step"))
    cost = _number(_mapping(clock.get("cost_ns")).get("median"))
    if step is None or cost is None:
        return None
    return (PAIRS * step + cost) / 1e9 / ACCURACY


def _clock(observed: Observed, name: str) -> Mapping[str, Any]:
    return _mapping(_mapping(observed.clocks.get("clocks")).get(name))


def _mapping(value: object) -> Mapping[str, Any]:
    """What the machine said is only taken in the form that it should have."""
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
