"""The solver against enumeration, and the heuristic against the optimum."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vtax.analysis.assignment import Effort, Indices, Problem, _exchanged, _quiet, solve


def problem(items: int, guests: int, seed: int, crowded: float = 1.3) -> Problem:
    """Three classes of cores on two nodes, as `vtax.analysis.placement` makes them."""
    random = np.random.default_rng(seed)
    classes = ((1.0, 10.0, 0.6), (0.5, 2.5, 0.2), (0.3, 1.0, 0.2))
    cpu = np.minimum(random.exponential(0.1, items), 1.0)
    sensitivity = np.clip(random.normal(0.4, 0.3, items), 0, 1.2)
    guest = random.integers(0, guests, items)
    rows = [
        (i, guest[i] % 2 * 3 + k, guest[i], min(1.0, cpu[i] / speed), watts,
         sensitivity[i] * (1 - speed) * 100)
        for i in range(items)
        for k, (speed, watts, _) in enumerate(classes)
    ]  # fmt: skip
    item, group, family, use, watts, loss = (np.array(column) for column in zip(*rows, strict=True))
    start = np.arange(items) * 3
    shares = np.array([share for _, _, share in classes] * 2)
    capacities = np.maximum(shares * cpu.sum() * crowded, np.bincount(group[start], use[start], 6))
    return Problem(
        item, group, family, use * watts, use, loss, capacities, np.full(guests, 20.0), start
    )


def fits(p: Problem, chosen: Indices) -> bool:
    used = np.bincount(p.group[chosen], p.use[chosen], p.capacities.size)
    lost = np.bincount(p.family[chosen], p.loss[chosen], p.budgets.size)
    return bool((used <= p.capacities + 1e-6).all() and (lost <= p.budgets + 1e-6).all())


def enumerated(p: Problem) -> float:
    every = itertools.product(*(np.flatnonzero(p.item == i) for i in range(p.start.size)))
    return min(float(p.cost[list(each)].sum()) for each in every if fits(p, np.array(each)))


@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_small_problems_are_solved_exactly(items: int, guests: int, seed: int) -> None:
    p = problem(items, guests, seed)
    found = solve(p)
    assert fits(p, found.chosen) and found.method == "exact"
    assert found.cost == pytest.approx(enumerated(p), rel=1e-5)
    assert found.bound <= found.cost * (1 + 1e-6)


@given(st.integers(150, 250), st.integers(5, 60), st.integers(0, 10**6))
@example(174, 48, 10**6)
@settings(max_examples=5, deadline=None)
def test_the_heuristic_is_within_2_percent_of_the_optimum(
    items: int, guests: int, seed: int
) -> None:
    """The search covers no more than a core, which has less than half of the options.

    In 152 drawn problems the worst answer was 0.9 % from the best, which is no proof. With no time
    for branching it was 4.3 %, so a busy machine gets more time here.
    """
    p = problem(items, guests, seed)
    found = solve(p, Effort(options=200, gap=1.0, seconds=5.0))
    assert p.item.size > 400
    assert fits(p, found.chosen)
    best = solve(p, Effort(options=10**6, seconds=2.0))
    assert found.bound <= best.cost * (1 + 1e-6)
    assert found.cost <= best.cost * 1.02


@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_after_exchanges_no_two_items_save_anything(items: int, guests: int, seed: int) -> None:
    p = problem(items, guests, seed, crowded=0.8)
    found = _exchanged(p, p.start)
    cost = float(p.cost[found].sum())
    assert fits(p, found) and cost <= p.cost[p.start].sum()
    for pair in itertools.combinations(range(p.item.size), 2):
        other = found.copy()
        other[p.item[list(pair)]] = pair
        assert not fits(p, other) or p.cost[other].sum() > cost * (1 - 1.1e-5)


def test_the_start_is_kept_where_nothing_else_fits() -> None:
    p = problem(30, 3, 1)
    full = Problem(p.item, p.group, p.family, p.cost, p.use, p.loss, p.capacities,
                   np.zeros(3), p.start)  # fmt: skip
    found = solve(full)
    insensitive = p.loss == 0
    moved = found.chosen != p.start
    assert fits(full, found.chosen) and insensitive[found.chosen[moved]].all()


def test_without_time_for_branching_the_answer_still_fits() -> None:
    p = problem(200, 20, 2)
    found = solve(p, Effort(seconds=0.0))
    assert fits(p, found.chosen) and found.cost < p.cost[p.start].sum()
    assert found.bound <= found.cost


def test_nothing_to_assign() -> None:
    p = problem(1, 1, 0)
    none = np.array([], dtype=np.int64)
    empty = np.array([])
    found = solve(Problem(none, none, none, empty, empty, empty, p.capacities, p.budgets, none))
    assert (found.cost, found.method, found.chosen.size) == (0.0, "exact", 0)


def test_what_a_library_prints_meanwhile_does_not_come_out(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ZeroDivisionError), _quiet():
        os.write(1, b"noise")
        raise ZeroDivisionError
    print("mine")
    assert capfd.readouterr().out == "mine\n"
