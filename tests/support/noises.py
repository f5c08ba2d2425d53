"""Ways in which values of a campaign vary, for simulations of intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vtax.core.statistics.rounds import Run

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int], Floats]
"""Makes the logs of values, in the order of running, from rounds and runs in a round."""


def lognormal(random: np.random.Generator, rounds: int, runs: int) -> Floats:
    return 0.05 * random.standard_normal((rounds, runs))


def floor(random: np.random.Generator, rounds: int, runs: int) -> Floats:
    """Noise with a floor: nothing runs faster than possible."""
    return np.log1p(random.exponential(0.05, (rounds, runs)))


def two_states(random: np.random.Generator, rounds: int, runs: int) -> Floats:
    return np.log1p(0.2 * random.integers(0, 2, (rounds, runs)))


def ticks(random: np.random.Generator, rounds: int, runs: int) -> Floats:
    """A clock whose tick is larger than the noise."""
    seen = np.round(1.013 * (1 + 0.02 * random.standard_normal((rounds, runs))) / 0.05) * 0.05
    return np.log(np.maximum(seen, 0.05))


def drift(random: np.random.Generator, rounds: int, runs: int) -> Floats:
    rise = np.linspace(0, 0.2, rounds * runs).reshape(rounds, runs)
    return rise + 0.02 * random.standard_normal((rounds, runs))


def remembered(random: np.random.Generator, rounds: int, runs: int) -> Floats:
    """AR(1) noise with a coefficient of 0.8."""
    steps = random.standard_normal(rounds * runs)
    for index in range(1, steps.size):
        steps[index] = 0.8 * steps[index - 1] + 0.6 * steps[index]
    return 0.05 * steps.reshape(rounds, runs)


def heavy_tails(random: np.random.Generator, rounds: int, runs: int) -> Floats:
    return 0.05 * random.standard_t(3, (rounds, runs))


def disturbed(random: np.random.Generator, rounds: int, runs: int) -> Floats:
    hit = random.random((rounds, runs)) < 0.1
    return 0.02 * random.standard_normal((rounds, runs)) + math.log(1.3) * hit


def doubled(random: np.random.Generator, rounds: int, runs: int) -> Floats:
    """A mixture: every tenth run twice as long."""
    hit = random.random((rounds, runs)) < 0.1
    return 0.02 * random.standard_normal((rounds, runs)) + math.log(2.0) * hit


NOISES: Sequence[Noise] = (
    lognormal, floor, two_states, ticks, drift, remembered, heavy_tails, disturbed,
)  # fmt: skip


def runs(logs: Floats) -> list[Run]:
    """Runs of these values, with the digits that a program prints."""
    return [
        Run(number, 0, float(f"{math.exp(value):.6g}"))
        for number, row in enumerate(logs)
        for value in row
    ]


def wandering_counts(
    random: np.random.Generator, n: int, d: int, mean: float, rho: float, deviation: float = 1.0
) -> Floats:
    """Poisson counts (n x d); the log of their rate is AR(1) with this standard deviation."""
    logs = random.standard_normal((n, d))
    for at in range(1, n):
        logs[at] = rho * logs[at - 1] + math.sqrt(1 - rho**2) * logs[at]
    rates = mean * np.exp(deviation * logs - deviation**2 / 2)
    return random.poisson(rates).astype(np.float64)
