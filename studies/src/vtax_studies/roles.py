"""What a study takes where: of each thing that it needs, the best that its machine has.

`vtax doctor` says what a machine has. Only a boot tells whether its KVM runs an ordinary kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vtax.core.checks.model import State
from vtax.doctor.checks import registered
from vtax.doctor.examine import examine
from vtax.environments.base import allowed_cpus

KVM, PMU, LAB, UML, QEMU, XEN = "kvm", "pmu", "lab", "uml", "qemu", "xen"
ARM64, RAPL, CPUFREQ = "qemu-arm64", "rapl", "cpufreq"
"""Checks of `vtax doctor`."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides which way a study takes."""

    has: frozenset[str]
    """Checks of `vtax doctor` that find what they look for."""
    cpus: int


_EVERYWHERE = frozenset({QEMU, LAB, XEN, ARM64, UML})
KINDS: Mapping[str, Machine] = {
    "laptop": Machine(_EVERYWHERE | {KVM, PMU, RAPL, CPUFREQ}, 8),
    "cloud VM": Machine(_EVERYWHERE, 4),
    "bare metal": Machine(_EVERYWHERE | {KVM, PMU, RAPL, CPUFREQ}, 64),
    "arm64 server": Machine(frozenset({PMU, CPUFREQ}), 64),
}
"""Machines that many people have, with every program installed. Their environments with x86 guests
need an x86 host; most rented virtual machines have neither KVM nor a PMU."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to have something."""

    what: str
    """An environment's specification, or a few words."""
    needs: frozenset[str] = frozenset()
    """What the machine must have."""
    cpus: int = 1
    """The least CPUs that it takes."""
    instead_of: str = ""
    """What the paper has, or a better machine would give; empty: nothing better is known."""

    def fits(self, machine: Machine) -> bool:
        return self.needs <= machine.has and self.cpus <= machine.cpus

    @property
    def said(self) -> str:
        return f"{self.what}, instead of {self.instead_of}" if self.instead_of else self.what


@dataclass(frozen=True, slots=True)
class Role:
    """Something that a study needs, and the ways to have it, the best first."""

    name: str
    ways: Sequence[Way]

    def on(self, machine: Machine) -> Way | None:
        """The best way that fits the machine; None where none does."""
        return next((way for way in self.ways if way.fits(machine)), None)


def said(roles: Sequence[Role], machine: Machine) -> Iterator[tuple[str, str]]:
    """Each role, and what the study takes for it on the machine."""
    for role in roles:
        way = role.on(machine)
        yield role.name, way.said if way else "nothing: it is left out"


@functools.cache
def here() -> Machine:
    """This machine. The first call boots a kernel, where KVM looks as if it could."""
    states = {each.name: each.state for each in examine(checks=registered())}
    has = {name for name, state in states.items() if state in (State.OK, State.DEGRADED)}
    if states.get(KVM) is not State.OK or not _boots():
        has.discard(KVM)
    return Machine(frozenset(has), len(allowed_cpus()))


def _boots() -> bool:
    # Only where the processor says that it can: elsewhere the attempt takes 30 s.
    from vtax.environments.qemu import Qemu

    return Qemu().kvm_fault() is None
