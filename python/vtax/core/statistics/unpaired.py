"""The ratio of two variants that share no rounds, such as the same environment in two runs.

Nothing falls out here: what differed between the two runs (host, heat, neighbours) is in the ratio,
and the interval covers only how much the runs of each side disagree among themselves. It is the
difference of the logs of two medians with bootstrap standard errors, whose degrees of freedom are
those of Welch 1947 and Satterthwaite 1946. docs/statistics.md has how often it is right.
"""

from __future__ import annotations

from collections.abc import Sequence

from vtax.core.statistics.coarse import widened
from vtax.core.statistics.rounds import Run
from vtax.core.statistics.statistics import Estimate, median_estimate


def log_ratio_of_medians(own: Sequence[Run], base: Sequence[Run], seed: int) -> Estimate | None:
    """The log of median(own) / median(base); `seed` is that of the bootstrap.

    All values must be above zero. None for fewer than two values on either side.
    """
    values = [[run.value for run in side] for side in (own, base)]
    boots = [[run.boot for run in side] for side in (own, base)]
    ours, theirs = (
        median_estimate(found, boot, seed, log=True)
        for found, boot in zip(values, boots, strict=True)
    )
    return None if ours is None or theirs is None else widened(ours - theirs, *values)
