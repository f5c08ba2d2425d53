"""How many rounds would turn `inconclusive` into another verdict: a range, or none."""

from __future__ import annotations

import functools
import math

import numpy as np

from vtax.core.statistics.results import RepetitionsNeeded
from vtax.core.statistics.statistics import CONFIDENCE, Estimate, Floats
from vtax.core.statistics.verdicts import EQUIVALENCE_CONFIDENCE, edge

MOST = 1000
"""Rounds. What needs more is called not reachable."""
RANGE = 0.8
"""Coverage of the range; by simulation 75 to 90 % for noise without long memory."""
_DRAWS = 1000
_COUNTS = np.unique(np.geomspace(2, MOST, 150).round()).astype(np.float64)


def repetitions_needed(ratio: Estimate, margin_percent: float, rounds: int) -> RepetitionsNeeded:
    """A range of how many rounds in all would decide, from what `rounds` of them showed.

    The true ratio and its spread are not known but have a distribution, given the estimate
    (Fisher's fiducial distribution of mean and variance). Each draw from it needs as many rounds
    as bring its distance from the margin's edge into the half width; the range has the middle
    80 % of them.
    """
    shift, scale = _draws(ratio.df)
    spread = ratio.error * math.sqrt(rounds) * scale
    value = ratio.value + ratio.error * scale * shift
    distance = np.abs(np.abs(value) - edge(margin_percent)) - ratio.bias
    quantiles = np.where(
        (np.abs(value) < edge(margin_percent))[:, None],
        _quantiles(EQUIVALENCE_CONFIDENCE),
        _quantiles(CONFIDENCE),
    )
    half_widths = quantiles * spread[:, None] / np.sqrt(_COUNTS)
    enough = half_widths <= distance[:, None]
    needed = np.where(enough.any(axis=1), _COUNTS[enough.argmax(axis=1)], np.inf)
    low, middle, high = np.quantile(
        needed, [(1 - RANGE) / 2, 0.5, (1 + RANGE) / 2], method="inverted_cdf"
    )
    least = rounds + 1
    return RepetitionsNeeded(
        low=int(max(least, min(low, MOST))),
        high=int(max(least, high)) if high <= MOST else None,
        reachable=bool(middle <= MOST),
    )


def _draws(df: float) -> tuple[Floats, Floats]:
    """Standard normals, and true standard deviations relative to the estimated one."""
    random = np.random.default_rng(1)
    return random.standard_normal(_DRAWS), np.sqrt(df / random.chisquare(df, _DRAWS))


@functools.cache
def _quantiles(confidence: float) -> Floats:
    from scipy.special import stdtrit

    found: Floats = stdtrit(_COUNTS - 1.0, 0.5 + confidence / 2.0)
    return found
