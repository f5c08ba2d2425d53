"""What the study measured, and the numbers that claims, tables and figures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import polars as pl

from vtax.memory.record import MemoryCliff, MemoryDifference, MemoryEnvironment, MemoryPoint
from vtax.tune.record import TuneEnvironment, TuneEquivalence
from vtax_studies.atlas.setup import BARE, NATIVE, PLACES, Place
from vtax_studies.model import StudyData
from vtax_studies.rule import Missing, some

BYTES_OF_A_ROW = 24
"""Bytes that the driver needs, over the square of the size: three matrices of doubles."""


@dataclass(frozen=True, slots=True)
class TlbMisses:
    """Modelled misses of the driver and of the kernel below it."""

    of_data: float
    of_instructions: float


@dataclass(frozen=True, eq=False)
class Data(StudyData):
    """What `vtax memory` and `vtax tune` found, by place."""

    found: Mapping[Place, MemoryEnvironment]
    differences: Sequence[MemoryDifference] = ()
    """Differences between places that were measured in turn, by their specifications."""
    tuned: Mapping[Place, TuneEnvironment] = field(default_factory=dict)
    equivalence: Sequence[TuneEquivalence] = ()
    """Equivalence of the same places."""
    single: Mapping[Place, TuneEnvironment] = field(default_factory=dict)
    """Tuning in single precision."""
    modelled: Mapping[int, TlbMisses] = field(default_factory=dict)
    """TLB misses of the driver on the paper's processor by size, by the model."""

    def frames(self) -> Mapping[str, pl.DataFrame]:
        """A row for each size of each place."""
        rows = [
            {"kernel": place.kernel, "memory_mb": place.megabytes, **point.model_dump()}
            for place, found in self.found.items()
            for point in found.points
        ]
        return {"points": pl.DataFrame(rows, infer_schema_length=None)}

    def without_emulation(self) -> Self | None:
        """What was measured on this machine's own processor; None where that is all or nothing."""
        found = {place: each for place, each in self.found.items() if not place.is_emulated}
        tuned = {place: each for place, each in self.tuned.items() if not place.is_emulated}
        if (len(found), len(tuned)) == (len(self.found), len(self.tuned)) or not (found or tuned):
            return None
        differences = [each for each in self.differences if not place(each.a).is_emulated]
        equivalence = [each for each in self.equivalence if not place(each.a).is_emulated]
        return replace(
            self, found=found, differences=differences, tuned=tuned, equivalence=equivalence
        )

    def of(self, megabytes: int) -> Mapping[Place, MemoryEnvironment]:
        """Results with a size of memory, from places that could run the driver. Raises Missing
        without any."""
        own = {
            place: each
            for place, each in self.found.items()
            if place.megabytes == megabytes and any(point.n for point in each.points)
        }
        reasons = "; ".join(self.left_out.values()) or "nothing asked"
        return some(own, f"nothing was measured with {megabytes} MB: {reasons}")


def place(spec: str) -> Place:
    """The place of a specification."""
    return next(each for each in PLACES if each.spec == spec)


def kernels_differ(pair: TuneEquivalence) -> bool:
    """Whether two places differ in their kernel, not in their memory."""
    a, b = place(pair.a), place(pair.b)
    return a.megabytes == b.megabytes and a.kernel != b.kernel


def native(tunings: Mapping[Place, TuneEnvironment]) -> TuneEnvironment:
    """The native tuning, on the emulated machine when on no other. Raises Missing where nothing
    was tuned natively."""
    tuned = [(place.kernel, each) for place, each in tunings.items()]
    own = (each for wanted in (NATIVE, BARE) for kernel, each in tuned if kernel == wanted)
    found = next(own, None)
    if found is None:
        raise Missing("nothing was tuned natively")
    return found


def need(size: int) -> int:
    """The bytes of the driver's matrices."""
    return BYTES_OF_A_ROW * size * size


def reaches(found: MemoryEnvironment, megabytes: int) -> bool:
    """Whether a size was run whose matrices alone exceed the memory."""
    return any(need(point.size) > megabytes << 20 for point in found.points)


def cliff(where: Place, found: MemoryEnvironment) -> MemoryCliff:
    """The cliff of a place. Raises Missing where there is none."""
    if found.cliff is None or found.cliff.size is None:
        raise Missing(f"{where.name} has no cliff between sizes that were run")
    return found.cliff


def split(
    where: Place, found: MemoryEnvironment
) -> tuple[Sequence[MemoryPoint], Sequence[MemoryPoint]]:
    """The points before the cliff and past it, without those whose runs gave nothing."""
    edge = cliff(where, found).size or 0
    known = [point for point in found.points if point.n]
    before = [point for point in known if point.size <= edge]
    past = [point for point in known if point.size > edge]
    if not before or not past:
        raise Missing(f"{where.name}: no runs on both sides of its cliff")
    return before, past


def value(where: Place, point: MemoryPoint, quantity: str) -> float:
    """A quantity of a point. Raises Missing where the machine did not report it."""
    found = getattr(point, quantity)
    if found is None:
        raise Missing(f"{where.name} does not say it")
    return float(found)
