"""The cores of a host, as advice and plans know them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from vtax.place.analysis import FULL
from vtax.place.placement import CoreClass, Place


@dataclass(frozen=True, slots=True)
class Cores:
    """Cores of a host that are alike."""

    name: str
    speed_percent: float
    """In percent of the speed of the fastest cores."""
    cpus: frozenset[int]
    """Empty for cores that are only supposed."""


@dataclass(frozen=True, slots=True)
class HostCores:
    """The cores of a host, the fastest first, one class of slower ones at least."""

    classes: tuple[Cores, ...]
    node: Mapping[int, int]
    """NUMA node of each CPU that a plan may use: it is on, and not isolated unless named."""
    source: str
    """How the cores are known, for the reader."""
    siblings: tuple[frozenset[int], ...] = ()
    """The CPUs of each core that has several."""
    sibling: float = 1.0
    """What a further CPU of a core is worth, as a share of a core."""
    notes: tuple[str, ...] = ()
    """What the reader should know before believing it."""

    @property
    def supposed(self) -> bool:
        """Whether slow cores are only supposed: then nothing can be put on them."""
        return not all(each.cpus for each in self.classes)

    @property
    def slowest_percent(self) -> float:
        return self.classes[-1].speed_percent

    @property
    def slower(self) -> frozenset[int]:
        """CPUs that are slower than the fastest; none where slow cores are only supposed."""
        return frozenset(cpu for each in self.classes[1:] for cpu in each.cpus)

    def cpus(self, place: Place) -> frozenset[int]:
        """The CPUs of a class on a NUMA node."""
        (own,) = (each.cpus for each in self.classes if each.name == place.core_class)
        return frozenset(cpu for cpu in own if self.node.get(cpu, 0) == place.node)

    def worth(self, cpus: Collection[int]) -> float:
        """How many cores some CPUs are worth."""
        further = sum(max(len(core & set(cpus)) - 1, 0) for core in self.siblings)
        return len(cpus) - further * (1.0 - self.sibling)

    def planned(self) -> tuple[CoreClass, ...]:
        """The classes for the planner; supposed cores are as many as the fast ones."""
        return tuple(
            CoreClass(each.name, each.speed_percent / FULL, self._counts(each))
            for each in self.classes
        )

    def _counts(self, cores: Cores) -> Mapping[int, float]:
        on: dict[int, list[int]] = {}
        for cpu in cores.cpus or self.classes[0].cpus:
            on.setdefault(self.node.get(cpu, 0), []).append(cpu)
        return {node: self.worth(cpus) for node, cpus in sorted(on.items())}
