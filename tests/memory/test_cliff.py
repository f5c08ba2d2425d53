"""Cliffs of made-up curves: with noise, without a fall, with killed runs, and of times."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtax.memory.cliff import Curve, Run, differences, find, permutation_p

SIZES = range(100, 2100, 100)


def rates(
    edge: int | None, noise: float = 0.01, runs: int = 5, seed: int = 1, fallen: float = 0.4
) -> Curve:
    """A curve that rises as a small matrix does, stays level, and falls past the edge."""
    chance = random.Random(seed)

    def run(size: int, number: int) -> Run:
        past = edge is not None and size > edge
        level = (fallen if past else 1.0) * 4000 * (1 - 0.5 * math.exp(-size / 150))
        return Run(number, level * math.exp(chance.gauss(0, noise)), past)

    return {size: [run(size, number) for number in range(runs)] for size in SIZES}


def times(edge: int | None, power: float = 3, seed: int = 1) -> Curve:
    """Times that grow by a power of the size, and are ten times as long past the edge."""
    chance = random.Random(seed)

    def run(size: int, number: int) -> Run:
        past = edge is not None and size > edge
        seconds = 1e-9 * size**power * (10 if past else 1)
        return Run(number, seconds * math.exp(chance.gauss(0, 0.01)), past)

    return {size: [run(size, number) for number in range(5)] for size in SIZES}


def killed(edge: int) -> Curve:
    return {
        size: [Run(run.round, None, True) if size > edge else run for run in runs]
        for size, runs in rates(None).items()
    }


@pytest.mark.parametrize("edge", [100, 700, 1500, 1900])
def test_the_edge_is_found(edge: int) -> None:
    for curve in (rates(edge), killed(edge)):
        found = find(curve, "higher")
        assert found is not None
        assert (found.size, found.first_fallen) == (edge, edge + 100)
        assert (found.low, found.high) == (edge, edge + 100)


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_a_time_is_expected_to_grow(power: float) -> None:
    assert find(times(None, power), "lower") is None
    found = find(times(1200, power), "lower")
    assert found is not None and found.size == 1200


def test_killed_from_the_start() -> None:
    curve = {size: [Run(0, None, True)] for size in SIZES}
    found = find(curve, "higher")
    assert found is not None
    assert (found.size, found.first_fallen, found.low, found.high) == (None, 100, None, 100)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.001, 0.1))
def test_noise_is_no_cliff(seed: int, noise: float) -> None:
    assert find(rates(None, noise, seed=seed), "higher") is None


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(range(300, 1900, 100)), st.floats(0.001, 0.05))
def test_noise_does_not_move_a_deep_edge(seed: int, edge: int, noise: float) -> None:
    found = find(rates(edge, noise, seed=seed), "higher")
    assert found is not None
    assert found.size == edge
    assert found.low is not None and found.low <= edge < found.high


def test_a_fall_that_comes_back_or_without_a_lack_of_memory_is_none() -> None:
    dip = dict(rates(None))
    dip[900] = [Run(run.round, 1000.0, True) for run in dip[900]]
    assert find(dip, "higher") is None
    slower = {
        size: [Run(run.round, run.value, False) for run in runs]
        for size, runs in rates(1000).items()
    }
    assert find(slower, "higher") is None


def test_where_the_machine_does_not_say_the_fall_decides() -> None:
    unsaid = {
        size: [Run(run.round, run.value, None) for run in runs]
        for size, runs in rates(1000).items()
    }
    found = find(unsaid, "higher")
    assert found is not None and found.size == 1000


def test_the_noise_of_single_runs_is_seen_among_sizes() -> None:
    """As measured on a busy machine, with a few pages swapped at the largest two."""
    values = {2600: 14492, 2700: 26495, 2900: 14369, 3000: 25434, 3100: 14385, 3200: 14127}
    curve = {size: [Run(0, float(value), size > 3000)] for size, value in values.items()}
    assert find(curve, "higher") is None


def test_an_uncertain_edge_has_a_wide_interval() -> None:
    """At 1100 three of five runs are slow: their median may be on either side."""
    curve = dict(rates(1100))
    curve[1100] = [
        Run(run.round, None if run.value is None else run.value * (0.4 if number < 3 else 1), True)
        for number, run in enumerate(curve[1100])
    ]
    found = find(curve, "higher")
    assert found is not None
    assert (found.size, found.first_fallen) == (1000, 1100)
    assert (found.low, found.high) == (1000, 1200)


def test_environments_are_told_apart() -> None:
    curves = {"a": rates(1000), "b": rates(1000, seed=2), "c": rates(1400), "d": rates(None)}
    found = {(each.a, each.b): each for each in differences(curves, "higher")}
    assert found["a", "b"].verdict == "no difference shown"
    assert found["a", "c"].verdict == "differ"
    assert found["a", "c"].p == pytest.approx(2 / 252)
    assert (found["a", "c"].size_a, found["a", "c"].size_b) == (1050, 1450)
    assert found["a", "d"].verdict == "differ" and found["a", "d"].size_b is None
    few = differences({"a": rates(1000, runs=2), "c": rates(1400, runs=2)}, "higher")
    assert [each.verdict for each in few] == ["not known"]


def test_the_permutation_test_is_exact() -> None:
    assert permutation_p([1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(2 / 70)
    assert permutation_p([1, 1, 1, 1], [1, 1, 1, 1]) == 1.0
    assert permutation_p([1], [2]) is None
    many = permutation_p(list(range(20)), list(range(20, 40)))
    assert many is not None and many == pytest.approx(1 / 20_001)
    same = permutation_p(list(range(0, 40, 2)), list(range(1, 41, 2)))
    assert same is not None and same > 0.5
    assert permutation_p([], [1, 2]) is None
