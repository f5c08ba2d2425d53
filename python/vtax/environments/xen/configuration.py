"""The configuration of a machine with Xen, or without: its domains and what they boot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from vtax.core import binaries
from vtax.environments import guest_kernel, qemu_program, sandbox, swap, unpacked_qemu
from vtax.environments.base import HostTree
from vtax.environments.capabilities import Capability, Files, Guests, Link, RecordInside
from vtax.environments.emulated_host import emulator, plugins
from vtax.environments.emulated_host.emulator import Emulated
from vtax.environments.guest_kernel import GuestKernel
from vtax.environments.link import Wanted
from vtax.environments.qemu_program import Emulator, Hypervisor
from vtax.environments.ssh_client import Login
from vtax.environments.xen import dom0, parts
from vtax.workloads.base import MachineShape

Domain = Literal["native", "dom0", "domu"]

CPU = "max,-smap,-rdtscp"
"""With SMAP, Xen 4.17 crashes on QEMU 7.2. RDTSCP in a PVH domU leaves with the exit code of RDTSC,
at which Xen crashes that domU (both tried)."""
XEN_BYTES = 192 << 20
"""Memory of the machine that Xen keeps for itself and its heap."""
DOM0_BYTES = 640 << 20
"""dom0's memory beside domUs: the initramfs and what is unpacked from it take 330 MiB. Afterwards
four domUs leave it 390 MiB."""

BOUNCE = "swiotlb=4096"
"""8 MiB of bounce buffers. By default a paravirtualized dom0's kernel takes 64 MiB for them."""


@dataclass(frozen=True)
class XenConfiguration(HostTree):
    """What a spec of the environment `xen` says, without how a machine is started from it."""

    domain: Domain = "domu"
    mode: dom0.Mode = "pv"
    memory_bytes: int = 256 << 20
    smp: int = 1
    guests: int = 1
    pcpus: int = 1
    """Physical CPUs that the domUs share."""
    weight: int = 256
    cap_percent: int = 0
    slow_cores: bool = False
    kernel: Path | None = None
    snapshot: bool = True
    swap_bytes: int = 0
    link: Wanted | None = None
    host: Login | None = None
    """The dom0 of a real Xen host; None: an emulated machine."""
    pushed: tuple[Path, ...] = ()

    def sees_host_files(self) -> bool:
        return self.host is None

    def with_pushed(self, paths: Sequence[Path]) -> Self:
        return self if self.host is None else replace(self, pushed=tuple(paths))

    @property
    def cpus(self) -> int:
        """CPUs of the emulated machine; beside domUs, dom0 has one of its own."""
        return 1 + self.pcpus if self.domain == "domu" else self.smp

    def shape(self) -> MachineShape:
        return MachineShape(self.smp, self.memory_bytes)

    def offered(self) -> frozenset[type[Capability]]:
        if self.host is not None:
            return frozenset({Files, RecordInside})
        lacks = (set() if self.domain == "domu" else {Guests}) | (set() if self.link else {Link})
        return frozenset(self.offers) - lacks

    def slowed_by(self) -> frozenset[str] | None:
        ways = ("xen-cap", "hog", *(("emulator",) if self.slow_cores else ()))
        return frozenset(ways) if self.link else None

    def asked(self) -> Mapping[str, Any]:
        """Plain values that distinguish one saved machine from another."""
        return {
            "domain": self.domain,
            "mode": self.mode,
            "mem": self.memory_bytes,
            "smp": self.smp,
            "guests": self.guests,
            "pcpus": self.pcpus,
            "weight": self.weight,
            "cap": self.cap_percent,
            "kernel": str(self.kernel),
        }

    def files(self, kernel: GuestKernel) -> Sequence[Path]:
        """Every file that a saved machine is made of, including the code that makes it."""
        found = [qemu_program.program(), kernel.kernel, kernel.initramfs]
        found += [binaries.find("vtax-agent"), *_code()]
        if self.domain != "native":
            found.append(parts.hypervisor())
        if self.domain == "domu":
            found += parts.own_files()
        return found

    def domu(self, number: int, modules: Sequence[str]) -> dom0.Domain:
        """The domU of this number, which loads `modules`."""
        # The first CPU is dom0's; the domUs' CPUs take the others in turn.
        first = number * self.smp
        pinned = [1 + (first + vcpu) % self.pcpus for vcpu in range(self.smp)]
        return dom0.Domain(
            number,
            self.mode,
            self.memory_bytes,
            self.smp,
            pinned,
            self.weight,
            self.cap_percent,
            modules,
            swaps=self.swap_bytes > 0,
            linked=self.link is not None,
        )

    def emulated(
        self,
        kernel: GuestKernel,
        modules: tuple[str, ...],
        ram: Path | None = None,
        saved: bool = False,
        network_pid: int | None = None,
    ) -> Emulated:
        """The emulated machine; the file `ram`, if given, has its memory."""
        is_domu = self.domain == "domu"
        own = DOM0_BYTES if is_domu else self.memory_bytes
        own_cpus = 1 if is_domu else self.smp
        size = own + (0 if self.domain == "native" else XEN_BYTES)
        return Emulated(
            memory_bytes=size + (self.guests * self.memory_bytes if is_domu else 0),
            smp=self.cpus,
            guests=self.guests if is_domu else 0,
            icount=None,
            kernel=kernel.kernel,
            modules=modules,
            view=self.view(),
            qemu=self._emulator(own, own_cpus),
            cpu=CPU,
            is_measured=not is_domu,
            ram=ram,
            saved=saved,
            network_pid=network_pid,
        )

    def _emulator(self, memory_bytes: int, cpus: int) -> Emulator:
        """QEMU; with Xen, whose dom0 has this memory and these CPUs."""
        program = qemu_program.program()
        disk = swap.virtio_disk() if self.swap_bytes else []
        plain = Emulator(program, disk)
        if self.domain != "native":
            plain = replace(_hypervisor(program, memory_bytes, cpus), options=disk)
        qemu = unpacked_qemu.installed() if self.slow_cores else None
        return plugins.slowable(plain, qemu.version) if qemu else plain


def measured_modules(kernel: GuestKernel) -> tuple[str, ...]:
    """What the kernel of `native` and `dom0` loads."""
    unused = (*guest_kernel.NETWORK_MODULES, *guest_kernel.FILE_SYSTEM_MODULES)
    return tuple(kernel.without(*unused, *guest_kernel.VSOCK_MODULES))


def _hypervisor(program: Path, memory_bytes: int, cpus: int) -> Emulator:
    size = f"{memory_bytes >> 20}M"
    line = [f"dom0_mem={size},max:{size}", f"dom0_max_vcpus={cpus}", "dom0_vcpus_pin"]
    line += ["sched=credit2", "console=com1", "com1=115200,8n1", "loglvl=warning", "noreboot=0"]
    # By CR0.TS Xen would learn that a guest needs its registers, but XSAVE and XRSTOR of QEMU 7.2
    # pass over it: a guest would save those of another as its own.
    line += ["spec-ctrl=eager-fpu"]
    # Scrubbing writes all of the memory, which a saved machine would then keep.
    line += ["bootscrub=0"]
    inside = sandbox.WORK.parent / "hypervisor"
    return Emulator(
        program,
        parameters=("console=hvc0", BOUNCE),
        read_only={parts.hypervisor(): inside},
        hypervisor=Hypervisor(inside, " ".join(line)),
    )


def _code() -> Sequence[Path]:
    folders = (Path(__file__).parent, Path(emulator.__file__).parent)
    return sorted(path for folder in folders for path in folder.glob("*.py"))
