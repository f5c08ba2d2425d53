"""What `vtax place advise` says of interrupts that work for guests: they are kept to fast cores.

What a guest loses when slow cores take its interrupts is not measured by `vtax place measure`, so
nothing says that an interrupt may go there. An interrupt that slow cores may take is kept to the
fast ones among its CPUs; where it has no fast CPU, it goes to the fast cores of its device's NUMA
node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from vtax.place.host_cores import HostCores
from vtax.place.plan import PlannedInterrupt, cpu_list

_NOT_MEASURED = "what it costs on slow cores was not measured"


@dataclass(frozen=True, slots=True)
class HostInterrupt:
    """An interrupt that works for guests."""

    number: int
    name: str
    """The name of its action or device as the kernel has it: any text."""
    guest: str | None
    """None: several guests, or not known."""
    cpus: tuple[int, ...]
    """CPUs that may take it; some may be off."""
    node: int | None
    """NUMA node of its device; None: not known."""
    movable: bool = True
    """False: the kernel is known to refuse a move."""

    @property
    def id(self) -> str:
        """A name for the reader."""
        return f"interrupt {self.number} ({self.name})"


@dataclass(frozen=True, slots=True)
class AdvisedInterrupt:
    """An interrupt, and its CPUs in the plan."""

    interrupt: HostInterrupt
    cpus: tuple[int, ...]
    """The CPUs that are to take it; its present ones where it stays."""
    reason: str
    advice: Literal["fast"] = "fast"

    @property
    def moves(self) -> bool:
        """Whether its CPUs change."""
        return self.cpus != self.interrupt.cpus

    @property
    def sentence(self) -> str:
        """Says where it goes or stays, and why."""
        what = "stays where it is"
        if self.moves:
            kept = set(self.cpus) <= set(self.interrupt.cpus)
            verb = "is kept to" if kept else "goes to"
            what = f"{verb} fast cores ({cpu_list(self.cpus)})"
        return f"{self.interrupt.id} {what}: {self.reason}"


def interrupt_advice(
    interrupts: Iterable[HostInterrupt], cores: HostCores
) -> tuple[AdvisedInterrupt, ...]:
    """Advice on each interrupt, in their order."""
    return tuple(_advised(each, cores) for each in interrupts)


def planned(interrupts: Iterable[AdvisedInterrupt]) -> tuple[PlannedInterrupt, ...]:
    """The interrupts that the plan moves."""
    return tuple(
        PlannedInterrupt(number=each.interrupt.number, cpus=cpu_list(each.cpus))
        for each in interrupts
        if each.moves
    )


def _advised(interrupt: HostInterrupt, cores: HostCores) -> AdvisedInterrupt:
    now = frozenset(interrupt.cpus)
    fast = cores.classes[0].cpus
    if not interrupt.movable:
        return _stays(interrupt, "the kernel does not let anybody move it")
    if cores.supposed:
        return _stays(interrupt, "slow cores are only supposed here")
    if not now & cores.slower:
        return _stays(interrupt, "no slow core takes it")
    if now & fast:
        return AdvisedInterrupt(interrupt, tuple(sorted(now & fast)), _NOT_MEASURED)
    near = frozenset(cpu for cpu in fast if cores.node.get(cpu, 0) == interrupt.node)
    if interrupt.node is None or near == fast:
        return AdvisedInterrupt(interrupt, tuple(sorted(fast)), _NOT_MEASURED)
    device = f"its device is on node {interrupt.node}"
    if not near:
        device += ", which has no fast cores"
    reason = f"{_NOT_MEASURED}; {device}"
    return AdvisedInterrupt(interrupt, tuple(sorted(near or fast)), reason)


def _stays(interrupt: HostInterrupt, reason: str) -> AdvisedInterrupt:
    return AdvisedInterrupt(interrupt, interrupt.cpus, reason)
