"""The ratio of two variants from the rounds of a campaign, on the log scale.

A campaign runs every variant in each round, close together in time and in random order. What
changes slowly in the machine (neighbours, heat, drift) is in all runs of a round alike and falls
out of their difference. So the rounds are the blocks of a linear model, log value = variant +
round, and how much the differences disagree from round to round is its error: that holds for runs
that depend on each other within a round too. A variant may have several runs in a round, and none
in some rounds.

Where machines were started again in between, the rounds of one boot are one block: a boot that is
slow as a whole is then one observation and not many.

The estimator is fixed in advance by the number of rounds, never chosen by looking at the values:

- below `TRIMMED_FROM` rounds, least squares: the mean of the differences, each round weighted by
  its runs (for complete pairs the paired t interval on logs);
- from there on, the mean without the largest and smallest 20 % of the differences, with Yuen's
  standard error, which single disturbed runs do not move.

Sources: Box, Hunter & Hunter 2005, chapter 4 (blocks); Yuen 1974 and Wilcox 2012, sections 3.3.2
and 4.3 (trimmed means).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vtax.core.statistics.coarse import widened
from vtax.core.statistics.statistics import Estimate, Floats

TRIMMED_FROM = 10
"""With fewer rounds, 20 % are not two whole rounds at either end, and Student's t for what is left
is wider than for the mean."""
TRIM = 0.2
SIGN_DRAWS = 10_000
SIGNS_TO = 200
"""The most rounds for which signs are drawn."""


@dataclass(frozen=True, slots=True)
class Run:
    """One value of a metric."""

    round: int
    boot: int
    value: float
    place: str = ""
    """Where it ran, if its side had to change places with the other one."""


@dataclass(frozen=True, slots=True)
class _Block:
    """What both variants did in a round, or in the rounds of one boot."""

    differences: Floats
    """Log ratios of all pairs of runs."""
    weight: float
    """Inverse variance of the mean of `differences`, if all runs were equally noisy."""


def one_each(values: Sequence[float]) -> list[Run]:
    """One value for each round, all in one boot."""
    return [Run(number, 0, value) for number, value in enumerate(values)]


def log_ratio(own: Sequence[Run], base: Sequence[Run]) -> Estimate | None:
    """The log of own / base, from the rounds in which both ran.

    All values must be above zero. None for fewer than two such rounds.
    """
    blocks = _blocks(own, base)
    if len(blocks) < 2:
        return None
    values = ([run.value for run in side] for side in (own, base))
    return widened(_estimated(blocks), *values)


def of_rounds(differences: Sequence[float]) -> Estimate | None:
    """The mean of a difference of logs, one from each round; None for fewer than two rounds."""
    if len(differences) < 2:
        return None
    return _estimated([_Block(np.array([each]), 1.0) for each in differences])


def sign_flip_p(own: Sequence[Run], base: Sequence[Run], error: float) -> float | None:
    """The probability of a mean difference as large, were both sides the same thing.

    If they were, the random order within a round alone decides which side a value is on, and each
    round's difference is as likely with the other sign (Fisher 1935), whatever the noise. None
    where the probability could not be below `error` with so few signs or draws, and where it need
    not be drawn: with that many rounds Student's t is reliable.
    """
    blocks = _blocks(own, base)
    least = max(2.0 ** (1 - len(blocks)), 1.0 / (SIGN_DRAWS + 1))
    if least > error or len(blocks) > SIGNS_TO:
        return None
    means = np.array([block.differences.mean() for block in blocks])
    seen = abs(float(means.sum())) * (1 - 1e-12)
    signs = np.random.default_rng(0).integers(0, 2, (SIGN_DRAWS, means.size), dtype=np.int8)
    hits = int((np.abs((2.0 * signs - 1.0) @ means) >= seen).sum())
    return (1 + hits) / (SIGN_DRAWS + 1)


def block_means(own: Sequence[Run], base: Sequence[Run]) -> tuple[list[float], float]:
    """The mean log ratio of each block, at least one; and how many rounds a block has."""
    found = _blocks(own, base)
    rounds = len(by_round(own).keys() & by_round(base).keys())
    return [float(each.differences.mean()) for each in found], rounds / len(found)


def _blocks(own: Sequence[Run], base: Sequence[Run]) -> list[_Block]:
    ours, theirs = by_round(own), by_round(base)
    by_boot: dict[Hashable, list[_Block]] = {}
    for each in sorted(ours.keys() & theirs.keys()):
        boots = (ours[each][0].boot, theirs[each][0].boot)
        by_boot.setdefault(boots, []).append(_block(ours[each], theirs[each]))
    if len(by_boot) == 1:
        return next(iter(by_boot.values()))
    return [_merged(blocks) for blocks in by_boot.values()]


def by_round(runs: Sequence[Run]) -> Mapping[int, list[Run]]:
    """The runs of each round."""
    found: dict[int, list[Run]] = {}
    for run in runs:
        found.setdefault(run.round, []).append(run)
    return found


def _block(own: Sequence[Run], base: Sequence[Run]) -> _Block:
    ours, theirs = (np.log([run.value for run in runs]) for runs in (own, base))
    differences = np.subtract.outer(ours, theirs).ravel()
    return _Block(differences, 1.0 / (1.0 / len(own) + 1.0 / len(base)))


def _merged(blocks: Sequence[_Block]) -> _Block:
    differences = np.concatenate([block.differences for block in blocks])
    return _Block(differences, sum(block.weight for block in blocks))


def _estimated(blocks: Sequence[_Block]) -> Estimate:
    return _mean(blocks) if len(blocks) < TRIMMED_FROM else _trimmed(blocks)


def _mean(blocks: Sequence[_Block]) -> Estimate:
    means = np.array([block.differences.mean() for block in blocks])
    weights = np.array([block.weight for block in blocks])
    value = float((weights * means).sum() / weights.sum())
    freedom = len(blocks) - 1
    square = float((weights * (means - value) ** 2).sum() / freedom / weights.sum())
    return Estimate(value, math.sqrt(square), freedom)


def _trimmed(blocks: Sequence[_Block]) -> Estimate:
    """Every pair of runs counts, each round as much as any other.

    It takes pairs and not means of rounds: the difference of two runs with the same noise is
    symmetric, that of a run and a mean of runs is not, and trimming it would shift the ratio.
    """
    count = len(blocks)
    cut = int(TRIM * count)
    pooled = np.concatenate([block.differences for block in blocks])
    shares = np.concatenate(
        [np.full(each.differences.size, 1 / count / each.differences.size) for each in blocks]
    )
    order = np.argsort(pooled, kind="stable")
    ends = np.cumsum(shares[order])
    low, high = cut / count, 1.0 - cut / count
    kept = np.clip(ends, low, high) - np.clip(ends - shares[order], low, high)
    value = float((kept * pooled[order]).sum() / kept.sum())
    inside = pooled[order][kept > 1e-9]
    winsorized = np.array(
        [np.clip(block.differences, inside[0], inside[-1]).mean() for block in blocks]
    )
    error = float(winsorized.std(ddof=1)) / ((high - low) * math.sqrt(count))
    return Estimate(value, error, count - 2 * cut - 1)
