"""What `vtax place advise` says of the threads of a host, from what they did in a window.

The service domain of a guest is its service threads; a process that serves no single guest, such as
a switch, is a domain of its own. A predictor was fitted to whole service domains. So its value is
the sum over the domain, and the loss that it predicts is that of all the domain's threads together:
some of them cost at most that. Where this loss fits the budget, the planner gets each thread's part
of it, and otherwise the whole loss for each thread. Threads of the kernel that serve everybody were
not among those that `vtax place measure` slows, and nothing is known of them.

The planner (vtax.place.placement) decides where threads go. Advice is what is allowed: a thread
that may go to slow cores and does too little for a move has the advice *slow*, and stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from vtax.place import placement
from vtax.place import sensitivity as place_advice
from vtax.place.analysis import FULL
from vtax.place.fast_room import Kept, Wish, kept
from vtax.place.host_cores import HostCores
from vtax.place.placement import IDLE, Constraints, CoreClass, Place, PlacementPlan
from vtax.place.plan import PlannedThread, cpu_list
from vtax.place.record import Advice, Predictor, ThreadAdvice
from vtax.place.sensitivity import Sensitivity, advise, by_predictor
from vtax.place.service_domain import MONITOR, RUNS_A_GUEST, SHARED, VCPU


@dataclass(frozen=True, slots=True)
class HostThread:
    """A thread, and what it did in the window. None: not known."""

    pid: int
    tid: int
    start_ticks: int
    name: str
    role: str
    service: bool
    guest: str | None
    cpu: float | None
    """CPU seconds per second on whatever core; in advice, of a full-speed core."""
    run_delay: float | None
    """Seconds per second in which the thread was ready and had no CPU."""
    cpus: tuple[int, ...]
    """The CPUs that it may run on."""
    last_cpu: int
    cpuset: tuple[int, ...] = ()
    """The CPUs that its cpuset allows; empty: no limit."""
    memory_node: int | None = None
    """NUMA node of its guest's memory; None: not known, or there is one node."""

    @property
    def id(self) -> str:
        """A name for the reader."""
        return f"{self.name} ({self.tid})"

    @property
    def planner_role(self) -> str:
        """Its role to the planner, for which whatever runs a guest is a vCPU."""
        return VCPU if self.role in RUNS_A_GUEST else self.role

    def within(self, cpus: frozenset[int]) -> frozenset[int]:
        """The CPUs among `cpus` that its cpuset allows."""
        return cpus.intersection(self.cpuset) if self.cpuset else cpus

    @property
    def domain(self) -> str | None:
        """The service domain that the thread belongs to, if any."""
        if not self.service or self.role in SHARED:
            return None
        return f"process {self.pid}" if self.guest is None else f"guest {self.guest}"


@dataclass(frozen=True, slots=True)
class Advised:
    """A thread, the advice on it, and its CPUs in the plan."""

    thread: HostThread
    advice: ThreadAdvice
    core_class: str
    cpus: tuple[int, ...]
    """The CPUs that it is to run on; its present ones where nothing is known."""
    sentence: str
    """Says where it goes or stays, and why."""

    @property
    def moves(self) -> bool:
        """Whether its CPUs change."""
        return self.cpus != self.thread.cpus


@dataclass(frozen=True)
class HostAdvice:
    """Advice on every thread, and the plan that fits all of it."""

    threads: tuple[Advised, ...]
    cores: HostCores
    plan: PlacementPlan

    @cached_property
    def planned(self) -> tuple[PlannedThread, ...]:
        """The threads that the plan moves, or keeps to some of their CPUs."""
        return tuple(_planned(each) for each in self.threads if each.moves)

    def by_guest(self) -> Mapping[str, tuple[PlannedThread, ...]]:
        """The threads of each guest with the CPUs that they are to have, without those that may run
        anywhere."""
        found: dict[str, list[PlannedThread]] = {}
        for each in self.threads:
            anywhere = each.advice.advice == "slow" and not each.moves
            if each.thread.guest is not None and each.cpus and not anywhere:
                found.setdefault(each.thread.guest, []).append(_planned(each))
        return {guest: tuple(own) for guest, own in sorted(found.items())}


def advice(
    threads: Sequence[HostThread],
    cores: HostCores,
    predictor: Predictor | Sensitivity | None,
    constraints: Constraints,
    devices: Mapping[str, float],
) -> HostAdvice:
    """Advice on the threads of a host.

    A sensitivity instead of a predictor is assumed for every service domain. `devices` has the
    utilisation of links in percent, by service domain.
    """
    threads = [replace(each, cpu=_full_speed_cpu(each, cores)) for each in threads]
    values = _values(threads, devices)
    known: dict[int, Sensitivity] = {}
    for each in threads:
        if not each.domain or _elsewhere(each, cores):
            continue
        if found := _sensitivity(predictor, values[each.domain]):
            known[each.tid] = found
    sizes = Counter(each.domain for each in threads)
    plan = placement.plan(
        [
            _to_place(each, cores, known.get(each.tid), constraints, sizes[each.domain])
            for each in threads
        ],
        cores.planned(),
        constraints,
    )
    judge = _Judge(cores, constraints, plan)
    given = [
        judge.given(each, sensitivity, "")
        if (sensitivity := known.get(each.tid))
        else judge.given(each, None, _unknown(each, cores, predictor, values))
        for each in threads
    ]
    return HostAdvice(judge.advised(threads, given), cores, plan)


def _full_speed_cpu(thread: HostThread, cores: HostCores) -> float | None:
    """The thread's CPU time on a full-speed core: one that is kept to slow cores would need less
    there."""
    now = _now(thread, cores)
    speeds = {each.name: each.speed_percent / FULL for each in cores.classes}
    return None if thread.cpu is None else thread.cpu * (speeds[now.core_class] if now else 1.0)


def _sensitivity(
    predictor: Predictor | Sensitivity | None, values: Mapping[str, float | None]
) -> Sensitivity | None:
    if isinstance(predictor, Sensitivity):
        return predictor
    return by_predictor(predictor, values)


def _values(
    threads: Sequence[HostThread], devices: Mapping[str, float]
) -> Mapping[str, Mapping[str, float | None]]:
    """What predictors use, for each service domain, named as `vtax.place.analysis.at_full_speed`
    does."""
    domains: dict[str, list[HostThread]] = {}
    for each in threads:
        if each.domain is not None:
            domains.setdefault(each.domain, []).append(each)
    found = {}
    for name, own in domains.items():
        cpu, delay = _sum([each.cpu for each in own]), _sum([each.run_delay for each in own])
        device = devices.get(name)
        found[name] = {
            "combined usage": None if cpu is None or device is None else FULL * cpu + device,
            "service CPU": None if cpu is None else FULL * cpu,
            "run delay": None if delay is None else FULL * delay,
        }
    return found


def _sum(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) if len(known) == len(values) else None


def _to_place(
    thread: HostThread,
    cores: HostCores,
    sensitivity: Sensitivity | None,
    constraints: Constraints,
    size: int,
) -> placement.Thread:
    """The thread as the planner takes it; `size` is how many threads its domain has."""
    elasticity = None
    if sensitivity is not None:
        lost = sensitivity.high * (FULL - cores.slowest_percent)
        parts = size if lost <= constraints.budget(thread.guest) else 1
        elasticity = sensitivity.low / parts, sensitivity.high / parts
    return placement.Thread(
        id=thread.id,
        role=thread.planner_role,
        guest=thread.guest or thread.domain,
        cpu=min(thread.cpu or 0.0, 1.0),
        elasticity=elasticity,
        memory_node=thread.memory_node,
        now=_now(thread, cores),
        allowed=None if cores.supposed else _allowed(thread, cores),
    )


def _allowed(thread: HostThread, cores: HostCores) -> frozenset[Place]:
    """The places of which the thread's cpuset has a CPU."""
    places = {Place(each.name, node) for each in cores.classes for node in cores.node.values()}
    return frozenset(place for place in places if thread.within(cores.cpus(place)))


def _elsewhere(thread: HostThread, cores: HostCores) -> bool:
    """Whether the thread may run on none of the CPUs that are known here, but on one that is
    off."""
    return bool(thread.cpus) and not cores.node.keys() & set(thread.cpus)


def _now(thread: HostThread, cores: HostCores) -> Place | None:
    """Where the thread is kept; None: it may run on several classes, and there is one node."""
    node = cores.node.get(thread.last_cpu, 0)
    fastest = cores.classes[0]
    own = cores.node.keys() & set(thread.cpus)
    for each in cores.classes:
        if own and each.cpus.issuperset(own):
            if any(cores.node.get(cpu, 0) == node for cpu in each.cpus):
                return Place(each.name, node)
            return Place(each.name, min(cores.node.get(cpu, 0) for cpu in own))
    if any(cores.node.get(cpu, 0) == node for cpu in fastest.cpus):
        return Place(fastest.name, node)
    return None


def _unknown(
    thread: HostThread,
    cores: HostCores,
    predictor: Predictor | Sensitivity | None,
    values: Mapping[str, Mapping[str, float | None]],
) -> str:
    """Why nothing says how sensitive the thread is."""
    if _elsewhere(thread, cores):
        own = cpu_list(thread.cpus)
        return f"the CPUs that it may run on ({own}) are off or isolated"
    if thread.role == MONITOR:
        return "it does no work for a guest"
    if thread.role in SHARED:
        return "it serves all guests, and was not slowed when sensitivity was measured"
    if thread.domain is None:
        return "what it does for guests is not known"
    if not isinstance(predictor, Predictor):
        return "no measurement predicts how sensitive it is"
    value = values[thread.domain].get(predictor.name)
    what = f"the {predictor.name} of {thread.domain}"
    if value is None:
        return f"{what} is not known"
    return f"{what} is {value:.3g}, and {predictor.least:.3g} to {predictor.most:.3g} was measured"


@dataclass(frozen=True)
class _Judge:
    """Judges threads by what holds for all of them."""

    cores: HostCores
    constraints: Constraints
    plan: PlacementPlan

    @cached_property
    def classes(self) -> Mapping[str, CoreClass]:
        return {each.name: each for each in self.cores.planned()}

    def advised(
        self, threads: Sequence[HostThread], given: Sequence[ThreadAdvice]
    ) -> tuple[Advised, ...]:
        """The same threads with the advice on them, and their CPUs."""
        pairs = list(zip(threads, given, strict=True))
        wishes = [Wish(each.id, _asks(each), self._choices(each, own)) for each, own in pairs]
        found = kept(wishes, self.cores.worth, lambda cpus: f"CPU {cpu_list(cpus)}")
        return tuple(self._one(each, own, found[each.id]) for each, own in pairs)

    def _one(self, thread: HostThread, given: ThreadAdvice, room: Kept) -> Advised:
        cpus = tuple(sorted(room.cpus))
        return Advised(
            thread=thread,
            advice=given,
            core_class=self.plan.places[thread.id].core_class,
            cpus=cpus,
            sentence=self._sentence(thread, given, cpus, room),
        )

    def given(
        self, thread: HostThread, sensitivity: Sensitivity | None, unknown: str
    ) -> ThreadAdvice:
        """The advice on a thread; `unknown` is why there is no sensitivity."""
        place = self.plan.places[thread.id]
        slow = self._slow(place)
        budget = self.constraints.budget(thread.guest)
        asked = place_advice.Thread(
            thread.pid, thread.tid, thread.name, thread.planner_role, thread.guest
        )
        found = advise(asked, sensitivity, FULL * slow.speed, budget)
        found = found.model_copy(update={"role": thread.role})
        if found.advice == "unknown":
            return _changed(found, "unknown", unknown)
        if found.advice != "slow" or place.core_class == slow.name:
            return found
        if not self.cores.supposed and not thread.within(self.cores.slower):
            cpuset = cpu_list(thread.cpuset)
            return _changed(found, "fast", f"its cpuset ({cpuset}) has no slower cores")
        cpu = thread.cpu or 0.0
        if FULL * (1.0 - slow.speed / max(cpu, slow.speed)) > budget:
            busy = f"it needs {FULL * cpu:.0f} % of a fast core, and a slow one has"
            return _changed(found, "fast", f"{busy} {FULL * slow.speed:.0f} %")
        if cpu >= IDLE:
            return _changed(found, "fast", self.plan.reasons[thread.id])
        return found

    def _slow(self, place: Place) -> CoreClass:
        """The class of slower cores that advice is about."""
        name, classes = place.core_class, self.cores.classes
        return self.classes[classes[-1].name if name == classes[0].name else name]

    def _choices(self, thread: HostThread, given: ThreadAdvice) -> tuple[frozenset[int], ...]:
        """The sets of CPUs that a thread could have; its present ones where nothing is known or
        gained.

        A thread that is to be fast is kept off the slower cores that it may run on, as far as the
        faster cores have room.
        """
        now = frozenset(thread.cpus)
        if given.advice == "unknown" or self.cores.supposed:
            return (now,)
        if thread.id in self.plan.moved:
            return (thread.within(self.cores.cpus(self.plan.places[thread.id])),)
        if given.advice != "fast":
            return (now,)
        faster, found = frozenset[int](), list[frozenset[int]]()
        for each in self.cores.classes:
            faster |= each.cpus
            own = now & thread.within(faster)
            if own and own not in found:
                found.append(own)
        # With cores of all kinds a thread stays as it is, also where it may run on CPUs of no kind.
        return (*found[:-1], now) if len(found) > 1 else (found[0] if found else now,)

    def _sentence(
        self, thread: HostThread, given: ThreadAdvice, cpus: tuple[int, ...], room: Kept
    ) -> str:
        where = f"{given.advice} cores"
        if given.advice == "unknown":
            what = "stays where it is"
        elif room.crowded is not None:
            what = f"is to run on {cpu_list(cpus)}, for {room.crowded}"
        elif cpus != thread.cpus:
            moved = thread.id in self.plan.moved
            verb = "goes to" if moved else "is kept to"
            where = f"{self.plan.places[thread.id].core_class} cores" if moved else where
            what = f"{verb} {where} ({cpu_list(cpus)})"
        else:
            what = f"may go to {where}" if given.advice == "slow" else f"stays on {where}"
        return f"{thread.id} {what}: {given.reason}{self._memory(thread)}"

    def _memory(self, thread: HostThread) -> str:
        """Words on memory, where its node decides to which of several nodes a thread goes."""
        place = self.plan.places[thread.id]
        moved = thread.id in self.plan.moved and thread.memory_node == place.node
        if not moved or len(self.classes[place.core_class].cores) < 2:
            return ""
        return f"; its guest's memory is on node {place.node}"


def _asks(thread: HostThread) -> float:
    """Cores' worth of CPU time; 1 where it is not known and the thread runs a guest."""
    if thread.cpu is None:
        return 1.0 if thread.planner_role == VCPU else 0.0
    return min(thread.cpu + (thread.run_delay or 0.0), 1.0)


def _changed(given: ThreadAdvice, to: Advice, reason: str) -> ThreadAdvice:
    return given.model_copy(update={"advice": to, "reason": reason})


def _planned(each: Advised) -> PlannedThread:
    thread = each.thread
    return PlannedThread(
        pid=thread.pid,
        tid=thread.tid,
        start_ticks=thread.start_ticks,
        name=thread.name,
        role=thread.role,
        cpus=cpu_list(each.cpus),
    )
