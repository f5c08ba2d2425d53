"""CPU time against wall time: how far they are apart, and how often CPU time is the larger one.

Equation 1 and figure 1 of the paper on HPC Challenge in virtualized environments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from vtax.analysis.statistics import Estimate, median_estimate, share_interval

SEED = 1
"""Of the bootstrap."""


@dataclass(frozen=True, slots=True)
class Share:
    """How often something was seen, with Clopper and Pearson's 95 % interval, in percent."""

    count: int
    total: int

    @property
    def percent(self) -> float:
        return 100.0 * self.count / self.total

    @property
    def interval(self) -> tuple[float, float]:
        low, high = share_interval(self.count, self.total)
        assert low is not None and high is not None
        return low, high


@dataclass(frozen=True, slots=True)
class CpuWall:
    """Runs by both clocks."""

    percent: float
    """Equation 1: the median of |T_cpu / T_wall - 1|."""
    interval: tuple[float, float] | None
    """Its 95 % interval; None for fewer than two runs."""
    least: float
    most: float
    inverted: Share
    """CPU time above wall time."""
    unexplained: Share
    """The same by more than both clocks' steps, so that their resolution does not explain it."""
    step_percent: float
    """What the steps are of the median wall time."""


def cpu_wall(runs: Sequence[tuple[float, float]], steps_s: float) -> CpuWall:
    """Of at least one (CPU time, wall time), in seconds; `steps_s`: both clocks' steps together.

    A time is the difference of two readings and so wrong by less than a step of its clock, and by
    the time of a reading where that of the other clock lies between; `steps_s` may have it too.
    """
    apart = [100.0 * abs(cpu_s / wall_s - 1) for cpu_s, wall_s in runs]
    total = len(runs)
    estimate = median_estimate(apart, [0] * total, SEED, log=False)
    return CpuWall(
        median(apart),
        None if estimate is None else _around(estimate),
        min(apart),
        max(apart),
        Share(sum(cpu_s > wall_s for cpu_s, wall_s in runs), total),
        Share(sum(cpu_s > wall_s + steps_s for cpu_s, wall_s in runs), total),
        100.0 * steps_s / median(wall_s for _, wall_s in runs),
    )


def _around(estimate: Estimate) -> tuple[float, float]:
    half = estimate.half_width()
    return max(0.0, estimate.value - half), estimate.value + half
