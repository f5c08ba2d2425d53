"""Generalised assignment: each item takes one of its options, at the least total cost.

An option uses room in a group, whose capacity is bounded, and adds to the losses of the item's
family, whose budget is bounded. First the linear relaxation, for a bound. Then branch and cut over
a core: the items that the relaxation divides and those of which it is least sure (by reduced cost),
all others held. The core of a small problem is the whole problem, and the answer is exact. For a
large problem, a search over everything follows for a while if the gap to the bound is still wide,
which is often because the bound is loose. After each search, items change one by one while that
saves anything, and at the end two at once. `bound` says how far a heuristic answer may be from the
best; nothing else is proven.

Core problems: Martello and Toth, Knapsack Problems, 1990, chapter 2; kernel search: Angelelli,
Mansini and Speranza, Computers & Operations Research 2010. Both solvers are HiGHS, through scipy
(Huangfu and Hall, Mathematical Programming Computation 2018).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from vtax.analysis.statistics import Floats

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Indices = NDArray[np.int64]
_OPTIMAL = 1e-6
"""The relative gap at which a solution counts as the best."""
_ROUNDING = 1e-9
_WORTHWHILE = 1e-5
"""Share of the cost that an exchange of two items must save, so that there are few exchanges."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The limits of branch and cut."""

    options: int = 400
    """Options in the core, unless more are divided. HiGHS solves most of these in its time."""
    gap: float = 0.01
    """Share of the bound; a wider gap has all items searched, and not the core alone."""
    seconds: float = 0.3
    """Seconds of each search."""


NORMAL = Effort()


@dataclass(frozen=True, slots=True)
class Problem:
    """Arrays over options, shape (options,); the options of one item follow one another."""

    item: Indices
    """The item of each option: from 0, ascending, none left out."""
    group: Indices
    family: Indices
    cost: Floats
    use: Floats
    """What each option takes of its group's capacity, at least 0."""
    loss: Floats
    """What each option takes of its family's budget, at least 0."""
    capacities: Floats
    """Shape (groups,)."""
    budgets: Floats
    """Shape (families,)."""
    start: Indices
    """An option for each item, shape (items,); together they fit."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """An option for each item."""

    chosen: Indices
    method: Literal["exact", "heuristic"]
    cost: float
    bound: float
    """No assignment costs less; minus infinity where no bound is known."""


@dataclass(frozen=True, slots=True)
class _Relaxed:
    """What the linear relaxation says."""

    reduced: Floats
    """Reduced cost of each option."""
    choice: Indices
    """The option that most of each item takes, shape (items,)."""
    divided: NDArray[np.bool_]
    """Items that are divided among several options."""
    bound: float


def solve(problem: Problem, effort: Effort = NORMAL) -> Assigned:
    """The best assignment that was found; no worse than `start`."""
    if not problem.item.size:
        return Assigned(problem.start, "exact", 0.0, 0.0)
    relaxed = _relaxation(problem)
    chosen, bound = _shifted(problem, problem.start, relaxed), relaxed.bound
    core = _core(problem, relaxed, effort.options)
    for free in (core, np.ones_like(core)):
        gap = float(problem.cost[chosen].sum()) - bound
        enough = _OPTIMAL if free is core else effort.gap
        if math.isfinite(bound) and gap <= enough * abs(bound):
            break
        found, proven = _branch_and_cut(_restricted(problem, relaxed.choice, free), effort.seconds)
        if found is not None:
            better = relaxed.choice.copy()
            better[free] = np.flatnonzero(free[problem.item])[found]
            better = _shifted(problem, better, relaxed)
            chosen = min(chosen, better, key=lambda each: float(problem.cost[each].sum()))
        if free.all():
            bound = max(bound, proven)
            break
    if not _same(float(problem.cost[chosen].sum()), bound):
        chosen = _exchanged(problem, chosen)
    cost = float(problem.cost[chosen].sum())
    return Assigned(chosen, "exact" if _same(cost, bound) else "heuristic", cost, bound)


def _shifted(problem: Problem, start: Indices, relaxed: _Relaxed) -> Indices:
    """Move one item after the other to an option that costs less, as long as that fits."""
    state = _State(problem, start)
    every = np.argsort(problem.cost - problem.cost[start][problem.item])
    for options in (relaxed.choice, every):
        while state.shift(options.tolist()):
            pass
    return state.chosen


def _exchanged(problem: Problem, start: Indices) -> Indices:
    """Move two items at once, until no two save anything that counts."""
    state = _State(problem, start)
    least = _WORTHWHILE * float(np.abs(problem.cost[start]).sum())
    while state.exchange(least):
        while state.shift(range(problem.item.size)):
            pass
    return state.chosen


class _State:
    """An assignment that fits, and what it leaves of capacities and budgets."""

    def __init__(self, problem: Problem, start: Indices) -> None:
        self.problem = problem
        self.chosen = start.copy()
        self.room = problem.capacities - np.bincount(
            problem.group[start], problem.use[start], problem.capacities.size
        )
        self.spare = problem.budgets - np.bincount(
            problem.family[start], problem.loss[start], problem.budgets.size
        )

    def shift(self, options: Iterable[int]) -> bool:
        """Take each option that costs less and fits; return whether there was one."""
        p, some = self.problem, False
        for new in options:
            old = self.chosen[p.item[new]]
            here = p.use[old] if p.group[old] == p.group[new] else 0.0
            if (
                p.cost[new] < p.cost[old] - _ROUNDING
                and p.use[new] - here <= self.room[p.group[new]]
                and p.loss[new] - p.loss[old] <= self.spare[p.family[new]]
            ):
                self._take(new)
                some = True
        return some

    def exchange(self, least: float) -> bool:
        """Take two options at once, even if neither fits alone; return whether a pair saved
        `least`.

        One of the two saves by itself, so each option that saves is tried with all others.
        """
        p, some = self.problem, False
        for first in range(p.item.size):
            old = self.chosen[p.item[first]]
            gain = p.cost[old] - p.cost[first] - least
            if gain <= 0:
                continue
            self._take(first)
            second = self._completing(first, gain)
            if second is None:
                self._take(int(old))
            else:
                self._take(second)
                some = True
        return some

    def _completing(self, first: int, gain: float) -> int | None:
        """The cheapest option of another item with which `first`, just taken, fits and pays."""
        p = self.problem
        now = self.chosen[p.item]
        extra = p.cost - p.cost[now]
        able = np.flatnonzero((extra < gain) & (p.item != p.item[first]))
        now, extra = now[able], extra[able]
        after = self.room[p.group[able]] - p.use[able]
        after += np.where(p.group[now] == p.group[able], p.use[now], 0.0)
        group = p.group[first]
        there = self.room[group] + np.where(p.group[now] == group, p.use[now], 0.0)
        there -= np.where(p.group[able] == group, p.use[able], 0.0)
        more = p.loss[able] - p.loss[now]
        family = p.family[first]
        own = self.spare[family] - np.where(p.family[able] == family, more, 0.0)
        fits = (after >= 0) & (there >= 0) & (self.spare[p.family[able]] >= more) & (own >= 0)
        if not fits.any():
            return None
        return int(able[fits][np.argmin(extra[fits])])

    def _take(self, new: int) -> None:
        p, old = self.problem, self.chosen[self.problem.item[new]]
        self.room[p.group[old]] += p.use[old]
        self.room[p.group[new]] -= p.use[new]
        self.spare[p.family[new]] -= p.loss[new] - p.loss[old]
        self.chosen[p.item[new]] = new


def _core(problem: Problem, relaxed: _Relaxed, options: int) -> NDArray[np.bool_]:
    """The items in the core: all that are divided, and the least sure; shape (items,)."""
    second = np.full(relaxed.choice.size, np.inf)
    others = np.ones(problem.item.size, dtype=np.bool_)
    others[relaxed.choice] = False
    np.minimum.at(second, problem.item[others], relaxed.reduced[others])
    second[relaxed.divided] = -1.0
    order = np.argsort(second, kind="stable")
    counts = np.bincount(problem.item)[order].cumsum()
    core = relaxed.divided.copy()
    core[order[counts <= options]] = True
    return core


def _restricted(problem: Problem, chosen: Indices, core: NDArray[np.bool_]) -> Problem:
    """The problem of the core alone, with the room that the other items leave."""
    held = chosen[~core]
    options = core[problem.item]
    number = np.cumsum(core) - 1
    place = np.cumsum(options) - 1
    return dataclasses.replace(
        problem,
        item=number[problem.item[options]],
        group=problem.group[options],
        family=problem.family[options],
        cost=problem.cost[options],
        use=problem.use[options],
        loss=problem.loss[options],
        capacities=problem.capacities
        - np.bincount(problem.group[held], problem.use[held], problem.capacities.size),
        budgets=problem.budgets
        - np.bincount(problem.family[held], problem.loss[held], problem.budgets.size),
        start=place[chosen[core]],
    )


def _relaxation(problem: Problem) -> _Relaxed:
    """Solve the linear relaxation. Where the solver gives up, all items are divided and the bound
    is minus infinity."""
    # scipy.optimize takes most of a second to import.
    from scipy.optimize import linprog

    one, room = _rows(problem)
    found: Any = linprog(
        problem.cost,
        A_ub=room,
        b_ub=_limits(problem),
        A_eq=one,
        b_eq=np.ones(problem.start.size),
        bounds=(0, None),
        method="highs",
    )
    if found.status != 0:
        divided = np.ones(problem.start.size, dtype=np.bool_)
        return _Relaxed(problem.cost, problem.start, divided, -np.inf)
    prices = room.T @ found.ineqlin.marginals + one.T @ found.eqlin.marginals
    most = np.lexsort((-found.x, problem.item))
    choice = most[np.unique(problem.item, return_index=True)[1]]
    return _Relaxed(problem.cost - prices, choice, found.x[choice] < 1 - 1e-6, float(found.fun))


def _branch_and_cut(problem: Problem, seconds: float) -> tuple[Indices | None, float]:
    """The best assignment that was found in time, or None, and a bound."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    one, room = _rows(problem)
    with _quiet():
        found: Any = milp(
            problem.cost,
            constraints=[
                LinearConstraint(one, 1, 1),
                LinearConstraint(room, -np.inf, _limits(problem)),
            ],
            integrality=np.ones(problem.item.size),
            bounds=Bounds(0, 1),
            options={"time_limit": seconds, "mip_rel_gap": _OPTIMAL},
        )
    bound = -np.inf if found.mip_dual_bound is None else float(found.mip_dual_bound)
    if found.x is None:
        return None, bound
    return np.flatnonzero(found.x > 0.5), bound


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence standard output: HiGHS prints a line there when it mends a rounded solution, whatever
    its options, and a user may expect JSON.

    This silences the whole process: other threads should not print meanwhile.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def _limits(problem: Problem) -> Floats:
    return np.concatenate([problem.capacities, problem.budgets]) + _ROUNDING


def _rows(problem: Problem) -> tuple[csr_array, csr_array]:
    """The constraints: one option for each item; capacities, then budgets."""
    from scipy.sparse import csr_array, vstack

    options = np.arange(problem.item.size)

    def rows(where: Indices, what: Floats, count: int) -> Any:
        return csr_array((what, (where, options)), shape=(count, options.size))

    one = rows(problem.item, np.ones(options.size), problem.start.size)
    capacity = rows(problem.group, problem.use, problem.capacities.size)
    budget = rows(problem.family, problem.loss, problem.budgets.size)
    return one, vstack([capacity, budget], format="csr")


def _same(cost: float, bound: float) -> bool:
    return cost - bound <= 2 * _OPTIMAL * max(abs(cost), 1e-9)
