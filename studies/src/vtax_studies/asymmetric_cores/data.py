"""What the study measured, and the numbers that claims, tables and figures share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from vtax.place import analysis as place
from vtax.place import hypothesis as place_hypothesis
from vtax.place.analysis import FULL
from vtax.place.record import PlaceElasticity, PlaceEnvironment, PlaceLoad, PlacePoint, PlaceRecord
from vtax_studies.asymmetric_cores.setup import (
    EMULATED,
    LOWEST,
    QEMU,
    REFERENCES,
    SLOW_GUEST,
    SPECS,
)
from vtax_studies.model import StudyData
from vtax_studies.rule import Missing, some

STRETCHED = ("cpufreq", "core-type", "emulator")
"""Back ends on which the same work takes more CPU seconds."""


@dataclass(frozen=True, eq=False)
class Data(StudyData):
    """What `vtax place measure` measured."""

    served: PlaceRecord | None
    """All environments with slow service threads; None: nothing was measured."""
    slow_guest: PlaceRecord | None = None
    """The CPU-bound loads with slow vCPUs: what the paper did for SPEC."""
    disks: PlaceRecord | None = None
    """Loads of a disk, at full speed."""

    def records(self) -> list[PlaceRecord]:
        """The records of what was measured."""
        every = (self.served, self.slow_guest, self.disks)
        return [each for each in every if each is not None]

    def frames(self) -> Mapping[str, pl.DataFrame]:
        """A row for each point of each load, with slow service threads, with slow vCPUs, and with
        a disk and nothing slow."""
        every = {"service": self.served, "vCPUs": self.slow_guest, "nothing": self.disks}
        rows = [
            row
            for slowed, record in every.items()
            for row in (_rows(slowed, record.loads) if record else ())
        ]
        return {"points": pl.DataFrame(rows, infer_schema_length=None)}

    def load(self, name: str, load: str) -> PlaceLoad:
        """A load in the environment that the study calls `name`. Raises Missing if it has no slow
        points."""
        return self._of(self.served, name, load, name)

    def alone(self, load: str) -> PlaceLoad:
        """A load in QEMU with slow vCPUs. Raises Missing if it has no slow points."""
        return self._of(self.slow_guest, QEMU, load, SLOW_GUEST)

    def loads(self, load: str) -> Mapping[str, PlaceLoad]:
        """The environments, by name, that have slow points of a load. Raises Missing without
        any."""
        every = self.served.loads if self.served else ()
        found = {
            name: each
            for name, spec in SPECS.items()
            for each in every
            if (each.environment, each.load) == (spec, load) and is_slowed(each)
        }
        return some(found, self._why(load, *(SPECS if self.served is None else ())))

    def disk_cpu(self, name: str) -> Mapping[str, Interval]:
        """Percent of a CPU that the service takes with each load of a disk, in the environment that
        the study calls `name`. Raises Missing without any."""
        every = self.disks.loads if self.disks else ()
        found = {
            each.load: Interval(used, point.service_cpu_low, point.service_cpu_high)
            for each in every
            for point in each.points
            if each.environment == SPECS[name] and (used := point.service_cpu_percent) is not None
        }
        return some(found, self.left_out.get(name, f"{name} was not measured"))

    def without_emulation(self) -> Data | None:
        """The data without what ran on an emulated processor; None where nothing was emulated."""
        every = (each for record in self.records() for each in record.environments)
        if not any(EMULATED in each.description for each in every):
            return None
        real = (_real(self.served), _real(self.slow_guest), _real(self.disks))
        return replace(self, served=real[0], slow_guest=real[1], disks=real[2])

    def title(self, name: str) -> str:
        """The environment's name, and whether its processor is emulated."""
        where = self.environment(name)
        emulated = where is not None and EMULATED in where.description
        return f"{name} (emulated)" if emulated else name

    def environment(self, name: str) -> PlaceEnvironment | None:
        """An environment by name; None: it was not measured."""
        every = (each for record in self.records() for each in record.environments)
        return next((each for each in every if each.spec == SPECS[name]), None)

    def _of(self, record: PlaceRecord | None, name: str, load: str, part: str) -> PlaceLoad:
        every = record.loads if record else ()
        for each in every:
            if (each.environment, each.load) == (SPECS[name], load) and is_slowed(each):
                return each
        raise Missing(f"{part}: {self._why(load, name, part)}")

    def _why(self, *names: str) -> str:
        """Why there are no results of a load, with the environments that could be the cause."""
        reasons = dict.fromkeys(self.left_out[each] for each in names if each in self.left_out)
        return "; ".join(reasons) or f"{names[0]} was not measured with slow cores"


def _real(record: PlaceRecord | None) -> PlaceRecord | None:
    """The record without environments whose processor is emulated; None if there is no other."""
    if record is None:
        return None
    kept = tuple(each for each in record.environments if EMULATED not in each.description)
    specs = {each.spec for each in kept}
    loads = tuple(each for each in record.loads if each.environment in specs)
    return joined(
        [record.model_copy(update={"environments": kept, "loads": loads})] if kept else []
    )


def joined(records: Sequence[PlaceRecord]) -> PlaceRecord | None:
    """One record of the campaigns of several environments; None without any.

    The hypothesis is tested over all their loads that use the service: neither Combined Usage nor a
    rival predictor says anything about a load that does not.
    """
    if not records:
        return None
    loads = tuple(load for each in records for load in each.loads)
    served = tuple(load for load in loads if load.load not in REFERENCES)
    return records[0].model_copy(
        update={
            "finished_utc": records[-1].finished_utc,
            "environments": tuple(where for each in records for where in each.environments),
            "loads": loads,
            "hypothesis": place_hypothesis.hypothesis(served) if served else None,
            "rivals": place_hypothesis.rivals(served),
            "predictor": place_hypothesis.predictor(served),
            "findings": place.findings(loads),
            "failures": tuple(text for each in records for text in each.failures),
        }
    )


def is_slowed(load: PlaceLoad) -> bool:
    """Whether the load was measured below full speed."""
    return any(point.speed_asked_percent < FULL for point in load.points)


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its 95 % interval; None: not known."""

    value: float
    low: float | None
    high: float | None


def words(found: Interval, decimals: int) -> str:
    """`61.2 [55.0, 67.9]`, without the interval where that is not known."""

    def one(value: float) -> str:
        # Avoid a negative zero.
        return f"{round(value, decimals) + 0.0:.{decimals}f}"

    if found.low is None or found.high is None:
        return one(found.value)
    return f"{one(found.value)} [{one(found.low)}, {one(found.high)}]"


def kept(load: PlaceLoad) -> Mapping[str, Interval]:
    """Percent of full throughput at the lowest speed, by backend. Raises Missing without any.

    Points that are kept apart (the speed was not held, the client saturated) do not count.
    """
    points = [point for point in load.points if point.speed_asked_percent == LOWEST]
    if not points:
        raise Missing(f"{load.load} was not measured at {LOWEST:g} % of full speed")
    found = {
        point.backend: Interval(point.relative_percent, point.low, point.high)
        for point in points
        if point.relative_percent is not None and not point.marks
    }
    if not found:
        reasons = dict.fromkeys(mark for point in points for mark in point.marks)
        raise Missing(f"{load.load} is kept apart at {LOWEST:g} %: {', '.join(reasons)}")
    return found


def slopes(load: PlaceLoad) -> Mapping[str, Interval]:
    """Elasticity by backend. Raises Missing without any."""
    if not load.by_backend:
        raise Missing(f"{load.load} has no point that counts")
    return {each.backend: _interval(each) for each in load.by_backend}


def _interval(each: PlaceElasticity) -> Interval:
    return Interval(each.elasticity, each.low, each.high)


def busy(point: PlacePoint) -> float | None:
    """CPU utilisation of the service as the paper defines it: percent of the time of its slow core.

    Quota, hog and cap slow a thread by taking time from it, so its CPU time is a part of what is
    left. A lower clock or a small core takes no time. None: not measured.
    """
    used, speed = point.service_cpu_percent, point.speed_obtained_percent
    if used is None or point.backend in STRETCHED or point.speed_asked_percent >= FULL:
        return used
    return None if not speed else FULL * used / speed


def combined(point: PlacePoint) -> float | None:
    """Combined Usage of the slow core and the link (section 3.2); None: not measured."""
    used = busy(point)
    return None if used is None or point.device_percent is None else used + point.device_percent


def by_backend(load: PlaceLoad) -> Mapping[str, Sequence[PlacePoint]]:
    """The points that count, fastest first, of each backend that has a control and a slow point.

    Raises Missing without any backend.
    """
    found: dict[str, list[PlacePoint]] = {}
    for point in load.points:
        if not point.marks:
            found.setdefault(point.backend, []).append(point)
    for points in found.values():
        points.sort(key=lambda point: -point.speed_asked_percent)
    whole = {
        name: points
        for name, points in found.items()
        if points[0].speed_asked_percent >= FULL > points[-1].speed_asked_percent
    }
    return some(whole, f"{load.load}: no back end has a control and a slow point that count")


def of_slow_core(load: PlaceLoad) -> PlaceLoad:
    """The load with utilisations as the paper defines them, for figures (`busy`)."""
    points = (
        point.model_copy(
            update={"service_cpu_percent": busy(point), "combined_usage_percent": combined(point)}
        )
        for point in load.points
    )
    return load.model_copy(update={"points": tuple(points)})


def _rows(slowed: str, loads: Iterable[PlaceLoad]) -> Iterable[dict[str, Any]]:
    for load in loads:
        for point in load.points:
            yield {
                "slowed": slowed,
                "environment": load.environment,
                "load": load.load,
                **point.model_dump(exclude={"marks"}),
                "busy_percent": busy(point),
                "kept_apart": "; ".join(point.marks),
            }
