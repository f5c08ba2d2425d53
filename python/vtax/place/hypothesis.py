"""What predicts how sensitive a load is to the speed of the service domain, and how well.

The paper's hypothesis (section 3.2): a Combined Usage above 100 % goes with low sensitivity. It is
tested as a rank correlation over pairs of environment and load, beside rival predictors.

The interval of Spearman's correlation is Bonett and Wright's ("Sample size requirements for
estimating Pearson, Kendall and Spearman correlations", Psychometrika 2000): Fisher's z with the
variance (1 + r²/2) / (n - 3); by simulation it covers in 94 to 96 % from n = 12 on. Pairs of one
environment or one load are not independent, which the interval ignores: it is rather too narrow.

The predictor is the one whose interval lies farthest from zero, with the error divided among the
predictors that were tried (Bonferroni), and only where a straight line through it predicts pairs
that were left out better than the mean of the others does. Otherwise there is no predictor, and
what is known of a load that was not measured is between which elasticities the measured ones lie.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vtax.core.statistics.statistics import CONFIDENCE, Floats, student_t
from vtax.place.record import Answer, PlaceHypothesis, PlaceLoad, Predictor

HYPOTHESIS = "combined usage"
LEAST_PAIRS = 12
"""Fewer pairs answer nothing: at 12, an interval about no correlation is already 1.1 wide."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's rank correlation with its interval."""

    value: float
    low: float
    high: float

    @property
    def strength(self) -> float:
        """The smallest size that the interval allows; 0: there may be no correlation."""
        return max(self.low, -self.high, 0.0)


@dataclass(frozen=True, slots=True)
class Spread:
    """Elasticities of the measured pairs: how many, their median, and where 95 % of others lie."""

    n: int
    median: float
    low: float
    high: float


def hypothesis(loads: Sequence[PlaceLoad]) -> PlaceHypothesis:
    """The paper's hypothesis, over the loads that have an elasticity."""
    return _tested(HYPOTHESIS, loads)


def rivals(loads: Sequence[PlaceLoad]) -> tuple[PlaceHypothesis, ...]:
    """The answers for the other predictors."""
    return tuple(_tested(name, loads) for name in _names(loads) if name != HYPOTHESIS)


def predictor(loads: Sequence[PlaceLoad]) -> Predictor | None:
    """The best predictor, if any predicts anything."""
    tried = [(name, *pairs(name, loads)) for name in _names(loads)]
    tried = [each for each in tried if each[1].size >= LEAST_PAIRS]
    confidence = 1.0 - (1.0 - CONFIDENCE) / max(len(tried), 1)
    ranked = [
        (found.strength, name, x, y)
        for name, x, y in tried
        if (found := spearman(x, y, confidence))
    ]
    for strength, name, x, y in sorted(ranked, key=lambda each: -each[0]):
        fitted = fit(name, x, y)
        if strength > 0 and fitted.leave_one_out_error < fitted.mean_error:
            return fitted
    return None


def spread(loads: Sequence[PlaceLoad]) -> Spread | None:
    """Between which elasticities 95 % of further pairs lie, by order statistics.

    With n pairs, another of their kind lies between the k-th smallest and the k-th largest in
    n + 1 - 2k of n + 1 cases, whatever their distribution (Wilks, "Determination of sample sizes
    for setting tolerance limits", Annals of Mathematical Statistics 1941). Noise of the
    measurements widens it. None: fewer than 39 pairs, of which no two are 95 % apart.
    """
    found = sorted(each.elasticity for each in loads if each.elasticity is not None)
    n = len(found)
    # The tolerance keeps 1 / 40 of 40 from being less than 1.
    k = math.floor((1.0 - CONFIDENCE) / 2 * (n + 1) + 1e-9)
    if k < 1:
        return None
    return Spread(n, statistics.median(found), found[k - 1], found[n - k])


def predicted(by: Predictor, value: float) -> tuple[float, float, float] | None:
    """Elasticity of a load with that value of the predictor, and its 95 % prediction interval.

    None: the value lies outside what was measured.
    """
    if not by.least <= value <= by.most:
        return None
    centre = by.intercept + by.slope * value
    leverage = 1.0 + 1.0 / by.n + (value - by.mean) ** 2 / by.sum_of_squares
    half = student_t(CONFIDENCE, by.n - 2) * by.residual * math.sqrt(leverage)
    return centre, centre - half, centre + half


def pairs(name: str, loads: Sequence[PlaceLoad]) -> tuple[Floats, Floats]:
    """Values of the predictor and elasticities of the loads that have both; shape (n,) each."""
    found = [
        (value, load.elasticity)
        for load in loads
        if load.elasticity is not None and (value := load.at_full_speed.get(name)) is not None
    ]
    return np.array([x for x, _ in found]), np.array([y for _, y in found])


def spearman(x: Floats, y: Floats, confidence: float = CONFIDENCE) -> Correlation | None:
    """The rank correlation of at least four pairs; None where one side has no two different
    values."""
    n = x.size
    if n < 4 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    # special and not stats: importing scipy.stats takes most of a second.
    from scipy.special import ndtri

    r = float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])
    # A perfect order is lowered by half of one exchange of neighbours: z would be infinite.
    bound = 1.0 - 6.0 / (n * (n**2 - 1))
    inside = min(max(r, -bound), bound)
    half = float(ndtri(0.5 + confidence / 2)) * math.sqrt((1 + inside**2 / 2) / (n - 3))
    z = math.atanh(inside)
    return Correlation(r, min(math.tanh(z - half), r), max(math.tanh(z + half), r))


def fit(name: str, x: Floats, y: Floats) -> Predictor:
    """A straight line by least squares through at least four pairs, two of them different in x.

    The errors of pairs that are left out come from the residuals and the leverages (Allen, "The
    relationship between variable selection and data augmentation and a method for prediction",
    Technometrics 1974).
    """
    n, mean = x.size, float(x.mean())
    squares = float(((x - mean) ** 2).sum())
    slope = float(((x - mean) * y).sum()) / squares
    intercept = float(y.mean()) - slope * mean
    residuals = y - intercept - slope * x
    leverages = 1.0 / n + (x - mean) ** 2 / squares
    left_out = residuals / np.maximum(1.0 - leverages, 1e-9)
    from_mean = (y - y.mean()) * n / (n - 1)
    return Predictor(
        name=name,
        intercept=intercept,
        slope=slope,
        n=n,
        mean=mean,
        sum_of_squares=squares,
        residual=math.sqrt(float((residuals**2).sum()) / (n - 2)),
        least=float(x.min()),
        most=float(x.max()),
        leave_one_out_error=math.sqrt(float((left_out**2).mean())),
        mean_error=math.sqrt(float((from_mean**2).mean())),
    )


def _tested(name: str, loads: Sequence[PlaceLoad]) -> PlaceHypothesis:
    x, y = pairs(name, loads)
    found = spearman(x, y) if x.size >= LEAST_PAIRS else None
    answer, reason = _answer(name, int(x.size), found)
    return PlaceHypothesis(
        predictor=name,
        rank_correlation=found.value if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        n=x.size,
        answer=answer,
        reason=reason,
    )


def _answer(name: str, n: int, found: Correlation | None) -> tuple[Answer, str]:
    """Supported: more of it goes with less sensitivity, which is the hypothesis of the paper."""
    if n < LEAST_PAIRS:
        return "not known", f"{n} pairs of environment and load, an answer takes {LEAST_PAIRS}"
    if found is None:
        return "not known", "all pairs have the same value"
    if found.high < 0:
        return "supported", f"more {name} goes with less sensitivity"
    if found.low > 0:
        return "contradicted", f"more {name} goes with more sensitivity"
    return "open", "the interval holds 0"


def _names(loads: Sequence[PlaceLoad]) -> list[str]:
    return list(dict.fromkeys(name for load in loads for name in load.at_full_speed))


def _ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[inverse], dtype=np.float64)
