"""Nodes as a random effect, held against an independent computation and simulated clusters."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtax.core.statistics.nodes import spread
from vtax.core.statistics.statistics import Estimate

STUDENT_95 = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764}
"""Two-sided 95 % quantiles of Student's t, from a table."""

_values = st.floats(-2.0, 2.0)


@given(st.lists(_values, min_size=2, max_size=5))
def test_without_noise_it_is_students_interval_over_nodes(values: list[float]) -> None:
    found = spread([Estimate(each, 0.0, 5) for each in values])
    assert found is not None
    half = STUDENT_95[len(values) - 1] * statistics.stdev(values) / len(values) ** 0.5
    assert found.mean.value == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert found.mean.half_width() == pytest.approx(half, rel=1e-3, abs=1e-9)
    assert found.between == pytest.approx(statistics.stdev(values), abs=1e-9)


@given(st.lists(_values, min_size=2, max_size=5), st.floats(0.001, 1.0))
def test_nodes_that_agree_by_chance_are_no_better_known_than_their_noise(
    values: list[float], noise: float
) -> None:
    found = spread([Estimate(each, noise, 5) for each in values])
    assert found is not None
    assert found.mean.error >= noise / len(values) ** 0.5 * (1 - 1e-9)
    assert found.between**2 == pytest.approx(
        max(0.0, statistics.variance(values) - noise**2), abs=1e-9
    )


def test_one_node_says_nothing_of_others() -> None:
    assert spread([]) is None
    assert spread([Estimate(0.1, 0.01, 5)]) is None


@pytest.mark.parametrize(
    ("nodes", "between", "noise"), [(2, 0.05, 0.02), (4, 0.02, 0.05), (8, 0.05, 0)]
)
def test_the_interval_covers_the_mean_of_all_nodes(
    nodes: int, between: float, noise: float
) -> None:
    """2,000 simulated clusters; the bound is 95 % less three standard errors."""
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        true = random.normal(0.1, between, nodes)
        seen = true + random.normal(0.0, noise, nodes)
        found = spread([Estimate(float(each), noise, 9) for each in seen])
        assert found is not None
        covered += abs(found.mean.value - 0.1) <= found.mean.half_width()
    assert covered / 2000 >= 0.935
