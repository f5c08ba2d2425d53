"""What a workload did under nested and under shadow paging, by KVM's counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

Mode = Literal["nested", "shadow"]
MODES: tuple[Mode, Mode] = ("nested", "shadow")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the workload in one mode."""

    wall_s: float
    """Wall time by the guest's clock."""
    counters: Mapping[str, float]
    """KVM's counts during the run; for a level (a gauge) the value at its end."""
    gauges: frozenset[str]
    guest_s: float | None
    """Time in guest code as the emulated host accounts it; None where the host does not."""
    report: Mapping[str, Any] | None
    """What a built-in workload says about itself."""


@dataclass(frozen=True, slots=True)
class PagingModes:
    """What `vtax paging lab` found."""

    workload: tuple[str, ...]
    runs: Mapping[Mode, tuple[Run, ...]]
    switches: tuple[Mapping[str, Any], ...]
    """The reports of the switches in between; empty where each mode had a machine of its own."""
    description: str
    """What the machine is, in words."""
    names: Sequence[str]
    """The counters asked for, in the order of display. KVM may lack some of them."""
    shadow_obstacle: str | None = None
    """Why nothing ran under shadow paging; None when it ran."""

    def counter(self, mode: Mode, name: str) -> float | None:
        """The median over the repetitions; None when KVM does not have the counter."""
        values = [each.counters[name] for each in self.runs[mode] if name in each.counters]
        return median(values) if values else None

    def guest_s(self, mode: Mode) -> float | None:
        """The median of the guest time; None where it is not known."""
        values = [each.guest_s for each in self.runs[mode] if each.guest_s is not None]
        return median(values) if values else None

    def wall_s(self, mode: Mode) -> float | None:
        """The median of the workload's own wall clock time, in emulated seconds."""
        runs = self.runs[mode]
        return median(each.wall_s for each in runs) if runs else None

    def per_guest_second(self, mode: Mode, name: str) -> float | None:
        """A count per second of guest time; None for levels and where a part is missing."""
        runs = self.runs[mode]
        if any(name in each.gauges for each in runs):
            return None
        rates = [
            each.counters[name] / each.guest_s
            for each in runs
            if each.guest_s and name in each.counters
        ]
        return median(rates) if rates else None
