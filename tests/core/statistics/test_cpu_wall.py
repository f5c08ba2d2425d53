"""CPU time against wall time, on times that are known."""

from __future__ import annotations

import pytest

from vtax.core.statistics.cpu_wall import cpu_wall


def test_equation_1_and_inversions() -> None:
    runs = [(0.9, 1.0), (1.0, 1.0), (1.05, 1.0), (1.2, 1.0)]
    found = cpu_wall(runs, steps_s=0.1)
    assert found.percent == pytest.approx(7.5)
    assert (found.least, found.most) == (pytest.approx(0), pytest.approx(20))
    assert (found.inverted.count, found.unexplained.count) == (2, 1)
    assert found.inverted.percent == 50
    # Clopper and Pearson for 2 of 4.
    assert found.inverted.interval == pytest.approx((6.76, 93.24), abs=0.01)
    assert found.step_percent == pytest.approx(10)


def test_none_and_all_are_intervals_too() -> None:
    assert cpu_wall([(0.5, 1.0)] * 10, 0.0).inverted.interval == pytest.approx((0, 30.85), abs=0.01)
    assert cpu_wall([(2.0, 1.0)] * 10, 0.0).inverted.interval == pytest.approx(
        (69.15, 100), abs=0.01
    )
