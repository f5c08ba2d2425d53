"""Where a program falls off the edge of memory: the size past which its performance is lost.

A fall must be larger than the noise of runs, last for all larger sizes, and begin where the machine
was short of memory: it swapped, or killed the program. No cliff is a finding too.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vtax.core.formats.model import Better

Verdict = Literal["differ", "no difference shown", "not known"]

LEAST_FALL = 0.10
"""Share of the performance before. Caches and clocks of a machine move it by less."""
NOISE_FACTOR = 4.0
"""A fall is at least this many robust standard deviations of a run."""
BEFORE = 3
"""How many sizes say what the next one is expected to give."""
RESAMPLES = 400
CONFIDENCE = 0.95
SIGNIFICANCE = 0.05
MOST_EXACT = 20_000
"""The most ways to divide the runs of two environments that are all looked at."""
_TO_SIGMA = 1.4826
"""Turns a median absolute deviation into a standard deviation, for a normal distribution."""
_KILLED = -math.inf


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a program of some size."""

    round: int
    value: float | None
    """Its metric; None: it was killed for lack of memory, or did not end in time."""
    pressed: bool | None
    """The machine swapped while it ran, or killed it. None: the machine does not say."""


Curve = Mapping[int, Sequence[Run]]
"""Size to its runs. A size whose runs all failed for other reasons is left out."""


@dataclass(frozen=True, slots=True)
class Cliff:
    """An edge between two sizes."""

    size: int | None
    """The largest size before the fall; None: performance has fallen at the smallest size
    already."""
    first_fallen: int
    low: int | None
    high: int
    """The edge lies above `low` and not above `high`, with 95 % confidence."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Whether the cliffs of two environments differ."""

    a: str
    b: str
    size_a: float | None
    size_b: float | None
    """The mean of the rounds' own cliffs; None: a round has none."""
    p: float | None
    """p of the permutation test; None where too few rounds can decide it."""
    verdict: Verdict


def find(curve: Curve, better: Better, seed: int = 0) -> Cliff | None:
    """The cliff of an environment; None when its performance does not fall.

    The interval comes from resampling the runs of each size (percentile bootstrap).
    """
    sizes = sorted(curve)
    least = _least_fall(curve)
    at = _fall(curve, better, least)
    if at is None:
        return None
    chance = random.Random(seed)
    falls = []
    for _ in range(RESAMPLES):
        drawn = {size: chance.choices(runs, k=len(runs)) for size, runs in curve.items()}
        if (found := _fall(drawn, better, least)) is not None:
            falls.append(found)
    falls = sorted(falls) or [at]
    tail = (1 - CONFIDENCE) / 2
    first = min(at, falls[math.floor(tail * (len(falls) - 1))])
    last = max(at, falls[math.ceil((1 - tail) * (len(falls) - 1))])
    return Cliff(_before(sizes, at), sizes[at], _before(sizes, first), sizes[last])


def differences(curves: Mapping[str, Curve], better: Better) -> Sequence[Difference]:
    """The differences of all pairs. A round ran every size once, so it has a cliff of its own."""
    own = {label: _by_round(curve, better) for label, curve in curves.items()}
    return [_difference(a, b, own[a], own[b]) for a, b in itertools.combinations(curves, 2)]


def permutation_p(a: Sequence[float], b: Sequence[float]) -> float | None:
    """The two-sided p of the difference of means, over all ways to divide the values.

    Where there are more than `MOST_EXACT` ways, that many are drawn, and the one that was seen is
    added (Phipson & Smyth 2010). None when there are too few ways for any outcome to be
    significant.
    """
    ways = math.comb(len(a) + len(b), len(a))
    if not a or not b or 2 / ways > SIGNIFICANCE:
        return None
    pooled = [*a, *b]
    total, seen = sum(pooled), abs(statistics.fmean(a) - statistics.fmean(b))

    def is_as_far(chosen: Sequence[float]) -> bool:
        own = sum(chosen)
        apart = abs(own / len(a) - (total - own) / len(b))
        # Sums of the same numbers in another order differ in their last digits.
        return apart >= seen - 1e-9 * max(1.0, seen)

    if ways <= MOST_EXACT:
        return sum(map(is_as_far, itertools.combinations(pooled, len(a)))) / ways
    chance = random.Random(len(pooled))
    drawn = sum(is_as_far(chance.sample(pooled, len(a))) for _ in range(MOST_EXACT))
    return (drawn + 1) / (MOST_EXACT + 1)


def _before(sizes: Sequence[int], at: int) -> int | None:
    return sizes[at - 1] if at else None


def _fall(curve: Curve, better: Better, least: float) -> int | None:
    """The index of the first size that has fallen, as have all after it."""
    sizes = sorted(curve)
    levels = [_level(curve[size], better) for size in sizes]
    for at, size in enumerate(sizes):
        if _pressed(curve[size]) is False:
            continue
        if at == 0:
            if all(level == _KILLED for level in levels):
                return 0
            continue
        gaps = _gaps(sizes, levels, at, better)
        # The expected time follows a trend, which is unsure far away: any fall is enough there.
        later = least if better == "higher" else 0.0
        if gaps[0] >= least and all(gap >= later for gap in gaps[1:]):
            return at
    return None


def _gaps(
    sizes: Sequence[int], levels: Sequence[float], at: int, better: Better
) -> Sequence[float]:
    """How far each level from `at` on is below what the smaller sizes lead one to expect.

    A rate is expected to stay. A time is expected to grow by the same power of the size as before.
    """
    first = max(0, at - BEFORE)
    known = [(size, level) for size, level in zip(sizes[first:at], levels[first:at], strict=True)
             if level != _KILLED]  # fmt: skip
    if not known:
        return [-math.inf]
    slope = 0.0
    if better == "lower":
        pairs = itertools.combinations(known, 2)
        slopes = [(y - x) / math.log(b / a) for (a, x), (b, y) in pairs]
        slope = statistics.median(slopes) if slopes else 0.0
    around = statistics.median(level - slope * math.log(size) for size, level in known)
    return [around + slope * math.log(sizes[n]) - levels[n] for n in range(at, len(sizes))]


def _level(runs: Sequence[Run], better: Better) -> float:
    """The median run as the logarithm of a performance: higher is better."""
    sign = 1 if better == "higher" else -1
    return statistics.median(
        _KILLED if run.value is None else sign * math.log(run.value) for run in runs
    )


def _pressed(runs: Sequence[Run]) -> bool | None:
    """Whether the machine was short of memory in some run; None: no run says."""
    known = [run.pressed for run in runs if run.pressed is not None]
    return any(known) if known else None


def _least_fall(curve: Curve) -> float:
    """The smallest fall that stands out, as a difference of logarithms.

    The noise is that of runs that were not short of memory, where there are any: among the runs of
    a size, and among medians of neighbouring sizes, which a single run of each has too.
    """
    if not curve:
        return -math.log(1 - LEAST_FALL)
    calm = [runs for runs in curve.values() if not _pressed(runs)] or list(curve.values())
    apart = []
    for runs in calm:
        logs = [math.log(run.value) for run in runs if run.value is not None]
        if len(logs) > 1:
            middle = statistics.median(logs)
            apart += [abs(each - middle) for each in logs]
    count = statistics.median(len(runs) for runs in calm)
    within = _TO_SIGMA * statistics.median(apart) / math.sqrt(count) if apart else 0.0
    return max(-math.log(1 - LEAST_FALL), NOISE_FACTOR * max(within, _between(curve)))


def _between(curve: Curve) -> float:
    """The noise of medians by second differences, in which a trend over three sizes cancels."""
    levels = [
        _level(runs, "higher") for _, runs in sorted(curve.items())
        if not _pressed(runs) and any(run.value is not None for run in runs)
    ]  # fmt: skip
    levels = [level for level in levels if level != _KILLED]
    bends = [abs(a - 2 * b + c) for a, b, c in zip(levels, levels[1:], levels[2:], strict=False)]
    # For three independent medians the weights' squares are 1, 4 and 1.
    return _TO_SIGMA * statistics.median(bends) / math.sqrt(6) if bends else 0.0


def _by_round(curve: Curve, better: Better) -> tuple[Sequence[float], bool]:
    """The middle of the edge in each round, and whether all rounds have one.

    A round without a cliff counts as one at its largest size: it is there or beyond.
    """
    least = _least_fall(curve)
    rounds = sorted({run.round for runs in curve.values() for run in runs})
    edges, whole = [], True
    for number in rounds:
        own = {
            size: kept
            for size, runs in curve.items()
            if (kept := [run for run in runs if run.round == number])
        }
        sizes = sorted(own)
        at = _fall(own, better, least)
        whole = whole and at is not None
        before = sizes[-1] if at is None else _before(sizes, at) or 0
        edges.append((before + sizes[-1 if at is None else at]) / 2)
    return edges, whole


def _difference(
    a: str, b: str, own: tuple[Sequence[float], bool], other: tuple[Sequence[float], bool]
) -> Difference:
    p = permutation_p(own[0], other[0])
    verdict: Verdict = "not known"
    if p is not None:
        verdict = "differ" if p < SIGNIFICANCE else "no difference shown"
    return Difference(a, b, _mean(own), _mean(other), p, verdict)


def _mean(own: tuple[Sequence[float], bool]) -> float | None:
    edges, whole = own
    return statistics.fmean(edges) if edges and whole else None
