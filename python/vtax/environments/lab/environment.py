"""The environment `lab`: what its spec may say, and what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from vtax.core.checks.model import Check
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.units import format_bytes
from vtax.environments import qemu_program, sandbox
from vtax.environments.base import MachineLike, ProgramHost, allowed_cpus, register
from vtax.environments.capabilities import (
    Capability,
    Files,
    GuestPage,
    Guests,
    KvmCounters,
    PagingMode,
    Pause,
    RecordOutside,
    Switch,
)
from vtax.environments.emulated_host import emulator, plugins
from vtax.environments.guest_page import AGENT as AGENT_AS_INIT
from vtax.environments.lab import guest_initramfs, host_initramfs
from vtax.environments.lab.checks import Installed
from vtax.environments.lab.configuration import LabConfiguration
from vtax.environments.option_values import ON_OFF, choice, cpu_count, guest_memory, whole_number

SMALLEST_GUEST_BYTES = 128 << 20
HOST_BYTES = 512 << 20
"""Memory that the emulated host needs besides its guests' memory."""
USUAL_HOST_BYTES = 1280 << 20
MOST_GUESTS = 8
MOST_ICOUNT = 10
"""QEMU's limit for the shift."""
BUILTIN_AGENT = "/bin/vtax-agent"


@register
@dataclass(frozen=True, slots=True)
class Lab(LabConfiguration):
    """A nested guest under stock KVM on an emulated AMD host, on x86-64 without KVM too."""

    name: ClassVar[str] = "lab"
    keys: ClassVar[Mapping[str, str]] = {
        "npt": "1: nested paging, 0: shadow paging (default: 1)",
        "mem": "memory of the emulated host (default: 1280M and its guests')",
        "smp": "number of CPUs (default: 1)",
        "guest": "host, builtin, or the path of a disk image or initramfs (default: host)",
        "guest_mem": "memory of each nested guest (default: 256M)",
        "guest_smp": "CPUs of each nested guest (default: 1)",
        "guests": "number of nested guests (default: 1)",
        "icount": "count instructions: each takes 2^N ns of the emulated clock (default: off)",
        "kernel": "a vmlinuz-RELEASE (default: found in /boot or fetched)",
        "snapshot": "off: boot each time (default: on)",
        "slow-cores": "on: its CPUs can be slowed while it runs (default: off)",
        "model": "count what the guest does by the model of this machine, e.g. zen4 (default: off)",
    }
    examples: ClassVar[Sequence[str]] = ("lab", "lab:npt=0,guest=builtin", "lab:guests=2")
    offers: ClassVar[Mapping[type[Capability], str]] = {
        Files: "lab",
        Guests: "lab",
        RecordOutside: "lab",
        KvmCounters: "lab",
        Switch: "lab:guest=builtin",
        Pause: "lab",
        GuestPage: "lab",
    }
    checks: ClassVar[Sequence[type[Check]]] = (Installed, sandbox.Bubblewrap)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        guests = whole_number("lab", "guests", options.get("guests", "1"), 1, MOST_GUESTS)
        guest_bytes = guest_memory(
            "lab", options.get("guest_mem", "256M"), SMALLEST_GUEST_BYTES, "guest_mem"
        )
        icount = options.get("icount", "off")
        shift = None if icount == "off" else whole_number("lab", "icount", icount, 0, MOST_ICOUNT)
        return cls(
            nested_paging=choice("lab", "npt", options.get("npt", "1"), {"1": True, "0": False}),
            memory_bytes=_host_memory(options.get("mem"), guests * guest_bytes),
            smp=cpu_count("lab", "smp", options.get("smp", "1")),
            guest=_guest(options.get("guest", "host")),
            guest_memory_bytes=guest_bytes,
            guest_smp=cpu_count("lab", "guest_smp", options.get("guest_smp", "1")),
            guests=guests,
            icount=shift,
            kernel=_kernel(options.get("kernel")),
            snapshot=choice("lab", "snapshot", options.get("snapshot", "on"), ON_OFF),
            slow_cores=_slow_cores(options),
            model=_model(
                options.get("model", "off"), cpu_count("lab", "smp", options.get("smp", "1"))
            ),
        )

    def has_folder(self, folder: Path) -> bool:
        return self.kind == "host" and super(Lab, self).has_folder(folder)

    def host_cpus(self) -> int:
        # The emulated host has CPUs of its own besides those of the guests.
        return len(allowed_cpus())

    def with_paging(self, mode: PagingMode) -> Self:
        return replace(self, nested_paging=mode == "nested")

    def start_host(self, work: Path, cpus: Sequence[int], kept: Path | None) -> ProgramHost:
        # Most commands start no lab: its modules cost 10 ms.
        from vtax.environments.lab.tree import Tree

        return Tree(replace(self, guest=guest_initramfs.NO_GUEST, guests=0, kept=kept), work, cpus)

    def for_builtin(self) -> Self:
        return replace(self, guest="builtin") if self.kind == "host" else self

    def agent_inside(self) -> str:
        return BUILTIN_AGENT if self.kind == "builtin" else AGENT_AS_INIT

    def boot_remedy(self) -> str:
        return "give the emulated host more memory (mem=), or run 'vtax doctor'"

    def check(self) -> None:
        sandbox.bubblewrap()
        emulator.require_svm(qemu_program.program())
        host_initramfs.find_parts(self.kernel)
        if not self.nested_paging and (obstacle := self.paging_obstacle("shadow")):
            raise VtaxError(f"lab:npt=0: {obstacle}", f"use npt=1, or {plugins.REMEDY}")

    def start(self, work: Path, cpus: Sequence[int]) -> MachineLike:
        from vtax.environments.lab.machine import LabMachine

        return LabMachine(self, work, cpus)

    def description(self, facts: Mapping[str, Any]) -> str:
        release = facts.get("kernel", {}).get("release", "?")
        paging = "nested paging" if self.nested_paging else "shadow paging"
        return (
            f"nested guest under KVM ({paging}) on an emulated AMD host (QEMU TCG), "
            f"Linux {release}, {self.guest_smp} CPU, {format_bytes(self.guest_memory_bytes)}"
        )


def _host_memory(text: str | None, guests: int) -> int:
    if text is None:
        return USUAL_HOST_BYTES + guests
    return guest_memory("lab", text, HOST_BYTES + guests)


def _guest(text: str) -> str:
    if text in ("host", "builtin"):
        return text
    path = Path(text).resolve()
    if not path.is_file():
        raise MisuseError(
            f"lab: guest={text} is neither 'host' nor 'builtin' nor a file",
            "give the path of a disk image or of an initramfs",
        )
    return str(path)


def _slow_cores(options: Mapping[str, str]) -> bool:
    on = choice("lab", "slow-cores", options.get("slow-cores", "off"), ON_OFF)
    if on and options.get("icount", "off") != "off":
        raise MisuseError("lab: slow-cores= needs a thread for each CPU", "use icount=off")
    return on


def _model(text: str, smp: int) -> str | None:
    if text == "off":
        return None
    if text not in (known := _machines()):
        raise MisuseError(f"lab: model={text} is unknown", f"use {', '.join(known)} or off")
    if smp != 1:
        raise MisuseError("lab: model= counts a host with one CPU", "use smp=1")
    return text


def _machines() -> Sequence[str]:
    # The extension module is not needed otherwise.
    from vtax import _native

    names: Sequence[str] = _native.Machine.names()
    return names


def _kernel(text: str | None) -> Path | None:
    if text is not None and not Path(text).is_file():
        raise MisuseError(f"lab: kernel={text} is not a file")
    return Path(text).resolve() if text is not None else None
