"""What an interval on a ratio means, given a margin.

A difference is tested as a difference and equivalence as equivalence: both need the whole 95 %
interval on one side of an edge. "No significant difference" never means "equal".

With margin m, performance between (100 - m) % and 100 / (1 - m / 100) % counts as equal. The upper
edge is the mirror image of the lower, so that exchanging the two sides exchanges the verdicts: if
A is slower than B then B is faster than A.
"""

from __future__ import annotations

import math

from vtax.analysis.results import Verdict
from vtax.analysis.statistics import Estimate
from vtax.errors import MisuseError

MOST_REPETITIONS = 1000
"""`repetitions_to_settle` ends here and then means: so many or more."""

# An estimate that is exactly on an edge must not be pushed over it by rounding in exp and log.
_ROUNDING = 1e-9


def edge(margin_percent: float) -> float:
    """The margin on the natural log scale: equal is what lies within plus or minus this.

    Raises MisuseError when the margin is not between 0 and 100 %.
    """
    if not 0 < margin_percent < 100:
        raise MisuseError(f"a margin of {margin_percent:g} % is not between 0 and 100 %")
    return -math.log1p(-margin_percent / 100.0)


def judge(ratio: Estimate, margin_percent: float) -> Verdict:
    """The verdict on the log of a performance ratio (above 0: faster than the baseline).

    An interval that touches an edge from inside is equivalent; one that reaches over an edge,
    from whichever side, is inconclusive, also when it leaves out 100 %: there is a difference
    then, but whether it is larger than the margin is open.
    """
    limit = edge(margin_percent)
    half = ratio.half_width()
    low, high = ratio.value - half, ratio.value + half
    if -limit - _ROUNDING <= low and high <= limit + _ROUNDING:
        return Verdict.EQUIVALENT
    if high < -limit - _ROUNDING:
        return Verdict.SLOWER
    if low > limit + _ROUNDING:
        return Verdict.FASTER
    return Verdict.INCONCLUSIVE


def repetitions_to_settle(ratio: Estimate, margin_percent: float, n: int) -> int:
    """About how many repetitions of both sides would turn `inconclusive` into another verdict.

    Supposes that estimate and spread stay as seen with `n` repetitions: the smallest number for
    which the half width is no more than the distance to the nearest edge, which is the one that
    decides. An estimate on an edge stays inconclusive, and gets MOST_REPETITIONS.
    """
    distance = abs(abs(ratio.value) - edge(margin_percent))
    low, high = n + 1, MOST_REPETITIONS
    while low < high:
        middle = (low + high) // 2
        if _half_width_with(ratio, n, middle) <= distance:
            high = middle
        else:
            low = middle + 1
    return low


def _half_width_with(ratio: Estimate, n: int, more: int) -> float:
    """The half width if n were `more`: the error falls with the root, t with its freedom."""
    df = ratio.df * (more - 1) / (n - 1)
    return Estimate(0.0, ratio.error * math.sqrt(n / more), df).half_width()
