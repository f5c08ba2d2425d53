"""The ratio of two variants' means: what many runs cost together, slow ones included.

The trimmed ratio of vtax.core.statistics.rounds answers for the typical run, and trims away a
disturbance of few runs. Whoever runs a program often pays for those runs too. So the mean of all
values is compared as well, each with its weight. The error comes from how much the rounds disagree
(the linearized ratio estimator of Cochran 1977, section 6.3), with rounds, or boots where there are
several, as blocks: what changes slowly falls out. No interval covers what no run showed;
`unseen_percent` says how much that may be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vtax.core.formats.model import Better
from vtax.core.statistics.coarse import widened
from vtax.core.statistics.rounds import Run, by_round
from vtax.core.statistics.statistics import Estimate, bounded_exp, median, scaled_down, student_t

TAIL_FROM = 20
"""With fewer values on either side, the 95th percentile is simply the largest."""
_CLEAR_GAP = 4.0
"""The least gap in standard deviations of the larger group; for few values as many as Student's t
asks for at `_SURE`. docs/statistics.md has how often noise has such a gap."""
_SURE = 0.9995
_LEAST_GAP = math.log(1.05)
_STATES_FROM = 8


def log_ratio_of_means(own: Sequence[Run], base: Sequence[Run]) -> Estimate | None:
    """The log of mean(own) / mean(base), from the rounds in which both ran.

    All values must be above zero. None for fewer than two blocks.
    """
    ours, theirs = by_round(own), by_round(base)
    common = sorted(ours.keys() & theirs.keys())
    boots = [(ours[each][0].boot, theirs[each][0].boot) for each in common]
    blocks = {boot: place for place, boot in enumerate(dict.fromkeys(boots))}
    place = [blocks[boot] for boot in boots] if len(blocks) > 1 else range(len(common))
    count = len(blocks) if len(blocks) > 1 else len(common)
    if count < 2:
        return None
    (a, power_a), (b, power_b) = (
        scaled_down(_means([side[each] for each in common])) for side in (ours, theirs)
    )
    weights = np.array([1 / (1 / len(ours[each]) + 1 / len(theirs[each])) for each in common])
    weights /= weights.sum()
    mean_a, mean_b = float(weights @ a), float(weights @ b)
    residuals = np.bincount(place, weights * (a / mean_a - b / mean_b), minlength=count)
    error = math.sqrt(float((residuals**2).sum()) * count / (count - 1))
    value = math.log(mean_a) - math.log(mean_b) + (power_a - power_b) * math.log(2)
    found = Estimate(value, error, count - 1)
    return widened(found, [run.value for run in own], [run.value for run in base])


def _means(rounds: Sequence[Sequence[Run]]) -> list[float]:
    return [_mean([run.value for run in runs]) for runs in rounds]


def _mean(values: Sequence[float]) -> float:
    if len(values) == 1:
        return values[0]
    scaled, exponent = scaled_down(values)
    return math.ldexp(float(scaled.mean()), exponent)


def tail_ratio(own: Sequence[float], base: Sequence[float], better: Better) -> float | None:
    """The ratio of the values that 95 % of runs do not exceed; None for too few values.

    For a rate, the values that 95 % of runs reach.
    """
    if min(len(own), len(base)) < TAIL_FROM:
        return None
    share = 0.95 if better == "lower" else 0.05
    ours, theirs = (math.log(np.quantile(side, share)) for side in (own, base))
    return bounded_exp(ours - theirs)


def unseen_percent(n: int) -> float:
    """The largest share of runs of which none is seen in n runs in 5 % of campaigns."""
    return 100.0 * (1.0 - math.pow(0.05, 1.0 / n))


def mixture(values: Sequence[float]) -> str | None:
    """`27 of 30 runs at 1.00x, 3 at 2.0x`, where values fall into two groups with a gap between.

    The gap must be several standard deviations of the larger group. All values must be above zero.
    """
    if len(values) < _STATES_FROM:
        return None
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    logs = np.log(ordered)
    cut = int(np.argmax(np.diff(logs))) + 1
    gap = float(logs[cut] - logs[cut - 1])
    many, few = (slice(0, cut), slice(cut, None))
    if cut < ordered.size / 2:
        many, few = few, many
    spread = float(logs[many].std(ddof=1))
    if gap <= max(_LEAST_GAP, max(_CLEAR_GAP, student_t(_SURE, logs[many].size - 1)) * spread):
        return None
    times = bounded_exp(math.log(median(ordered[few])) - math.log(median(ordered[many])))
    return (
        f"{ordered[many].size} of {ordered.size} runs at 1.00x, {ordered[few].size} at {times:.2g}x"
    )
