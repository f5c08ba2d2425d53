"""QEMU full-system guests, with KVM where it really runs a kernel, else by emulation (TCG)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from vtax.core.checks.model import Check
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.units import format_bytes
from vtax.environments import (
    guest_disk,
    guest_group,
    guest_kernel,
    kvm_probe,
    link,
    mpi_hosts,
    qemu_program,
    sandbox,
    swap,
)
from vtax.environments.base import Allocation, HostTree, Launch, allowed_cpus, register
from vtax.environments.capabilities import (
    Capability,
    CountPrograms,
    Files,
    GuestPage,
    Guests,
    Link,
    LinkKind,
    Pause,
    RecordInside,
    RecordOutside,
)
from vtax.environments.guest_page import FILE as PAGE_FILE
from vtax.environments.machine import Machine, counting, pausing, publishing, shared_tree
from vtax.environments.option_values import cpu_count, guest_memory
from vtax.environments.qemu_program import (
    INSTALLED,
    Emulator,
    Installed,
    Kvm,
    QemuKernel,
    export,
    program,
)
from vtax.workloads.base import MachineShape

Accelerator = Literal["auto", "kvm", "tcg"]

LINKS: Mapping[LinkKind, str | None] = {"tap": "eth0", "vhost": "eth0", "slirp": "eth0"}
SMALLEST_BYTES = 192 << 20
"""The uncompressed Debian kernel alone takes 63 MiB while it is loaded; 192 MiB boots."""
PAGE_BYTES = 4096
"""docs/record.md"""
BOOT_TIMEOUT_S = 120.0
"""KVM may itself be emulated: in a lab on a busy machine a guest takes more than 30 s."""
PROBE_TIMEOUT_S = 30.0


@register
@dataclass(frozen=True, slots=True)
class Qemu(HostTree, guest_group.Grouped):
    """A full-system QEMU guest with a distribution kernel.

    It runs on the host's own userland, shared read-only by 9p.
    """

    name: ClassVar[str] = "qemu"
    keys: ClassVar[Mapping[str, str]] = {
        "accel": "kvm, tcg, or auto: KVM if it boots, else TCG (default: auto)",
        "smp": "number of CPUs (default: 1)",
        "mem": "memory (default: 1G)",
        "swap": "a swap disk of this size (default: none)",
        **guest_disk.KEYS,
        **guest_disk.IOPS,
        "cpu": "QEMU CPU model (default: host with KVM, max with TCG)",
        "kernel": "a vmlinuz-RELEASE (default: found in /boot or fetched)",
        "page": "on: memory shared with the host for counters (default: off)",
        **guest_group.KEYS,
        **link.KEYS,
    }
    examples: ClassVar[Sequence[str]] = (
        "qemu",
        "qemu:accel=tcg,smp=2,mem=2G",
        "qemu:net=tap,rate=500M",
        "qemu:guests=2,mem=512M",
        "qemu:disk=1G,iops=150",
    )
    offers: ClassVar[Mapping[type[Capability], str]] = {
        Files: "qemu",
        Guests: "qemu:guests=2",
        GuestPage: "qemu",
        RecordOutside: "qemu",
        CountPrograms: "qemu",
        Pause: "qemu",
        RecordInside: "qemu",
        Link: "qemu:net=tap",
    }
    checks: ClassVar[Sequence[type[Check]]] = (
        Installed,
        QemuKernel,
        Kvm,
        sandbox.Bubblewrap,
        link.Links,
    )

    accel: Accelerator = "auto"
    smp: int = 1
    memory_bytes: int = 1 << 30
    cpu: str | None = None
    kernel: Path | None = None
    page: bool = False
    swap_bytes: int = 0
    disk: guest_disk.DataDisk = guest_disk.NONE
    emulator: Emulator = INSTALLED
    boot_timeout_s: float = BOOT_TIMEOUT_S

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        kernel = Path(options["kernel"]) if "kernel" in options else None
        if kernel and not kernel.is_file():
            raise MisuseError(f"qemu: kernel={kernel} is not a file")
        memory = guest_memory("qemu", options.get("mem", "1G"), SMALLEST_BYTES)
        wanted = link.wanted("qemu", options, LINKS)
        guests = guest_group.count("qemu", options, memory, wanted)
        return cls(
            accel=_accelerator(options.get("accel", "auto")),
            smp=cpu_count("qemu", "smp", options["smp"]) if "smp" in options else 1,
            memory_bytes=memory,
            cpu=_cpu_model(options.get("cpu")),
            kernel=kernel,
            page=_switch("page", options.get("page", "off")),
            swap_bytes=swap.size("qemu", options),
            disk=guest_disk.wanted("qemu", options),
            link=wanted,
            guests=guests,
            mpi=mpi_hosts.wanted("qemu", options, guests, joined=wanted is not None),
        )

    def shape(self) -> MachineShape:
        return self.together(MachineShape(self.smp, self.memory_bytes))

    def boot_remedy(self) -> str:
        if self.accel == "kvm":
            return "KVM may not run ordinary kernels on this host: use accel=tcg or accel=auto"
        if self.cpu:
            return f"leave out cpu={self.cpu}, or see 'qemu-system-x86_64 -cpu help' for the models"
        return super(Qemu, self).boot_remedy()

    def check(self) -> None:
        self._program()
        sandbox.bubblewrap()
        if self.accel == "kvm" and (reason := kvm_probe.obstacle()):
            raise VtaxError(f"qemu:accel=kvm is not possible here: {reason}", "use accel=tcg")
        if self.swap_bytes:
            swap.check_guest()
        self.disk.check()
        link.check("qemu", self.link)
        found = guest_kernel.prepare(self.kernel)
        if self.kernel:
            self._require_modules(found)

    def start_one(self, work: Path, cpus: Sequence[int], *place: Any) -> Machine:
        def start() -> Machine:
            return Machine(self, work, cpus, *place)

        own = guest_disk.VIRTIO_DEVICES[1 if self.swap_bytes else 0]
        disks = [*swap.disk(self.swap_bytes, guest_disk.VIRTIO_DEVICES[0]), *self.disk.disk(own)]
        return guest_disk.started(start, self.name, work, disks)

    def capabilities(self, machine: Machine) -> Sequence[Capability]:
        own = (counting(machine), pausing(machine), publishing(machine, device=self.page))
        return (*shared_tree(machine), *own, *link.offered(machine))

    def launch(self, allocation: Allocation) -> Launch:
        accel, notes = self._choose()
        guest = guest_kernel.prepare(self.kernel)
        box = sandbox.Box(
            work=allocation.work,
            view=self.view(),
            read_only={
                guest.kernel: _inside("kernel"),
                guest.initramfs: _inside("initramfs"),
                **self.emulator.read_only,
            },
            writable=self.emulator.writable,
            environment=self.emulator.environment,
            devices=(*((kvm_probe.DEVICE,) if accel == "kvm" else ()), *link.devices(self.link)),
            has_tree=True,
            namespace_pid=allocation.namespace_pid,
        )
        argv = sandbox.command(box, self._qemu(accel, guest, allocation))
        return Launch(
            sandbox.pinned(allocation.cpus, argv), sandbox.WORK, self.boot_timeout_s, tuple(notes)
        )

    def description(self, facts: Mapping[str, Any]) -> str:
        release = facts.get("kernel", {}).get("release", "?")
        kind = facts.get("virtualization", {}).get("kind", "unknown")
        how = {"kvm": "QEMU with KVM", "qemu-tcg": "QEMU full-system emulation (TCG)"}
        return (
            f"{how.get(kind, 'QEMU')}, Linux {release}, "
            f"{self.smp} CPU, {format_bytes(self.memory_bytes)}{swap.said(self.swap_bytes)}"
            f"{self.disk.said()}{link.said(self.link)}{guest_group.said(self.guests)}"
        )

    def _choose(self) -> tuple[Literal["kvm", "tcg"], Sequence[str]]:
        if self.accel != "auto":
            return self.accel, ()
        if (reason := self.kvm_fault()) is None:
            return "kvm", ("KVM passed its boot probe",)
        return "tcg", (f"KVM is not used: {reason}",)

    def kvm_fault(self) -> str | None:
        """Why KVM runs no kernel here; None when one has booted."""
        if reason := kvm_probe.obstacle():
            return reason
        key = f"{self.cpu}{self.kernel}"
        # Whether KVM works depends on neither disks nor link, which are not made for the probe.
        probed = replace(
            self,
            accel="kvm",
            swap_bytes=0,
            disk=guest_disk.NONE,
            link=None,
            guests=1,
            boot_timeout_s=PROBE_TIMEOUT_S,
        )
        return kvm_probe.probe(probed, allowed_cpus()[-self.smp :], key)

    def _qemu(
        self, accel: str, guest: guest_kernel.GuestKernel, allocation: Allocation
    ) -> list[str]:
        line = [str(self._program()), "-accel", accel, "-machine", "q35", "-smp", str(self.smp)]
        line += ["-cpu", self.cpu or {"kvm": "host", "tcg": "max"}[accel]]
        line += ["-m", f"{self.memory_bytes >> 20}M"]
        line += qemu_program.BARE
        files = _inside("kernel"), _inside("initramfs")
        line += self.emulator.boot(*files, self._parameters(guest))
        line += export("host", sandbox.TREE, "readonly=on,multidevs=remap")
        line += export("work", sandbox.WORK, "multidevs=remap")
        if self.swap_bytes:
            line += swap.virtio_disk()
        if self.disk:
            line += guest_disk.virtio_disk(guest_disk.FILE, "disk", self.disk.iops)
        if self.link:
            # Its threads' names say which is which.
            line += ["-name", "guest=vtax,debug-threads=on"]
            tap = link.tap_network(allocation.number)
            tap += ",vhost=on" if self.link.kind == "vhost" else ""
            line += ["-netdev", f"{tap if self.link.has_tap else link.user_network()},id=link"]
            mac = guest_group.mac(allocation.number)
            line += ["-device", f"virtio-net-pci,netdev=link,mac={mac},romfile="]
        if self.page:
            # A PCI device's memory is at least a page as well.
            memory = f"memory-backend-file,id=page,mem-path={sandbox.WORK / PAGE_FILE}"
            line += ["-object", f"{memory},size={PAGE_BYTES},share=on"]
            line += ["-device", "ivshmem-plain,memdev=page"]
        return [*line, *qemu_program.agent_port(allocation.channel_fd), *self.emulator.options]

    def _require_modules(self, kernel: guest_kernel.GuestKernel) -> None:
        """Raise VtaxError when a kernel of the user's lacks what this guest has."""
        if self.swap_bytes or self.disk:
            guest_kernel.require(kernel, [guest_kernel.DISK_MODULE], "a disk")
        if self.disk:
            guest_kernel.require(kernel, guest_kernel.FILE_SYSTEM_MODULES[-1:], "disk=")
        if self.link:
            guest_kernel.require(kernel, guest_kernel.NETWORK_MODULES[-1:], "net=")

    def _program(self) -> Path:
        return self.emulator.program or program()

    def _parameters(self, guest: guest_kernel.GuestKernel) -> list[str]:
        unused = [] if self.swap_bytes or self.disk else [guest_kernel.DISK_MODULE]
        unused += [] if self.disk else guest_kernel.FILE_SYSTEM_MODULES
        unused += [] if self.link else guest_kernel.NETWORK_MODULES
        modules = guest.without(*unused, *guest_kernel.VSOCK_MODULES)
        return [*qemu_program.tree_parameters(modules), *self.emulator.parameters]


def _inside(name: str) -> Path:
    return sandbox.WORK.parent / name


def _accelerator(text: str) -> Accelerator:
    if text not in ("auto", "kvm", "tcg"):
        raise MisuseError(f"qemu: accel={text} is unknown", "use auto, kvm or tcg")
    return text  # type: ignore[return-value]


def _switch(key: str, text: str) -> bool:
    if text not in ("on", "off"):
        raise MisuseError(f"qemu: {key}={text} is unknown", "use on or off")
    return text == "on"


def _cpu_model(text: str | None) -> str | None:
    # A plain name only: a comma would separate options of the spec, and then of QEMU.
    if text is not None and not text.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise MisuseError(f"qemu: cpu={text} is not the name of a CPU model", "see qemu -cpu help")
    return text
