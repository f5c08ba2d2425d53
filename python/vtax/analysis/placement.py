"""The planner of `vtax place`: which class of cores each thread belongs on, and why.

A thread that uses the share u of a full-speed core uses u / s of a core of speed s, at most all of
it. The guest's loss there is what the upper end of the thread's elasticity interval says, and at
least the loss of a thread that the core cannot keep up with. The losses of a guest's threads are
added, which is more than they cost together where they overlap: a budget is kept, not used up. The
planner keeps capacities and budgets and takes the plan with the least modelled power; what idle
cores draw is the same in every plan and is left out.

A thread is held where it is when its sensitivity is not known, and a vCPU unless vCPUs may move.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from vtax.analysis.assignment import NORMAL, Assigned, Effort, Problem, solve
from vtax.analysis.place_advice import VCPU
from vtax.analysis.power import PowerModel, performance_per_model_watt

WORTH = 1e-3
"""Share of a fast core's busy power: a move that saves less is not made."""
_SLACK = 1e-6
"""The solver's own tolerance, in percent or cores."""


@dataclass(frozen=True, slots=True)
class Place:
    """Cores of a class on a NUMA node."""

    core_class: str
    node: int

    def __str__(self) -> str:
        return f"{self.core_class} cores of node {self.node}"


@dataclass(frozen=True, slots=True)
class CoreClass:
    """Cores that are alike."""

    name: str
    speed: float
    """Share of the fastest class's speed, above 0 to 1."""
    cores: Mapping[int, float]
    """For each NUMA node, how many cores they are worth: a further hardware thread is no whole
    core."""
    power: PowerModel


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread to be placed."""

    id: str
    role: str
    guest: str | None
    cpu: float
    """The share of a full-speed core that it uses, 0 to 1."""
    elasticity: tuple[float, float] | None
    """The 95 % interval; None: not known."""
    memory_node: int | None = None
    """The node of its guest's memory, on which the thread stays. None: not known; it stays where it
    is."""
    now: Place | None = None
    """Where the thread is; None: it may run anywhere, and counts with the fastest class."""
    allowed: frozenset[Place] | None = None
    """Places of which its cpuset has a core; None: all. It may always stay where it is."""

    def may_be(self, place: Place) -> bool:
        """Whether its cpuset allows the place."""
        return self.allowed is None or place in self.allowed


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a plan must keep to."""

    loss_percent: float = 5.0
    """What a guest may lose; threads of no guest count as a guest of their own."""
    loss_by_guest: Mapping[str, float] = field(default_factory=dict)
    """The loss allowed to a guest where that is another."""
    vcpus_may_slow: bool = False
    headroom: float = 0.1
    """Share of each place that stays free."""


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A place for every thread."""

    places: Mapping[str, Place]
    reasons: Mapping[str, str]
    moved: frozenset[str]
    dynamic_model_watts: float
    """The power of all threads, above idle cores."""
    dynamic_model_watts_before: float
    idle_model_watts: float
    """The power of all idle cores."""
    loss_percent: Mapping[str | None, float]
    """What each guest loses, at most."""
    loss_percent_before: Mapping[str | None, float]
    method: Literal["exact", "heuristic"]
    gap_percent: float | None
    """How much less power the movable threads could take at best; None: not known."""
    notes: tuple[str, ...]

    @property
    def performance_per_model_watt(self) -> float | None:
        """Percent of full performance (the mean over guests, at least) per modelled watt."""
        return _per_watt(self.loss_percent, self.dynamic_model_watts + self.idle_model_watts)

    @property
    def performance_per_model_watt_before(self) -> float | None:
        before = self.dynamic_model_watts_before + self.idle_model_watts
        return _per_watt(self.loss_percent_before, before)

    def explain(self, thread: str) -> str:
        """One sentence on where a thread goes and why."""
        verb = "goes to" if thread in self.moved else "stays on"
        return f"{thread} {verb} {self.places[thread]}: {self.reasons[thread]}"


@dataclass(frozen=True, slots=True)
class _Option:
    """A place that a thread may have."""

    place: Place
    use: float
    """Cores' worth of CPU time."""
    loss: float
    """Percent of its guest's performance, at most."""
    model_watts: float


@dataclass(frozen=True, slots=True)
class _Host:
    """Places and classes."""

    classes: Mapping[str, CoreClass]
    places: Mapping[Place, int]
    """Places and their numbers."""
    fastest: CoreClass

    def start(self, thread: Thread) -> Place:
        """The place that the thread has before the plan."""
        if thread.now is not None:
            return thread.now
        node, nodes = thread.memory_node, self.fastest.cores
        return Place(self.fastest.name, min(nodes) if node is None or node not in nodes else node)

    def option(self, thread: Thread, place: Place) -> _Option:
        core = self.classes[place.core_class]
        use = min(thread.cpu / core.speed, 1.0)
        loss = 0.0
        if core.speed < self.fastest.speed:
            high = thread.elasticity[1] if thread.elasticity else 0.0
            behind = 1.0 - core.speed / thread.cpu if thread.cpu > core.speed else 0.0
            loss = 100.0 * max(high * (1.0 - core.speed), behind, 0.0)
        return _Option(place, use, loss, use * core.power.dynamic_model_watts)

    def near(self, thread: Thread) -> list[_Option]:
        """The thread's present place first; then places on the node of its memory."""
        now = self.start(thread)
        node = now.node if thread.memory_node is None else thread.memory_node
        others = [place for place in self.places if place.node == node and place != now]
        return [self.option(thread, place) for place in (now, *others)]

    def options(self, thread: Thread) -> list[_Option]:
        """The options near the thread, without those that its cpuset rules out."""
        now, *others = self.near(thread)
        return [now, *(each for each in others if thread.may_be(each.place))]


def plan(
    threads: Sequence[Thread],
    classes: Sequence[CoreClass],
    constraints: Constraints,
    effort: Effort = NORMAL,
) -> PlacementPlan:
    """The plan with the least modelled power.

    Threads have different ids, `now` names known places, and there is at least one class. Doing
    nothing is always allowed: what is crowded or over its budget already need not get better, but
    must not get worse.
    """
    host = _host(classes)
    movable = {each.id: host.options(each) for each in threads if not _held(each, constraints)}
    mended = _mended(threads, movable, host, constraints)
    problem = _problem(threads, movable, mended, host, constraints)
    found = solve(problem, effort)
    flat = [option for options in movable.values() for option in options]
    options = {
        each: flat[index] for each, index in zip(movable, found.chosen.tolist(), strict=True)
    }
    for thread in threads:
        options.setdefault(thread.id, host.option(thread, host.start(thread)))
    return _plan(threads, options, movable, host, constraints, found)


def _host(classes: Sequence[CoreClass]) -> _Host:
    places = [Place(each.name, node) for each in classes for node in sorted(each.cores)]
    return _Host(
        {each.name: each for each in classes},
        {place: number for number, place in enumerate(places)},
        max(classes, key=lambda each: each.speed),
    )


def _held(thread: Thread, constraints: Constraints) -> str | None:
    """Why the thread is not moved, if it is held."""
    if thread.role == VCPU and not constraints.vcpus_may_slow:
        return "it runs the guest itself, and vCPUs are not to move"
    if thread.elasticity is None:
        return "how sensitive it is to slow cores is not known"
    return None


def _budget(guest: str | None, constraints: Constraints) -> float:
    own = None if guest is None else constraints.loss_by_guest.get(guest)
    return constraints.loss_percent if own is None else own


def _losses(threads: Iterable[Thread], options: Mapping[str, _Option]) -> dict[str | None, float]:
    found: dict[str | None, float] = {}
    for thread in threads:
        found[thread.guest] = found.get(thread.guest, 0.0) + options[thread.id].loss
    return found


def _room(
    threads: Iterable[Thread], options: Mapping[str, _Option], host: _Host, headroom: float
) -> dict[Place, float]:
    """What is free in each place."""
    room = {
        place: host.classes[place.core_class].cores[place.node] * (1.0 - headroom)
        for place in host.places
    }
    for thread in threads:
        room[options[thread.id].place] -= options[thread.id].use
    return room


def _mended(
    threads: Sequence[Thread],
    movable: Mapping[str, Sequence[_Option]],
    host: _Host,
    constraints: Constraints,
) -> dict[str, _Option]:
    """The threads' present places, but for guests over their budget those where they lose least."""
    options = {each.id: host.option(each, host.start(each)) for each in threads}
    room = _room(threads, options, host, constraints.headroom)
    losses = _losses(threads, options)
    for thread in sorted(threads, key=lambda each: -options[each.id].loss):
        old = options[thread.id]
        if losses[thread.guest] <= _budget(thread.guest, constraints) + _SLACK:
            continue
        fits = [new for new in movable.get(thread.id, ()) if new.use <= room[new.place]]
        new = min(fits, key=lambda each: each.loss, default=old)
        if new.loss < old.loss:
            room[old.place] += old.use
            room[new.place] -= new.use
            losses[thread.guest] += new.loss - old.loss
            options[thread.id] = new
    return options


def _problem(
    threads: Sequence[Thread],
    movable: Mapping[str, Sequence[_Option]],
    start: Mapping[str, _Option],
    host: _Host,
    constraints: Constraints,
) -> Problem:
    held = [each for each in threads if each.id not in movable]
    moving = [each for each in threads if each.id in movable]
    guests = {guest: number for number, guest in enumerate({each.guest: 0 for each in threads})}
    free = _room(held, start, host, constraints.headroom)
    still = _room(threads, start, host, constraints.headroom)
    lost, losses = _losses(held, start), _losses(threads, start)
    flat = [
        (item, guests[thread.guest], option, option.place == host.start(thread))
        for item, thread in enumerate(moving)
        for option in movable[thread.id]
    ]
    worth = WORTH * host.fastest.power.dynamic_model_watts
    firsts = np.cumsum([0, *(len(movable[each.id]) for each in moving)])[:-1]
    return Problem(
        item=np.array([item for item, _, _, _ in flat], dtype=np.int64),
        group=np.array([host.places[each.place] for _, _, each, _ in flat], dtype=np.int64),
        family=np.array([guest for _, guest, _, _ in flat], dtype=np.int64),
        cost=np.array([each.model_watts + (0 if stays else worth) for _, _, each, stays in flat]),
        use=np.array([each.use for _, _, each, _ in flat]),
        loss=np.array([each.loss for _, _, each, _ in flat]),
        # A place that is too full already may stay so.
        capacities=np.array([free[place] - min(still[place], 0.0) for place in host.places]),
        budgets=np.array(
            [
                max(_budget(guest, constraints), losses[guest]) - lost.get(guest, 0.0)
                for guest in guests
            ]
        ),
        start=np.array(
            [
                first + list(movable[each.id]).index(start[each.id])
                for first, each in zip(firsts, moving, strict=True)
            ],
            dtype=np.int64,
        ),
    )


def _plan(
    threads: Sequence[Thread],
    options: Mapping[str, _Option],
    movable: Mapping[str, Sequence[_Option]],
    host: _Host,
    constraints: Constraints,
    found: Assigned,
) -> PlacementPlan:
    before = {each.id: host.option(each, host.start(each)) for each in threads}
    room = _room(threads, options, host, constraints.headroom)
    losses = _losses(threads, options)
    gap = 100.0 * (found.cost - found.bound) / found.cost if found.cost > 0 else 0.0
    return PlacementPlan(
        places={each.id: options[each.id].place for each in threads},
        reasons={
            each.id: _held(each, constraints)
            or _why(each, options[each.id], before[each.id], movable[each.id], host, room,
                    _budget(each.guest, constraints) - losses[each.guest])
            for each in threads
        },
        moved=frozenset(
            each.id for each in threads if options[each.id].place != before[each.id].place
        ),
        dynamic_model_watts=sum(each.model_watts for each in options.values()),
        dynamic_model_watts_before=sum(each.model_watts for each in before.values()),
        idle_model_watts=sum(
            sum(each.cores.values()) * each.power.idle_model_watts for each in host.classes.values()
        ),
        loss_percent=losses,
        loss_percent_before=_losses(threads, before),
        method=found.method,
        gap_percent=max(gap, 0.0) if np.isfinite(gap) else None,
        notes=_notes(losses, room, constraints),
    )  # fmt: skip


def _per_watt(losses: Mapping[str | None, float], model_watts: float) -> float | None:
    kept = [max(100.0 - loss, 0.0) for loss in losses.values()]
    return performance_per_model_watt(statistics.fmean(kept), model_watts) if kept else None


def _notes(
    losses: Mapping[str | None, float], room: Mapping[Place, float], constraints: Constraints
) -> tuple[str, ...]:
    """The limits that no plan keeps to that was found."""
    over = [
        f"{guest or 'threads of no guest'} may lose {loss:.1f} % with this plan, more than the"
        f" budget of {_budget(guest, constraints):g} %: what would help may not move or has no room"
        for guest, loss in losses.items()
        if loss > _budget(guest, constraints) + _SLACK
    ]
    full = [
        f"{place} are fuller than the headroom allows" for place in room if room[place] < -_SLACK
    ]
    return (*over, *full)


def _why(
    thread: Thread,
    option: _Option,
    before: _Option,
    options: Sequence[_Option],
    host: _Host,
    room: Mapping[Place, float],
    spare: float,
) -> str:
    """Why the thread is there: what that costs and saves, or what keeps it from a cheaper place."""
    guest = thread.guest or "the host"
    if option.place != before.place:
        saved = before.model_watts - option.model_watts
        effect = f"saves {saved:.3g} W" if saved > 0 else f"takes {-saved:.3g} W more"
        return f"{guest} loses at most {option.loss:.1f} % by it, and the move {effect} (model)"
    most = option.model_watts - WORTH * host.fastest.power.dynamic_model_watts
    cheaper = [each for each in options if each.model_watts < most]
    if not cheaper and any(each.model_watts < most for each in host.near(thread)):
        return "its cpuset has none of the cores of its node that take less power (model)"
    if not cheaper:
        memory = thread.memory_node
        where = "" if memory is None else f": its guest's memory is on node {memory}"
        return f"no other place of its node takes less power (model){where}"
    best = min(cheaper, key=lambda each: each.loss)
    if best.loss - option.loss > spare + _SLACK:
        left = max(spare + option.loss, 0.0)
        return f"{guest} may lose {best.loss:.1f} % on {best.place}, and {left:.1f} % is left to it"
    if all(each.use > room[each.place] for each in cheaper):
        return "the places that take less power (model) have no room for it"
    return "others in its place save more power (model)"
