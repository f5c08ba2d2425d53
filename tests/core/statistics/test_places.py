"""What two places differ by falls out of the ratio of sides that swap them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtax.core.runner.duet import swapped
from vtax.core.statistics.means import log_ratio_of_means
from vtax.core.statistics.places import placed, without_places
from vtax.core.statistics.rounds import Run, log_ratio, one_each

NAMES = ("0", "1")
TRIALS = 600


def duet(logs: list[float], place: float, seed: int) -> tuple[list[Run], list[Run]]:
    """A pair whose log ratios are these, on places that differ by `place`."""
    own, base = [], []
    for number, ratio in enumerate(logs):
        at = swapped(seed, number)
        slow = {True: math.exp(place), False: 1.0}
        drift = math.exp(number / 97)
        own.append(Run(number, 0, math.exp(ratio) * drift * slow[at], NAMES[at]))
        base.append(Run(number, 0, drift * slow[not at], NAMES[not at]))
    return own, base


@settings(max_examples=30)
@given(
    st.lists(st.floats(-0.1, 0.1), min_size=3, max_size=30),
    st.floats(-0.5, 0.5),
    st.integers(0, 1000),
)
def test_the_difference_of_places_changes_nothing(
    logs: list[float], place: float, seed: int
) -> None:
    for estimate in (log_ratio, log_ratio_of_means):
        plain = placed(estimate, *duet(logs, 0.0, seed))
        moved = placed(estimate, *duet(logs, place, seed))
        assert plain is not None and moved is not None
        if estimate is log_ratio:
            assert moved.value == pytest.approx(plain.value, abs=1e-9)
            assert moved.error == pytest.approx(plain.error, rel=1e-6, abs=1e-9)
        assert moved.df == plain.df


@pytest.mark.parametrize("count", [3, 5, 12])
def test_the_interval_covers_the_ratio_in_95_percent(count: int) -> None:
    source = np.random.default_rng(count)
    covered = naive = 0
    for trial in range(TRIALS):
        own, base = duet(list(source.normal(0.02, 0.02, count)), 0.1, trial)
        found = placed(log_ratio, own, base)
        assert found is not None
        covered += abs(found.value - 0.02) <= found.half_width()
        plain = log_ratio(own, base)
        assert plain is not None
        naive += found.half_width() < plain.half_width()
    assert 0.92 <= covered / TRIALS <= 0.98
    # With few rounds the degree of freedom costs more than the places' difference of 10 %.
    if count >= 5:
        assert naive / TRIALS > 0.9


def test_sides_without_places_are_as_ever() -> None:
    own, base = one_each([1.0, 1.1, 0.9, 1.2]), one_each([1.0, 1.0, 1.0, 1.1])
    assert placed(log_ratio, own, base) == log_ratio(own, base)
    assert without_places(own, base) == own


def test_one_place_alone_says_nothing() -> None:
    own = [Run(number, 0, 1.0 + number / 100, "0") for number in range(4)]
    base = [Run(number, 0, 1.0, "1") for number in range(4)]
    assert placed(log_ratio, own, base) is None


def test_steps_of_values_are_not_hidden_by_the_places() -> None:
    own, base = duet([math.log(1.2)] * 6, 0.0, 1)
    own = [Run(run.round, 0, 0.12, run.place) for run in own]
    base = [Run(run.round, 0, 0.1, run.place) for run in base]
    found, plain = placed(log_ratio, own, base), log_ratio(own, base)
    assert found is not None and plain is not None
    assert found.bias == pytest.approx(plain.bias) and found.bias > 0.05


def test_each_side_has_each_place_twice_in_four_rounds() -> None:
    for seed in range(50):
        order = [swapped(seed, number) for number in range(40)]
        assert all(sum(order[at : at + 4]) == 2 for at in range(0, 40, 4))
        assert order == [swapped(seed, number) for number in range(40)]
    # By turns would be foreseeable: a neighbour that moves would follow one of both.
    changes = [swapped(7, n) != swapped(7, n + 1) for n in range(400)]
    assert 0.5 < sum(changes) / 400 < 0.85
