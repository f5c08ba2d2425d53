"""Where a run changes its behaviour, and what it does between.

Change points of the mean by PELT (Killick, Fearnhead & Eckley 2012), in the implementation of the
package `ruptures`, after two steps that make it safe for counts. Values are replaced by the normal
scores of their ranks, so that an outlier weighs no more than the largest value of a normal sample;
and the penalty grows with the long-run variance, because a series that remembers its past wanders
without changing (Chakar, Lebarbier, Lévy-Leduc & Robin 2017).

That estimate of the variance knows one shape of memory, so each change must also stand out of how
the series wanders elsewhere (jumps.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vtax.core.recorder.intervals import Recording, series
from vtax.core.recorder.ways import By
from vtax.record.timeline.analysis import Line, Timeline
from vtax.record.timeline.jumps import standing_out

Floats = NDArray[np.float64]

MIN_BINS = 5
"""A phase has at least this many bins; fewer do not distinguish a phase from noise."""
MOST_BINS = 1000
FALSE_RATE = 0.05
"""The probability of finding any change in noise stays below it."""
_MAX_RHO = 0.99
_KEPT = 0.9
"""Share of the squared differences that count, the smallest ones: changes are among the rest."""
_MEAN_OF_KEPT = 0.623
"""The mean of the smallest 90 % of squares of standard normal variables: 1 - 2 q phi(q) / 0.9, q =
1.645."""
_MOST_DEVIATIONS = 3.0
"""How far a rare value among many equal ones may stand out, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the axis without a detected change."""

    start: float
    """Where the phase begins, in units of the timeline's axis."""
    end: float
    bins: int
    means: tuple[float, ...]
    """The mean rate of each line over the phase's bins."""


def phases(timeline: Timeline, lines: Sequence[Line]) -> tuple[Phase, ...]:
    """Phases common to `lines`; none when the axis is too short.

    A line that was nowhere measured takes no part, and its means are NaN.
    """
    values = np.column_stack([line.values for line in lines])
    measured = np.isfinite(values).any(axis=0)
    if not measured.any():
        return ()
    known = np.flatnonzero(np.isfinite(values[:, measured]).all(axis=1))
    if known.size < 2 * MIN_BINS:
        return ()
    cuts = changes(values[known][:, measured])
    bounds = [0, *cuts, int(known.size)]
    found = []
    for first, last in pairwise(bounds):
        own = known[first:last]
        start = 0 if first == 0 else int(own[0])
        means = tuple(float(mean) for mean in values[own].mean(axis=0))
        end = int(own[-1]) + 1
        found.append(
            Phase(float(timeline.edges[start]), float(timeline.edges[end]), own.size, means)
        )
    return tuple(found)


def phase_bins(recordings: Sequence[Recording], by: By) -> int:
    """How finely to look for phases: about two rows a bin, so that bins differ little in rows."""
    rows = [part.height for recording in recordings for _, part in series(recording, by)]
    return min(max(max(rows, default=0) // 2, 2 * MIN_BINS), MOST_BINS)


def changes(values: Floats) -> list[int]:
    """Positions at which a new phase begins in `values` (n x d, no gaps), in order."""
    varying = values[:, (values != values[0]).any(axis=0)]
    n, d = varying.shape
    if d == 0 or n < 2 * MIN_BINS:
        return []
    return standing_out(varying, candidates(varying), MIN_BINS, FALSE_RATE)


def candidates(values: Floats) -> list[int]:
    """Where the ranks of `values` (n x d, none constant) change; the same for any rising function
    of them."""
    from ruptures import KernelCPD

    scores = _normal_scores(values)
    scores /= np.sqrt([_long_run_variance(column) for column in scores.T])
    detector = KernelCPD(kernel="linear", min_size=MIN_BINS).fit(scores)
    return [int(position) for position in detector.predict(pen=penalty(*values.shape))[:-1]]


def penalty(n: int, d: int) -> float:
    """How much of the variance of `d` columns a change must explain to be believed.

    The bound of Laurent & Massart (2000, lemma 1) on a chi-squared variable of d degrees of
    freedom, exceeded with the probability `FALSE_RATE` / n.
    """
    depth = math.log(n / FALSE_RATE)
    return d + 2.0 * math.sqrt(d * depth) + 2.0 * depth


def _normal_scores(values: Floats) -> Floats:
    """The normal quantile of each value's rank in its column; ties share their mean rank."""
    import polars as pl
    from scipy.special import ndtri

    n = values.shape[0]
    ranks = [pl.Series(column).rank("average").to_numpy() for column in values.T]
    return np.asarray(ndtri((np.column_stack(ranks) - 0.5) / n), dtype=np.float64)


def _long_run_variance(scores: Floats) -> float:
    """n times the variance of the mean of n values between changes.

    It comes from trimmed means of squared differences at lags 1 and 2, which few changes cannot
    move. With medians instead, this is the estimator of Chakar et al., which varies more.

    Where most neighbours are equal (rare events) the noise is taken as white, with the variance
    that isolated values but not steps give to products of neighbouring differences. The variance is
    raised where a value would otherwise stand out by over three deviations, or two rare values
    would look like a phase.
    """
    steps = np.diff(scores)
    if np.median(np.abs(steps)) == 0.0:
        farthest = float(np.abs(scores - np.median(scores)).max())
        return max(float(-(steps[1:] * steps[:-1]).mean()), (farthest / _MOST_DEVIATIONS) ** 2)
    first, second = _half_square(steps), _half_square(scores[2:] - scores[:-2])
    rho = min(max(second / first - 1.0, 0.0), _MAX_RHO)
    return first * (1.0 + rho) / (1.0 - rho) ** 2


def _half_square(steps: Floats) -> float:
    """Half the mean square of normal differences with a few large ones among them."""
    squares = np.sort(steps**2)
    kept = squares[: math.ceil(_KEPT * squares.size)]
    return float(kept.mean()) / _MEAN_OF_KEPT / 2.0
