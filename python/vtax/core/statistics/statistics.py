"""Medians, how far they can be trusted, and trends; pure functions, nothing about vtax.

The interval. A benchmark gives few values (five by default), skewed, with outliers, and sometimes
grouped by boot. The plain percentile bootstrap is too narrow there: for the median of seven values
its 95 % interval covers the true one in 87 %. So the bootstrap is asked only for what it estimates
well, the standard error of the log of the median, and the interval is the estimate plus and minus
as many standard errors as Student's t asks for. Coverage by simulation, 95 % wanted: 95 to 99 %
from n = 3 on, 91 to 96 % at n = 2. Ratios do not come from here but from
vtax.core.statistics.rounds.

Sources: Efron & Tibshirani 1993, chapters 12 and 13 (bootstrap standard error, t interval);
Hesterberg 2015 (bootstrap intervals are too narrow for small n); Kalibera & Jones 2013 (resampling
by level, intervals on ratios); Kish 1965 (effective sample size of grouped data); Welch 1947 and
Satterthwaite 1946 (degrees of freedom of a difference); Kendall 1975 (trend).
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vtax.core.formats.model import Better

CONFIDENCE = 0.95
RESAMPLES = 2000
"""The standard error of a standard error from this many resamples is 1.6 %."""

ALL_PAIRS = 500
"""The most values of which the slopes between all pairs are compared."""
_BATCH_VALUES = 1 << 18

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Description:
    """What a sample says without any model."""

    n: int
    best: float
    """Minimum of times, maximum of rates: as the paper on HPC Challenge in virtualized environments
    combines (section 3.2)."""
    median: float
    stdev: float | None
    """With divisor n - 1; None for n < 2."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated quantity on a scale on which its error is about symmetric."""

    value: float
    error: float
    """Standard error."""
    df: float
    """Degrees of freedom that the standard error was estimated with."""
    bias: float = 0.0
    """How far the value may be off, however many runs there are."""

    def half_width(self, confidence: float = CONFIDENCE) -> float:
        """Half the width of the two-sided interval."""
        return student_t(confidence, self.df) * self.error + self.bias

    def __sub__(self, other: Estimate) -> Estimate:
        """The difference of two independent estimates (Welch-Satterthwaite)."""
        ours, theirs = self.error**2, other.error**2
        error = math.sqrt(ours + theirs)
        # A share of the variance cannot overflow or divide zero by zero, as the variances' squares
        # can.
        share = ours / (ours + theirs) if ours + theirs > 0 else 0.5
        df = 1.0 / (share**2 / self.df + (1.0 - share) ** 2 / other.df)
        return Estimate(self.value - other.value, error, df, self.bias + other.bias)

    def __neg__(self) -> Estimate:
        return Estimate(-self.value, self.error, self.df, self.bias)


def describe(values: Sequence[float], better: Better) -> Description:
    """Best, median and standard deviation of at least one value."""
    best = min(values) if better == "lower" else max(values)
    scaled, exponent = scaled_down(values)
    stdev = float(scaled.std(ddof=1)) if scaled.size > 1 else None
    if stdev is not None:
        stdev = _scaled_up(stdev, exponent)
    return Description(scaled.size, float(best), median(values), stdev)


def scaled_down(values: Sequence[float] | Floats) -> tuple[Floats, int]:
    """Values over a power of two, below 1, and its exponent: their sums and squares stay floats.

    Only values too small to matter beside the others are rounded.
    """
    array = np.asarray(values, dtype=np.float64)
    exponent = math.frexp(float(np.abs(array).max()))[1]
    # In two steps: the power itself need not be a float.
    half = exponent // 2
    return np.ldexp(np.ldexp(array, -half), half - exponent), exponent


def _scaled_up(value: float, exponent: int) -> float:
    """The value times two to the exponent, or the float next to it."""
    if math.frexp(value)[1] + exponent > sys.float_info.max_exp:
        return math.copysign(sys.float_info.max, value)
    return math.ldexp(value, exponent)


def median(values: Sequence[float] | Floats) -> float:
    """The median, also where the two values in the middle have no finite sum."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    low, high = float(ordered[(ordered.size - 1) // 2]), float(ordered[ordered.size // 2])
    return (low + high) / 2 if math.isfinite(low + high) else low / 2 + high / 2


def median_estimate(
    values: Sequence[float], boots: Sequence[int], seed: int, *, log: bool
) -> Estimate | None:
    """The median (with `log`, its natural logarithm) and its bootstrap standard error.

    `boots` has the group of each value: groups are resampled first, then values within them.
    None for fewer than two values. With `log` all values must be above zero.
    """
    if len(values) < 2:
        return None
    scaled, exponent = scaled_down(values)
    groups = _groups(scaled, np.asarray(boots))
    medians = _resampled_medians(groups, np.random.default_rng(seed))
    centre = np.median(scaled)
    if log:
        # A value that became zero beside one a float's whole range away is no less than the least.
        whole = np.ldexp(np.concatenate([medians, [centre], scaled]), exponent)
        logs = np.log(np.maximum(whole, min(values)))
        medians, centre, scaled = logs[:RESAMPLES], logs[RESAMPLES], logs[RESAMPLES + 1 :]
    # About the centre: equal medians then have an error of exactly 0, without rounding.
    error = float((medians - centre).std())
    freedom = max(_effective_size(_groups(scaled, np.asarray(boots))) - 1.0, 1.0)
    if log:
        return Estimate(float(centre), error, freedom)
    return Estimate(math.ldexp(float(centre), exponent), math.ldexp(error, exponent), freedom)


def median_interval(estimate: Estimate | None, *, log: bool) -> tuple[float, float] | None:
    """The 95 % interval, in the values' unit."""
    if estimate is None:
        return None
    half = estimate.half_width()
    low, high = estimate.value - half, estimate.value + half
    if log:
        return bounded_exp(low), bounded_exp(high)
    return max(low, -sys.float_info.max), min(high, sys.float_info.max)


def bounded_exp(value: float) -> float:
    """e to the power of `value`, at most 1e304: the interval of two values may go beyond every
    float."""
    return math.exp(min(value, 700.0))


def from_interval(value: float, low: float, high: float, runs: int) -> Estimate:
    """The log of a value above zero that is known with a 95 % interval from `runs` runs.

    The wider side counts: an interval by order statistics need not be symmetric.
    """
    df = max(runs - 1.0, 1.0)
    half = max(math.log(high / value), math.log(value / low), 0.0)
    return Estimate(math.log(value), half / student_t(CONFIDENCE, df), df)


def student_t(confidence: float, df: float) -> float:
    """The two-sided quantile of Student's t."""
    # special and not stats: importing scipy.stats takes most of a second.
    from scipy.special import stdtrit

    return float(stdtrit(df, 0.5 + confidence / 2.0))


def share_interval(count: int, total: int) -> tuple[float | None, float | None]:
    """Clopper and Pearson's exact 95 % interval of a share, in percent."""
    if total == 0:
        return None, None
    from scipy.special import betaincinv

    low = 0.0 if count == 0 else float(betaincinv(count, total - count + 1, 0.025))
    high = 1.0 if count == total else float(betaincinv(count + 1, total - count, 0.975))
    return 100 * low, 100 * high


def derived_seed(seed: int, *names: str) -> int:
    """A different seed for each name, so that adding one metric changes no other's interval."""
    text = "\0".join((str(seed), *names)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class Trend:
    """Whether values rise or fall in their order."""

    p: float
    """Probability of a trend at least as clear, in either direction, in a random order."""
    change: float
    """From the first position to the last, by the median slope (Theil-Sen), in the values' unit."""


def trend(values: Sequence[float]) -> Trend:
    """Mann-Kendall's test with its exact distribution, for at least two values in order.

    Ties make it conservative: the distribution is that of values without ties.
    """
    array, exponent = scaled_down(values)
    n = array.size
    score = sum(int(np.sign(array[at + 1 :] - array[at]).sum()) for at in range(n - 1))
    change = _median_slope(array) * (n - 1)
    return Trend(_kendall_p(n, abs(score)), _scaled_up(change, exponent))


def _median_slope(array: Floats) -> float:
    """The median of all pairs' slopes. With many values, only pairs half the series apart count,
    which need no more memory than the values (Theil's incomplete method, 1950)."""
    if array.size > ALL_PAIRS:
        apart = array.size // 2
        return float(np.median((array[apart:] - array[:-apart]) / apart))
    first, second = np.triu_indices(array.size, k=1)
    return float(np.median((array[second] - array[first]) / (second - first)))


def _groups(array: Floats, boots: NDArray[np.int64]) -> list[Floats]:
    return [array[boots == boot] for boot in np.unique(boots)]


def _resampled_medians(groups: Sequence[Floats], random: np.random.Generator) -> Floats:
    """Medians of `RESAMPLES` samples drawn with replacement, by group and then within."""
    sizes = np.array([group.size for group in groups])
    padded = np.zeros((len(groups), int(sizes.max())))
    for row, group in zip(padded, groups, strict=True):
        row[: group.size] = group
    batch = max(1, _BATCH_VALUES // padded.size)
    parts = []
    for at in range(0, RESAMPLES, batch):
        chosen = random.integers(0, len(groups), (min(batch, RESAMPLES - at), len(groups)))
        parts.append(_drawn_medians(padded, sizes, chosen, random))
    return np.concatenate(parts)


def _drawn_medians(
    padded: Floats,
    sizes: NDArray[np.int64],
    chosen: NDArray[np.int64],
    random: np.random.Generator,
) -> Floats:
    """The medians of one sample for each row of `chosen`, which names its groups."""
    counts = sizes[chosen][:, :, None]
    indices = random.random((*chosen.shape, padded.shape[1])) * counts
    drawn = padded[chosen[:, :, None], indices.astype(np.int64)]
    if (sizes == sizes[0]).all():
        return np.asarray(np.median(drawn.reshape(len(chosen), -1), axis=1), dtype=np.float64)
    beyond = np.arange(padded.shape[1]) >= counts
    drawn = np.where(beyond, np.nan, drawn).reshape(len(chosen), -1)
    return np.asarray(np.nanmedian(drawn, axis=1), dtype=np.float64)


def _effective_size(groups: Sequence[Floats]) -> float:
    """How many independent values the grouped ones are worth (Kish's design effect).

    The result lies between the number of groups, when values in a group are all alike, and the
    number of values, when the group says nothing. One group alone cannot tell, and counts by its
    values.
    """
    sizes = np.array([group.size for group in groups], dtype=np.float64)
    total = float(sizes.sum())
    if len(groups) == 1 or len(groups) == total:
        return total
    means = np.array([group.mean() for group in groups])
    grand = float((sizes * means).sum() / total)
    between = float((sizes * (means - grand) ** 2).sum() / (len(groups) - 1))
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    within /= total - len(groups)
    # The one-way analysis of variance for groups of unequal size.
    size = (total - float((sizes**2).sum()) / total) / (len(groups) - 1)
    scale = between + (size - 1.0) * within
    alike = min(max((between - within) / scale, 0.0), 1.0) if scale > 0 else 0.0
    return total / (1.0 + (size - 1.0) * alike)


def _kendall_p(n: int, score: int) -> float:
    """P(|S| >= score) for n values in random order: S = pairs - 2 x inversions."""
    pairs = n * (n - 1) // 2
    if n > 60:
        return _kendall_p_normal(n, score)
    # Share of the permutations with k inversions, built up value by value.
    shares = np.ones(1)
    for count in range(2, n + 1):
        shares = np.convolve(shares, np.full(count, 1.0 / count))
    scores = pairs - 2 * np.arange(pairs + 1)
    return float(min(1.0, shares[np.abs(scores) >= score].sum()))


def _kendall_p_normal(n: int, score: int) -> float:
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18.0)
    return min(1.0, math.erfc(max(score - 1, 0) / deviation / math.sqrt(2.0)))
