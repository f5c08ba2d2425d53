"""`place measure`: loads while the machine's service threads are slow, each beside a control."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vtax.core.errors import VtaxError
from vtax.core.formats.model import Sample
from vtax.core.runner.campaign import Request, StagedCampaign
from vtax.core.runner.repetition import Instrument, Repetition
from vtax.core.runner.runner import Done, Step, Variant, kept_cpus
from vtax.core.runner.samples import sample
from vtax.environments.base import Environment, MachineLike, allowed_cpus
from vtax.environments.capabilities import Link
from vtax.place import analysis
from vtax.place import hypothesis as place_hypothesis
from vtax.place.analysis import FULL, SpeedRun
from vtax.place.host_program import HostAround
from vtax.place.instruments import power, service_threads, slow_core
from vtax.place.instruments.load import Loading, is_saturated, serve
from vtax.place.instruments.power import Power
from vtax.place.instruments.service_threads import ServiceThreads
from vtax.place.instruments.slow_core import SlowCore
from vtax.place.record import PlaceEnvironment, PlaceRecord
from vtax.place.service_domain import Backend, Service
from vtax.workloads.base import Command, Metric
from vtax.workloads.loads.base import GRACE_S, Load

THROUGHPUT = "throughput"
NOTHING = Command(("true",), timeout_s=GRACE_S)
IDLE_PERCENT = 0.2
"""Percent of a core: threads that use less, whatever the load, do not serve it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRequest(Request):
    """What `vtax place measure` is asked for."""

    environments: Mapping[str, Environment]
    """Environments by spec. Each has a link."""
    loads: Mapping[str, Load]
    speeds: Sequence[float]
    """Speeds below 100 %; empty: only full speed."""
    backends: Sequence[Backend]
    service: Sequence[int]
    """Thread ids of this host; empty: the environments' own service threads."""
    rounds: int
    seconds: int
    """The length of each measurement."""
    vcpus: bool = False
    """Whether to slow the guest's own vCPUs instead of its service threads
    (`service_domain.Service.vcpus`)."""


@dataclass(frozen=True, slots=True)
class Point:
    """What is measured: a load in an environment, at a speed of its service threads."""

    environment: str
    load: str
    backend: str | None = None
    """None: the environment has no slow points."""
    speed: float = FULL

    @property
    def how(self) -> str:
        return "full speed" if self.backend is None else f"{self.speed:g} % by {self.backend}"

    @property
    def label(self) -> str:
        return f"{self.environment} {self.load}, {self.how}"

    @property
    def control(self) -> Point:
        """The point at full speed, all else equal: being in a control group changes scheduling,
        too."""
        return replace(self, speed=FULL)


@dataclass(frozen=True, slots=True)
class _Task:
    """The purpose of a step."""

    point: Point
    pair: int | None
    """The number that a point shares with its control; None: a first look, which is not counted."""
    backend: str
    """The backend of the pair; empty: the environment has no slow point."""
    round: int


@dataclass(slots=True)
class _Seen:
    """What the campaign learns about one environment."""

    spec: str
    service: Service
    machine_cpus: Sequence[int]
    client_cpu: int
    description: str = ""
    notes: tuple[str, ...] = ()
    lost_loads: set[str] = field(default_factory=set)
    """Loads that failed at the first look."""
    has_ways: bool = True
    """Whether a back end was asked for that slows the environment's service."""
    busiest_percent: float = 0.0
    """The most CPU time that the environment's service threads took in a first look."""

    @property
    def absent(self) -> str | None:
        """Why the environment has no slow points; None: it has some."""
        if not self.service.threads:
            if self.service.vcpus:
                return "no slow points: it has no threads that are its vCPUs"
            return "no slow points: no thread of the host's serves it alone"
        if not self.has_ways:
            return "no slow points: no back end that was asked for slows its service"
        if self.busiest_percent < IDLE_PERCENT:
            return "no slow points: no load made its service threads work"
        return None


@dataclass(eq=False)
class PlaceCampaign(StagedCampaign[PlaceRequest, PlaceRecord, _Task]):
    """Each load at each speed beside a control at full speed, in rounds."""

    _seen: dict[str, _Seen] = field(init=False)
    _commands: dict[str, Command] = field(init=False)
    """The commands of the loads, by name."""
    _chance: random.Random = field(init=False)
    _pairs: int = field(default=0, init=False)
    _specs: dict[str, str] = field(default_factory=dict, init=False)
    """The spec of the environment of each variant, by label."""
    _runs: list[SpeedRun] = field(default_factory=list, init=False)
    _failures: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        request = self.request
        self._seen = {
            spec: _seen(spec, each, frozenset(request.service), vcpus=request.vcpus)
            for spec, each in request.environments.items()
        }
        for spec, seen in self._seen.items():
            seen.has_ways = bool(self._ways(spec)) or not request.speeds
        loads = request.loads.items()
        self._commands = {name: load.command(request.seconds) for name, load in loads}
        self._chance = random.Random(f"{request.seed} within pairs")

    @property
    def found(self) -> bool:
        """Whether anything was measured."""
        return bool(self._runs)

    @property
    def first_failure(self) -> str | None:
        """The message of the first step that failed."""
        return next(iter(self._failures), None)

    def record(self) -> PlaceRecord:
        request = self.request
        runs = sorted(self._runs, key=self._place)
        loads = analysis.loads(runs)
        return PlaceRecord(
            **self._head(),
            name="place",
            state=self.state,
            slowed="vcpus" if request.vcpus else "service",
            backends=tuple(each.name for each in request.backends),
            does_not={each.name: each.does_not for each in request.backends},
            speeds=(FULL, *request.speeds),
            seconds=request.seconds,
            rounds=request.rounds,
            seed=request.seed,
            environments=tuple(map(_environment, self._seen.values())),
            loads=loads,
            hypothesis=place_hypothesis.hypothesis(loads) if loads else None,
            rivals=place_hypothesis.rivals(loads),
            predictor=place_hypothesis.predictor(loads),
            findings=analysis.findings(loads),
            failures=tuple(self._failures),
        )

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        """Find the machine's service threads and give them their CPU; start the servers of all
        loads."""
        seen = self._seen[self._specs[variant.label]]
        seen.description = variant.environment.description(machine.facts)
        link = machine.offer(Link)
        if link is None:
            raise VtaxError("it has no link to this host", "write for example uml:net=vde")
        # Loads with the same port share a server.
        for load in {load.ready: load for load in self.request.loads.values()}.values():
            folder = f"server-{load.name}"
            serve(load, machine, variant.work, folder, self.request.variables)
        if link.host is not None:
            seen.service.around = HostAround(link.host, link.host_program)
        seen.service.find(link.pids)
        seen.notes = tuple(machine.launch.notes)

    def read(self, this: Repetition) -> None:
        if doubt := this.finished[0].doubt():
            raise VtaxError(f"not believed: {doubt}")

    def done(self, done: Done) -> None:
        task, metrics = self._point(done.step), done.repetition.metrics
        if task.pair is None:
            seen = self._seen[task.point.environment]
            used = _values(metrics).get(service_threads.CPU, 0.0)
            seen.busiest_percent = max(seen.busiest_percent, used)
            return
        self._runs.append(_run(task, task.pair, done, self.request.seconds))
        self._keep([_sample(task, metric, done) for metric in metrics])

    def failed(self, step: Step, error: VtaxError) -> None:
        task = self._point(step)
        if task.pair is None:
            self._seen[task.point.environment].lost_loads.add(task.point.load)
        said = f"{task.point.label}: {error}"
        if said not in self._failures:
            self._failures.append(said)

    def _place(self, run: SpeedRun) -> tuple[int, ...]:
        """The position of a run in the order in which environments, loads and backends were asked
        for."""
        request = self.request
        names = ("", *(each.name for each in request.backends))
        asked = (tuple(request.environments), tuple(request.loads), names)
        own = (run.environment, run.load, run.backend)
        return tuple(every.index(one) for every, one in zip(asked, own, strict=True))

    def _variants(self) -> Sequence[Variant]:
        return [
            self._variant(point)
            for spec in self.request.environments
            for load in self.request.loads
            for point in self._possible(spec, load)
        ]

    def _variant(self, point: Point) -> Variant:
        """The variant of a point; the outermost instrument first: the core is slow before
        measuring."""
        self._specs[point.label] = point.environment
        request, seen = self.request, self._seen[point.environment]
        instruments: list[Instrument] = []
        if point.backend is not None:
            instruments.append(SlowCore(seen.service, point.backend, point.speed))
        load, cpus = request.loads[point.load], (seen.client_cpu,)
        works_s = request.seconds if load.server else None
        instruments.append(Power())
        instruments.append(ServiceThreads(seen.service, works_s))
        instruments.append(Loading(load, request.seconds, cpus))
        environment = request.environments[point.environment]
        return Variant(point.label, environment, self.folder.raw(point.environment), instruments)

    def _stages(self) -> Iterator[Sequence[Step]]:
        """A first look at each load, then the rounds. An environment without a service has no slow
        points."""
        yield [
            self._tasked(_Task(Point(spec, load), None, "", 0))
            for spec in self.request.environments
            for load in self.request.loads
        ]
        for number in range(self.request.rounds):
            yield list(self._round(number))

    def _round(self, number: int) -> Iterator[Step]:
        """Every point once, beside its own control, in a new random order."""
        points = {
            point.label: point
            for spec, seen in self._seen.items()
            for load in self.request.loads
            if load not in seen.lost_loads
            for point in self._wanted(spec, load)
        }
        for label, _ in self._order.add(dict.fromkeys(points, 1)) if points else ():
            yield from self._pair(points[label], number)

    def _wanted(self, spec: str, load: str) -> Sequence[Point]:
        slow = () if self._seen[spec].absent else self._slow_points(spec, load)
        return slow or [Point(spec, load)]

    def _possible(self, spec: str, load: str) -> Sequence[Point]:
        """The point of the first look, and all points that are measured, each once."""
        slow = self._slow_points(spec, load)
        return list(dict.fromkeys((Point(spec, load), *(p.control for p in slow), *slow)))

    def _slow_points(self, spec: str, load: str) -> Sequence[Point]:
        return [
            Point(spec, load, backend.name, speed)
            for backend in self._ways(spec)
            for speed in self.request.speeds
        ]

    def _ways(self, spec: str) -> Sequence[Backend]:
        """The back ends that slow what serves an environment: this host, or one around it."""
        around = self.request.environments[spec].slowed_by()
        return [
            each
            for each in self.request.backends
            if (each.possible if around is None else each.name in around)
        ]

    def _pair(self, point: Point, number: int) -> Iterator[Step]:
        pair, self._pairs = self._pairs, self._pairs + 1
        both = [point] if point.backend is None else [point, point.control]
        self._chance.shuffle(both)
        for each in both:
            yield self._tasked(_Task(each, pair, point.backend or "", number))

    def _command(self, point: Point) -> Command:
        """What runs in the machine. Where a host around it serves it, nothing may last longer than
        the client, because the host's CPU time counts as long as the repetition lasts."""
        around = self.request.environments[point.environment].slowed_by() is not None
        if around and self.request.loads[point.load].server:
            return NOTHING
        return self._commands[point.load]

    def _tasked(self, task: _Task) -> Step:
        number, own = len(self._points), task.point
        command, out = self._command(own), self.folder.instruments(own.environment)
        return self._step(own.label, number, command, f"step-{number}", out, task)


def _seen(
    spec: str, environment: Environment, named: frozenset[int], *, vcpus: bool = False
) -> _Seen:
    """Put machine, service and client on CPUs of their own, as far as there are enough CPUs.

    `named`: threads that the user chose, which stay where they are; `vcpus`: the machine's own.
    """
    machine = kept_cpus(environment, matched=True)
    around = environment.slowed_by() is not None
    free = [cpu for cpu in allowed_cpus() if cpu not in machine]
    client = free[1] if len(free) > 1 else machine[0]
    if vcpus:
        return _Seen(spec, Service(machine[0], vcpus=True), machine, client)
    service = None if named or around else (free or machine)[0]
    return _Seen(spec, Service(service, named=named), machine, client)


def _run(task: _Task, pair: int, done: Done, seconds: int) -> SpeedRun:
    """A run as the analysis takes it: a point and its control share a round, the pair's."""
    metrics = done.repetition.metrics
    found = _values(metrics)
    lead = next(each for each in metrics if each.name == THROUGHPUT)
    point, slow = task.point, task.point.speed < FULL
    return SpeedRun(
        environment=point.environment,
        load=point.load,
        backend=task.backend,
        speed_asked_percent=point.speed,
        round=pair,
        throughput=lead.value,
        unit=lead.unit,
        boot=done.boot,
        speed_obtained_percent=found.get(slow_core.OBTAINED) if slow else FULL,
        service_cpu=_share(found.get(service_threads.CPU)),
        run_delay=_share(found.get(service_threads.RUN_DELAY)),
        device_percent=found.get("link_percent"),
        wakeups_per_s=found.get(service_threads.WAKEUPS),
        requests_per_s=found["requests"] / seconds if "requests" in found else None,
        packets_per_s=_packets(found, seconds),
        watts=found.get(power.WATTS),
        client_saturated=is_saturated(metrics),
        honoured=found.get(slow_core.HONOURED, 1.0) > 0,
    )


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0


def _packets(found: Mapping[str, float], seconds: int) -> float | None:
    """Packets per second in both directions together: the service handles all of them."""
    passed = [found.get(f"link_packets_{way}") for way in ("sent", "received")]
    known = [each for each in passed if each is not None]
    return sum(known) / seconds if known else None


def _values(metrics: Sequence[Metric]) -> Mapping[str, float]:
    return {each.name: each.value for each in metrics}


def _sample(task: _Task, metric: Metric, done: Done) -> Sample:
    """A row of `samples.parquet`; it has the environment's name, not the variant's."""
    row = sample(None, f"{task.point.load}, {task.point.how}", metric, done, task.round)
    return replace(row, environment=task.point.environment)


def _environment(seen: _Seen) -> PlaceEnvironment:
    threads = Counter(f"{each.name} ({each.role})" for each in seen.service.threads)
    return PlaceEnvironment(
        spec=seen.spec,
        description=seen.description,
        service=tuple(name if n == 1 else f"{n} x {name}" for name, n in threads.items()),
        machine_cpus=tuple(seen.machine_cpus),
        service_cpu=seen.service.cpu,
        client_cpu=seen.client_cpu,
        absent=seen.absent,
        notes=(*seen.notes, *seen.service.notes, *_shared(seen)),
    )


def _shared(seen: _Seen) -> Iterator[str]:
    """Sentences about which parts share a CPU, and which threads are not the service."""
    if seen.service.vcpus:
        yield "its own vCPUs were slowed, not the threads that serve it"
    elif seen.service.threads and seen.service.cpu in seen.machine_cpus:
        yield f"its service threads share CPU {seen.service.cpu} with it"
    if seen.client_cpu in seen.machine_cpus:
        yield f"the load's client shares CPU {seen.client_cpu} with it"
