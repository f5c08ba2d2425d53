"""Whether a change stands out of the changes that a series makes everywhere.

A series that remembers its past wanders, and each bend looks like a change when compared with noise
that remembers nothing or less. So the jump at a change, the mean of the h values after it less that
of the h before (the moving sums of Eichinger & Kirch 2018), is compared with the same jumps at all
other places, by their median: it must exceed them by more than the largest jump of a series without
changes exceeds them with a probability of 95 %. That limit is simulated, for series that remember
nothing, much, and all their past; the largest counts. A trend is the same jump everywhere, so none
stands out.

What is recorded are counts. Their rate often wanders by factors, and where it is high it also
wanders farther, so that each burst stands out of the quiet parts. So a jump of values that are
nowhere negative must stand out as a ratio too: by the log of the sums on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SIMULATED = 1000
_MEMORIES = (0.0, 0.9, 1.0)
"""The memories of the first-order processes that are simulated; 1 is a random walk."""
_MOST_DEVIATIONS = 5.0
"""In robust standard deviations: values are limited to this, so that no outlier makes a jump."""
_NORMAL = 1.4826
"""The standard deviation of normal values over their median deviation."""
_LEAST_SHARE = 0.01
"""The least share of the mean to add: a bin that hardly overlaps an interval has below 1."""


def standing_out(values: Floats, cuts: Sequence[int], least: int, rate: float) -> list[int]:
    """The `cuts` whose jump stands out in a column of `values` (n x d, none constant).

    `least` is the smallest number of values on either side that a jump is taken from; `rate` the
    probability that any place of a series without changes stands out.
    """
    if not cuts:
        return []
    n, d = values.shape
    own = _limited(values)
    counted = (values >= 0).all(axis=0)
    found: set[int] = set()
    for width, limit in _limits(_rounded(n), least, rate / d):
        large = _exceed(_sizes(own, width), limit)
        large[:, counted] &= _exceed(_ratios(values[:, counted], width), limit)
        inside = [cut for cut in cuts if width <= cut <= n - width]
        found |= {cut for cut in inside if large[cut - width].any()}
    return sorted(found)


def _exceed(sizes: Floats, limit: float) -> NDArray[np.bool_]:
    return np.asarray(sizes > limit * np.median(sizes, axis=0), dtype=np.bool_)


def _rounded(n: int) -> int:
    """`n` rounded down to three binary digits, on which the limits hardly depend: each is simulated
    once."""
    shift = max(n.bit_length() - 3, 0) if n >= 16 else 0
    return n >> shift << shift


def _limited(values: Floats) -> Floats:
    """Values without outliers; values of which most are equal stay as they are."""
    centre = np.median(values, axis=0)
    deviation = _NORMAL * np.median(np.abs(values - centre), axis=0)
    most = np.where(deviation > 0, _MOST_DEVIATIONS * deviation, np.inf)
    return np.asarray(np.clip(values, centre - most, centre + most), dtype=np.float64)


def _widths(n: int, least: int) -> list[int]:
    """Widths from the smallest on, each twice the one before, up to an eighth of the series."""
    return [
        least << power for power in range(n.bit_length()) if power == 0 or least << power <= n // 8
    ]


def _sizes(values: Floats, width: int) -> Floats:
    """The size of the jump at each place but the first and last `width`, less the median jump."""
    return _between(_moving_sums(values, width), width)


def _ratios(values: Floats, width: int) -> Floats:
    """The same jumps for the logs of the sums, with about one count added, because a sum may be
    0."""
    one = np.where(values > 0, values, np.inf).min(axis=0)
    added = np.maximum(one, _LEAST_SHARE * width * values.mean(axis=0))
    # As a difference of sums, a sum of zeros is not exactly zero.
    return _between(np.log(np.maximum(_moving_sums(values, width), 0.0) + added), width)


def _moving_sums(values: Floats, width: int) -> Floats:
    sums = np.cumsum(np.vstack([np.zeros_like(values[:1]), values]), axis=0)
    return np.asarray(sums[width:] - sums[:-width], dtype=np.float64)


def _between(sums: Floats, width: int) -> Floats:
    jumps = sums[width:] - sums[:-width]
    return np.asarray(np.abs(jumps - np.median(jumps, axis=0)), dtype=np.float64)


@cache
def _limits(n: int, least: int, rate: float) -> tuple[tuple[int, float], ...]:
    """Each width, and which multiple of the median jump the largest may be.

    The limits are equally probable for each width, and together exceeded with the probability
    `rate`.
    """
    widths = _widths(n, least)
    random = np.random.default_rng(0)
    limits = []
    for memory in _MEMORIES:
        simulated = random.normal(size=(n, _SIMULATED))
        if memory < 1.0:
            simulated[0] /= math.sqrt(1.0 - memory**2)
        for at in range(1, n):
            simulated[at] += memory * simulated[at - 1]
        sizes = [_sizes(simulated, width) for width in widths]
        largest = np.array([one.max(axis=0) / np.median(one, axis=0) for one in sizes])
        ranks = largest.argsort(axis=1).argsort(axis=1).max(axis=0)
        depth = int(np.quantile(ranks, 1.0 - rate, method="higher"))
        limits.append(np.sort(largest, axis=1)[:, depth])
    return tuple(zip(widths, np.max(limits, axis=0).tolist(), strict=True))
