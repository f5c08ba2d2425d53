"""User-mode Linux: a paravirtualized kernel that needs no hardware support and no root."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from vtax.core import binaries
from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import VtaxError
from vtax.core.units import format_bytes
from vtax.environments import guest_disk, guest_group, link, mpi_hosts, sandbox, swap
from vtax.environments.base import Allocation, HostTree, Launch, register
from vtax.environments.capabilities import (
    Capability,
    Files,
    GuestPage,
    Guests,
    Link,
    LinkKind,
    Pause,
    RecordInside,
    RecordOutside,
)
from vtax.environments.machine import Machine, pausing, publishing, shared_tree
from vtax.environments.option_values import guest_memory
from vtax.workloads.base import MachineShape

AGENT_INSIDE = Path("/run/vtax/agent")
FIX_INSIDE = Path("/run/vtax/umlfix.so")
MODULES = Path("/usr/lib/uml/modules")
DISKS = (("ubd0", "/dev/ubda"), ("ubd1", "/dev/ubdb"))
"""A disk's name on the command line, and in the guest."""
LINKS: Mapping[LinkKind, str | None] = {"vde": "eth0", "tap": "vec0"}
SMALLEST_BYTES = 48 << 20
"""A kernel without room for its own tables panics; 48 MiB boots with some to spare."""


class Installed(Check):
    """The paravirtualized guest that needs neither hardware support nor root."""

    name = "uml"
    purpose = "environment uml"

    def find(self, host: Host) -> Finding:
        program = host.which("linux.uml")
        if not host.is_x86:
            return self.impossible(f"user-mode Linux is for x86, this machine is {host.machine}")
        if program is None:
            return self.missing(
                "linux.uml is not installed", host.install("user-mode-linux", "user-mode Linux")
            )
        output = host.run([program, "--version"])
        if output.code != 0:
            return self.missing(
                f"{program} does not run: {output.last_error}",
                host.install("--reinstall user-mode-linux", "user-mode Linux again"),
            )
        # This kernel runs guest processes under ptrace.
        scope = host.read("/proc/sys/kernel/yama/ptrace_scope")
        if scope == "3":
            return self.impossible("kernel.yama.ptrace_scope is 3: no ptrace until a restart")
        if scope == "2" and host.euid != 0:
            return self.missing(
                "kernel.yama.ptrace_scope is 2: only root may use ptrace",
                "sysctl kernel.yama.ptrace_scope=1",
            )
        return self.ok(f"{program}, Linux {output.first_line}, 1 CPU")


@register
@dataclass(frozen=True, slots=True)
class UserModeLinux(HostTree, guest_group.Grouped):
    """User-mode Linux, a paravirtualized kernel as a host process, with one CPU."""

    name: ClassVar[str] = "uml"
    keys: ClassVar[Mapping[str, str]] = {
        "mem": "memory (default: 1G)",
        "swap": "a swap disk of this size (default: none)",
        **guest_disk.KEYS,
        **guest_group.KEYS,
        **link.KEYS,
    }
    examples: ClassVar[Sequence[str]] = (
        "uml",
        "uml:mem=512M",
        "uml:mem=256M,swap=1G",
        "uml:net=vde,rate=500M",
        "uml:guests=4,mem=256M",
    )
    offers: ClassVar[Mapping[type[Capability], str]] = {
        Files: "uml",
        Guests: "uml:guests=2",
        GuestPage: "uml",
        RecordOutside: "uml",
        RecordInside: "uml",
        Pause: "uml",
        Link: "uml:net=vde",
    }
    checks: ClassVar[Sequence[type[Check]]] = (Installed, sandbox.Bubblewrap, link.Links)

    memory_bytes: int = 1 << 30
    swap_bytes: int = 0
    disk: guest_disk.DataDisk = guest_disk.NONE

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        memory = guest_memory("uml", options.get("mem", "1G"), SMALLEST_BYTES)
        wanted = link.wanted("uml", options, LINKS)
        guests = guest_group.count("uml", options, memory, wanted)
        disk = guest_disk.wanted("uml", options)
        mpi = mpi_hosts.wanted("uml", options, guests, joined=wanted is not None)
        return cls(memory, swap.size("uml", options), disk, link=wanted, guests=guests, mpi=mpi)

    def shape(self) -> MachineShape:
        return self.together(MachineShape(1, self.memory_bytes))

    def check(self) -> None:
        kernel()
        overlay_module()
        sandbox.bubblewrap()
        binaries.find("vtax-agent")
        if self.swap_bytes:
            swap.check_guest()
        self.disk.check()
        link.check("uml", self.link)

    def start_one(self, work: Path, cpus: Sequence[int], *place: Any) -> Machine:
        def start() -> Machine:
            return Machine(self, work, cpus, *place)

        return guest_disk.started(start, self.name, work, self._disks())

    def _disks(self) -> Sequence[guest_disk.GuestDisk]:
        swapped, own = (device for _, device in DISKS)
        return (*swap.disk(self.swap_bytes, swapped), *self.disk.disk(own))

    def capabilities(self, machine: Machine) -> Sequence[Capability]:
        own = (pausing(machine), publishing(machine))
        return (*shared_tree(machine), *own, *link.offered(machine))

    def launch(self, allocation: Allocation) -> Launch:
        box = sandbox.Box(
            work=allocation.work,
            view=self.view(),
            read_only={
                binaries.find("vtax-agent"): AGENT_INSIDE,
                binaries.find("libvtax_umlfix.so"): FIX_INSIDE,
            },
            # Kernels before 6.13 cannot restore an FP state larger than 2696 bytes (AMX).
            environment={"LD_PRELOAD": str(FIX_INSIDE)},
            writable=link.sockets(allocation),
            devices=link.devices(self.link),
            sees_processes=False,
            namespace_pid=allocation.namespace_pid,
        )
        parameters = [
            f"mem={self.memory_bytes >> 20}M",
            # The folder and name of its management socket, which is inside the box and ends with
            # it.
            "uml_dir=/run/vtax/",
            "umid=guest",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            f"init={AGENT_INSIDE}",
            "con=null",
            "con0=null,fd:1",
            f"ssl0=fd:{allocation.channel_fd}",
            "quiet",
            "panic=-1",
            "vtax.lower=hostfs",
            f"vtax.work=hostfs:{sandbox.WORK}",
            "vtax.channel=/dev/ttyS0",
            f"vtax.modules={overlay_module()}",
        ]
        names = {device: name for name, device in DISKS}
        parameters += [f"{names[each.device]}={sandbox.WORK / each.file}" for each in self._disks()]
        argv = sandbox.command(box, [str(kernel()), *parameters, *self._linked(allocation.number)])
        return Launch(
            sandbox.pinned(allocation.cpus, argv), work_inside=sandbox.WORK, boot_timeout_s=60.0
        )

    def _linked(self, number: int) -> Sequence[str]:
        if self.link is None:
            return ()
        if self.link.kind == "vde":
            return (f"eth0=daemon,,unix,{link.SWITCH_SOCKET}/ctl",)
        # Without gro= its buffers hold no packet larger than the MTU, and a tap delivers them.
        return (f"vec0:transport=tap,ifname={link.tap(number)},gro=1",)

    def description(self, facts: Mapping[str, Any]) -> str:
        release = facts.get("kernel", {}).get("release", "?")
        return (
            f"user-mode Linux {release} (paravirtualized kernel as a host process), "
            f"1 CPU, {format_bytes(self.memory_bytes)}{swap.said(self.swap_bytes)}"
            f"{self.disk.said()}{link.said(self.link)}{guest_group.said(self.guests)}"
        )


def kernel() -> Path:
    """The kernel's program; raises VtaxError with the remedy when it is missing."""
    if found := shutil.which("linux.uml"):
        return Path(found)
    raise VtaxError("user-mode Linux (linux.uml) is missing", "apt-get install user-mode-linux")


def overlay_module(modules: Path = MODULES) -> Path:
    """The overlay file system's module of the newest kernel in `modules`.

    Raises VtaxError when there is none.
    """
    found = sorted(modules.glob("*/kernel/fs/overlayfs/overlay.ko"), key=_release)
    if not found:
        raise VtaxError(
            f"user-mode Linux has no overlay module below {modules}",
            "apt-get install --reinstall user-mode-linux",
        )
    return found[-1]


def _release(module: Path) -> tuple[int, ...]:
    release = module.parents[3].name
    return tuple(int(part) for part in release.split(".") if part.isdecimal())
