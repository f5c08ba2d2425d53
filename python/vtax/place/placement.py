"""The planner of `vtax place`: which class of cores each thread belongs on, and why.

A thread that uses the share u of a full-speed core uses u / s of a core of speed s, at most all of
it. The guest's loss there is what the upper end of the thread's elasticity interval says, and at
least the loss of a thread that the core cannot keep up with. The losses of a guest's threads are
added, which is more than they cost together where they overlap: a budget is kept, not used up.

As in `vtax place watch`, the busiest thread goes first, to the slowest cores that its guest's
budget and the room there allow. Before that, guests that lose more than their budget where they
are get their threads back to faster cores.

A thread is held where it is when its sensitivity is not known, and a vCPU unless vCPUs may move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vtax.place.service_domain import VCPU

IDLE = 0.002
"""Share of a fast core: a thread that uses less is not worth a move."""
_ROUNDING = 1e-6
"""In percent or cores: room and budgets are sums of fractions."""


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

    def budget(self, guest: str | None) -> float:
        """Percent of its performance that a guest may lose."""
        own = None if guest is None else self.loss_by_guest.get(guest)
        return self.loss_percent if own is None else own

    def held(self, thread: Thread) -> str | None:
        """Why the thread is not moved, if it is held."""
        if thread.role == VCPU and not self.vcpus_may_slow:
            return "it runs the guest itself, and vCPUs are not to move"
        if thread.elasticity is None:
            return "how sensitive it is to slow cores is not known"
        return None


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A place for every thread."""

    places: Mapping[str, Place]
    reasons: Mapping[str, str]
    moved: frozenset[str]
    loss_percent: Mapping[str | None, float]
    """What each guest loses, at most."""
    notes: tuple[str, ...]

    def explain(self, thread: str) -> str:
        """One sentence on where a thread goes and why."""
        verb = "goes to" if thread in self.moved else "stays on"
        return f"{thread} {verb} {self.places[thread]}: {self.reasons[thread]}"


@dataclass(frozen=True, slots=True)
class _Option:
    """A place that a thread may have."""

    place: Place
    speed: float
    use: float
    """Cores' worth of CPU time."""
    loss: float
    """Percent of its guest's performance, at most."""


@dataclass(frozen=True, slots=True)
class _Host:
    """Places and classes."""

    classes: Mapping[str, CoreClass]
    places: Sequence[Place]
    fastest: CoreClass

    def start(self, thread: Thread) -> Place:
        """The place that the thread has before the plan."""
        if thread.now is not None:
            return thread.now
        node, nodes = thread.memory_node, self.fastest.cores
        return Place(self.fastest.name, min(nodes) if node is None or node not in nodes else node)

    def option(self, thread: Thread, place: Place) -> _Option:
        core = self.classes[place.core_class]
        loss = 0.0
        if core.speed < self.fastest.speed:
            high = thread.elasticity[1] if thread.elasticity else 0.0
            behind = 1.0 - core.speed / thread.cpu if thread.cpu > core.speed else 0.0
            loss = 100.0 * max(high * (1.0 - core.speed), behind, 0.0)
        return _Option(place, core.speed, min(thread.cpu / core.speed, 1.0), loss)

    def near(self, thread: Thread) -> list[_Option]:
        """Other places than the present one, on the node of the thread's memory, the slowest
        first."""
        now = self.start(thread)
        node = now.node if thread.memory_node is None else thread.memory_node
        others = [place for place in self.places if place.node == node and place != now]
        return sorted((self.option(thread, each) for each in others), key=lambda each: each.speed)

    def options(self, thread: Thread) -> list[_Option]:
        """The places near the thread, without those that its cpuset rules out."""
        return [each for each in self.near(thread) if thread.may_be(each.place)]


class _Placing:
    """The places that threads have by now, and what these leave of room and budgets."""

    def __init__(self, threads: Sequence[Thread], host: _Host, constraints: Constraints) -> None:
        self.host, self.constraints = host, constraints
        self.chosen = {each.id: host.option(each, host.start(each)) for each in threads}
        self.room = {
            place: host.classes[place.core_class].cores[place.node] * (1.0 - constraints.headroom)
            for place in host.places
        }
        self.losses: dict[str | None, float] = {each.guest: 0.0 for each in threads}
        for each in threads:
            self.room[self.chosen[each.id].place] -= self.chosen[each.id].use
            self.losses[each.guest] += self.chosen[each.id].loss

    def relieve(self, threads: Iterable[Thread]) -> None:
        """Take threads of guests over their budget to where they lose least."""
        for thread in sorted(threads, key=lambda each: -self.chosen[each.id].loss):
            now = self.chosen[thread.id]
            fits = [each for each in self.host.options(thread) if self._has_room(each)]
            best = min(fits, key=lambda each: each.loss, default=now)
            if self.spare(thread.guest) < 0 and best.loss < now.loss:
                self._take(thread, best)

    def slow(self, threads: Iterable[Thread]) -> None:
        """Take each thread to the slowest cores that it may have, the busiest first."""
        for thread in sorted(threads, key=lambda each: -each.cpu):
            now = self.chosen[thread.id]
            for each in _slower(now, self.host.options(thread)):
                fits = each.loss - now.loss <= max(self.spare(thread.guest), 0.0) + _ROUNDING
                if thread.cpu >= IDLE and fits and self._has_room(each):
                    self._take(thread, each)
                    break

    def spare(self, guest: str | None) -> float:
        """Percent that a guest may lose beyond what it loses by now; below 0: it loses too much."""
        spare = self.constraints.budget(guest) - self.losses[guest]
        return 0.0 if abs(spare) <= _ROUNDING else spare

    def why(self, thread: Thread) -> str:
        """What a move costs, or what keeps the thread from slower cores."""
        guest = thread.guest or "the host"
        now, before = self.chosen[thread.id], self.host.option(thread, self.host.start(thread))
        if now.place != before.place:
            instead = f" instead of {before.loss:.1f} %" if now.loss < before.loss else ""
            return f"{guest} loses at most {now.loss:.1f} % by it{instead}"
        options = _slower(now, self.host.options(thread))
        if not options and _slower(now, self.host.near(thread)):
            return "its cpuset has none of the cores of its node that are slower"
        if not options:
            memory = thread.memory_node
            where = "" if memory is None else f": its guest's memory is on node {memory}"
            return f"its node has no slower cores{where}"
        if thread.cpu < IDLE:
            return "it does too little for a move"
        best = min(options, key=lambda each: each.loss)
        left = max(self.spare(thread.guest), 0.0)
        if best.loss - now.loss > left + _ROUNDING:
            lost = f"{guest} may lose {best.loss:.1f} % on {best.place}"
            return f"{lost}, and {left + now.loss:.1f} % is left to it"
        return "the slower cores have no room for it"

    def notes(self) -> tuple[str, ...]:
        """The limits that the plan does not keep to."""
        over = [
            f"{guest or 'threads of no guest'} may lose {loss:.1f} % with this plan, more than the"
            f" budget of {self.constraints.budget(guest):g} %: what would help may not move or has"
            " no room"
            for guest, loss in self.losses.items()
            if self.spare(guest) < 0
        ]
        full = [
            f"{place} are fuller than the headroom allows"
            for place, free in self.room.items()
            if free < -_ROUNDING
        ]
        return (*over, *full)

    def _has_room(self, option: _Option) -> bool:
        return option.use <= self.room[option.place] + _ROUNDING

    def _take(self, thread: Thread, new: _Option) -> None:
        old = self.chosen[thread.id]
        self.room[old.place] += old.use
        self.room[new.place] -= new.use
        self.losses[thread.guest] += new.loss - old.loss
        self.chosen[thread.id] = new


def plan(
    threads: Sequence[Thread], classes: Sequence[CoreClass], constraints: Constraints
) -> PlacementPlan:
    """A place for every thread within budgets, cpusets, nodes and room.

    Threads have different ids, `now` names known places, and there is at least one class. Doing
    nothing is always allowed: what is crowded or over its budget already need not get better, but
    must not get worse.
    """
    host = _host(classes)
    placing = _Placing(threads, host, constraints)
    movable = [each for each in threads if constraints.held(each) is None]
    placing.relieve(movable)
    placing.slow(movable)
    places = {each.id: placing.chosen[each.id].place for each in threads}
    return PlacementPlan(
        places=places,
        reasons={each.id: constraints.held(each) or placing.why(each) for each in threads},
        moved=frozenset(each.id for each in threads if places[each.id] != host.start(each)),
        loss_percent=placing.losses,
        notes=placing.notes(),
    )


def _slower(now: _Option, options: Iterable[_Option]) -> list[_Option]:
    """The options on slower cores than those of `now`."""
    return [each for each in options if each.speed < now.speed]


def _host(classes: Sequence[CoreClass]) -> _Host:
    return _Host(
        {each.name: each for each in classes},
        [Place(each.name, node) for each in classes for node in sorted(each.cores)],
        max(classes, key=lambda each: each.speed),
    )
