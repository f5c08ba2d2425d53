"""How many rounds would tell a difference from none, given how much rounds disagreed so far.

A difference is seen when the 95 % interval of `rounds.log_ratio` leaves out 0. The power of that is
the noncentral t distribution's, with the estimator that vtax takes for that many rounds: the mean
below `TRIMMED_FROM`, then the trimmed mean with Yuen's error. What the rounds so far leave open
about their own spread makes the range: its chi-square distribution (Student 1908).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vtax.core.statistics.rounds import TRIM, TRIMMED_FROM
from vtax.core.statistics.statistics import CONFIDENCE, Floats
from vtax.core.statistics.verdicts import POWER

MOST = 10_000
"""Rounds; as many as `--reps` takes."""
LEAST = 3
"""With fewer rounds, nothing is said: the range would be of 1 to 600."""
EFFICIENCY = 0.874
"""Variance of the mean over that of the trimmed mean, for normal values (Wilcox 2012, section
3.3)."""
_TAIL = 0.1
"""The share of cases that the range leaves out at either end."""
_COUNTS = np.unique(np.concatenate([np.arange(2, 64), np.geomspace(64, MOST, 250).round()]))


@dataclass(frozen=True, slots=True)
class Needed:
    """Rounds after which a difference would be seen with a power of 80 %; None: over `MOST`."""

    rounds: int | None
    low: int | None
    high: int | None
    """With the ends of the range that has the true number in four of five cases."""


def rounds_needed(
    differences: Sequence[float],
    effect: float,
    *,
    bias: float = 0.0,
    each: float = 1.0,
    places: bool = False,
) -> Needed | None:
    """What it takes to see `effect`, a log ratio above 0; None for fewer than `LEAST` differences.

    `differences` are log ratios, one of each round or, where machines were started several times,
    of each start, which has `each` rounds. `bias` is how far the ratio may be off, however many
    there are. With `places`, their difference has cost a degree of freedom.
    """
    count = len(differences)
    if count < LEAST + places:
        return None
    from scipy.special import chdtri

    freedom = np.where(_COUNTS < TRIMMED_FROM, _COUNTS, _COUNTS - 2 * np.floor(TRIM * _COUNTS))
    freedom = freedom - 1.0 - places
    spread = np.where(_COUNTS < TRIMMED_FROM, *_spreads(differences, places))
    known = float(count - 1 - places)
    if count >= TRIMMED_FROM:
        known -= 2 * math.floor(TRIM * count)
    scales = (1.0, *(math.sqrt(known / chdtri(known, tail)) for tail in (_TAIL, 1 - _TAIL)))
    return Needed(*(_first(effect - bias, freedom, scale * spread, each) for scale in scales))


def _spreads(differences: Sequence[float], places: bool) -> tuple[float, float]:
    """What the errors of mean and trimmed mean are, times the root of the number of rounds."""
    values = np.sort(np.asarray(differences, dtype=np.float64))
    count = values.size
    deviation = float(values.std(ddof=1 + places))
    if count < TRIMMED_FROM:
        return deviation, deviation / math.sqrt(EFFICIENCY)
    cut = int(TRIM * count)
    winsorized = np.clip(values, values[cut], values[-cut - 1])
    return deviation, float(winsorized.std(ddof=1 + places)) / (1.0 - 2.0 * cut / count)


def _first(effect: float, freedom: Floats, spread: Floats, each: float) -> int | None:
    """The first number of rounds with enough power."""
    from scipy.special import nctdtr, stdtrit

    if effect <= 0:
        return None
    df = np.maximum(freedom, 1.0)
    with np.errstate(divide="ignore"):
        shift = np.minimum(effect * np.sqrt(_COUNTS) / spread, 30.0)
    power = 1.0 - nctdtr(df, shift, stdtrit(df, 0.5 + CONFIDENCE / 2.0))
    enough = (power >= POWER) & (freedom >= 1)
    return math.ceil(each * _COUNTS[enough.argmax()]) if enough.any() else None
