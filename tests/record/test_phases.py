"""Planted changes are found where they are, and none are found in noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noises import wandering_counts
from recording_data import Floats, ar1
from vtax.core.recorder.intervals import Event
from vtax.core.recorder.ways import Axis, Per
from vtax.record.timeline.analysis import Line, Timeline
from vtax.record.timeline.phases import FALSE_RATE, MIN_BINS, candidates, changes, penalty, phases

Noise = Callable[[np.random.Generator, int, int], Floats]

NOISES: dict[str, Noise] = {
    "normal": lambda random, n, d: random.normal(size=(n, d)),
    "outliers": lambda random, n, d: random.standard_t(2, size=(n, d)),
    "counts": lambda random, n, d: random.poisson(0.7, (n, d)).astype(float),
    "rare": lambda random, n, d: random.poisson(0.02, (n, d)).astype(float),
    **{
        f"AR(1) {rho}": lambda random, n, d, rho=rho: ar1(random, n, np.full(d, rho))
        for rho in (0.5, 0.8, 0.9, 0.95)
    },
    **{
        f"AR(1) {rho} and noise": lambda random, n, d, rho=rho: (
            ar1(random, n, np.full(d, rho)) + random.normal(size=(n, d))
        )
        for rho in (0.8, 0.95)
    },
    **{
        f"counts of {mean}, rate AR(1) {rho}": lambda random, n, d, mean=mean, rho=rho: (
            wandering_counts(random, n, d, mean, rho)
        )
        for mean, rho in ((1.0, 0.8), (1.0, 0.95), (5.0, 0.95), (50.0, 0.95), (50.0, 0.99))
    },
    "random walk": lambda random, n, d: np.cumsum(random.normal(size=(n, d)), axis=0),
    "trend": lambda random, n, d: random.normal(size=(n, d)) + np.linspace(0, 3, n)[:, None],
}


CLEAR = [(1000, 0.5, 3.0, 0.9), (200, 0.0, 3.0, 0.9), (100, 0.0, 5.0, 0.9), (50, 0.0, 10.0, 0.7)]

COUNTED = [
    (1000, 5.0, 10.0, 0.9),
    (200, 1.0, 8.0, 0.9),
    (200, 0.0, 3.0, 0.85),
    (100, 50.0, 100.0, 0.95),
]


def allowed(trials: int) -> int:
    """More false alarms than this have a probability under 0.1 % at a rate of `FALSE_RATE`."""
    from scipy.stats import binom

    return int(binom.ppf(0.999, trials, FALSE_RATE))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("n", "d"), [(50, 1), (200, 1), (1000, 1), (500, 4)])
def test_noise_has_no_changes(noise: str, n: int, d: int) -> None:
    random = np.random.default_rng(30)
    trials = 100
    wrong = sum(bool(changes(NOISES[noise](random, n, d))) for _ in range(trials))
    assert wrong <= allowed(trials)


@pytest.mark.parametrize("noise", ["normal", "outliers"])
def test_planted_changes_are_found(noise: str) -> None:
    """Levels alternate by ten deviations; a cut may be off by bins that look like the other level.

    Noise can always look like something else, so a few misses are allowed.
    """
    random = np.random.default_rng(32)
    trials = 200
    found = sum(_recovered(random, NOISES[noise]) for _ in range(trials))
    assert found >= 0.97 * trials


def _recovered(random: np.random.Generator, noise: Noise) -> bool:
    lengths = random.integers(40, 150, random.integers(2, 6))
    levels = np.repeat([10.0 * (place % 2) for place in range(lengths.size)], lengths)
    found = changes((noise(random, levels.size, 1)[:, 0] + levels)[:, None])
    planted = np.cumsum(lengths)[:-1]
    return len(found) == planted.size and bool(np.abs(np.array(found) - planted).max() <= 3)


@pytest.mark.parametrize(("n", "rho", "step", "share"), CLEAR)
def test_clear_changes_are_found(n: int, rho: float, step: float, share: float) -> None:
    """Steps in units of the noise's standard deviation, anywhere in the middle half."""
    random = np.random.default_rng(33)
    trials, found = 100, 0
    for _ in range(trials):
        place = int(random.integers(n // 4, 3 * n // 4))
        values = ar1(random, n, np.array([rho]))
        values[place:] += step
        cuts = changes(values)
        found += len(cuts) == 1 and abs(cuts[0] - place) <= max(3, n // 50)
    assert found >= share * trials


@pytest.mark.parametrize(("n", "before", "after", "share"), COUNTED)
def test_clear_changes_of_counts_are_found(
    n: int, before: float, after: float, share: float
) -> None:
    random = np.random.default_rng(34)
    trials, found = 100, 0
    for _ in range(trials):
        place = int(random.integers(n // 4, 3 * n // 4))
        values = random.poisson(np.where(np.arange(n) < place, before, after)).astype(float)
        cuts = changes(values[:, None])
        found += len(cuts) == 1 and abs(cuts[0] - place) <= max(3, n // 50)
    assert found >= share * trials


def test_bursts_that_stand_out_of_quiet_parts_only_by_their_height_are_no_change() -> None:
    """The rate wanders by factors; the jumps where it is high exceed those where it is low."""
    random = np.random.default_rng(35)
    wrong = sum(
        bool(changes(wandering_counts(random, 1000, 1, 50.0, 0.95, deviation=1.5)))
        for _ in range(100)
    )
    assert wrong <= allowed(100)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_changes_do_not_depend_on_the_unit(seed: int) -> None:
    random = np.random.default_rng(seed)
    # Multiples of 1/1024: what is added below is exact, so that equal values stay equal.
    noise = np.round(random.normal(size=(120, 1)) * 1024.0) / 1024.0
    values = noise + np.repeat([0.0, 5.0, 0.0], 40)[:, None]
    assert changes(values) == changes(values * 3.0)
    assert changes(values + 1000.0) == changes(values * 3.0 + 3000.0)
    # With no value below 0 they are counts, whose jumps must stand out as ratios too.
    assert candidates(values) == candidates(values + 1000.0) == candidates(np.exp(values))


def test_steps_without_noise_and_constants() -> None:
    step = np.zeros((40, 1))
    step[20:] = 3.0
    assert changes(step) == [20]
    assert changes(np.ones((100, 2))) == []
    assert changes(step[: 2 * MIN_BINS - 1]) == []


def test_one_constant_column_hinders_no_other() -> None:
    step = np.zeros((40, 2))
    step[20:, 1] = 3.0
    assert changes(step) == [20]


def test_the_penalty_grows_with_bins_and_columns() -> None:
    assert penalty(1000, 1) > penalty(100, 1)
    assert penalty(100, 3) > penalty(100, 1)


def test_phases_have_means_and_cover_the_axis() -> None:
    random = np.random.default_rng(31)
    values = np.where(np.arange(100) < 60, 1.0, 8.0) + random.normal(0, 0.1, 100)
    values[10] = np.nan
    absent = np.full(100, np.nan)
    edges = np.arange(101) * 1e6

    def line(event: str, own: Floats) -> Line:
        return Line("run", Event(name=event), own, own, own, 0.0, 1.0, 1)

    lines = (line("a.b", values), line("a.c", absent))
    found = phases(Timeline(Axis.INSTRUCTIONS, Per.SECOND, edges, lines), lines)
    assert [(phase.start, phase.end) for phase in found] == [(0.0, 60e6), (60e6, 100e6)]
    assert [phase.bins for phase in found] == [59, 40]
    assert [phase.means[0] for phase in found] == pytest.approx([1.0, 8.0], abs=0.05)
    assert all(np.isnan(phase.means[1]) for phase in found)
    assert phases(Timeline(Axis.TIME, Per.SECOND, edges, lines[1:]), lines[1:]) == ()
