"""CPU time against wall time: how far apart they are, and how often CPU time is the larger one.

Equation 1 and figure 1 of the paper on HPC Challenge in virtualized environments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from vtax.core.statistics.statistics import Estimate, median_estimate, share_interval

SEED = 1
"""The bootstrap's."""


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
    """The comparison of runs by both clocks."""

    percent: float
    """Equation 1: the median of |T_cpu / T_wall - 1|."""
    interval: tuple[float, float] | None
    """Its 95 % interval; None for fewer than two runs."""
    least: float
    most: float
    inverted: Share
    """How often CPU time was above wall time."""
    unexplained: Share
    """How often it was above by more than both clocks' steps, which their resolution does not
    explain."""
    step_percent: float
    """The steps of both clocks as a share of the median wall time."""


def cpu_wall(runs: Sequence[tuple[float, float]], steps_s: float) -> CpuWall:
    """Compare at least one pair (CPU time, wall time), in seconds; `steps_s`: both clocks' steps
    together.

    A time is the difference of two readings and so wrong by less than a step of its clock, and by
    the time that a reading of the other clock takes where that lies between; `steps_s` may include
    it.
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
