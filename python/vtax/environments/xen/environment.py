"""The environment `xen`: what its spec may say, and what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.units import format_bytes
from vtax.environments import guest_kernel, packages, qemu_program, sandbox, swap
from vtax.environments.base import (
    Allocation,
    HostTree,
    Launch,
    MachineLike,
    allowed_cpus,
    cpu_count,
    guest_memory,
    one_of,
    register,
)
from vtax.environments.capabilities import Capability, Files, Pause, RecordInside, RecordOutside
from vtax.environments.emulated_host.emulator import Emulated
from vtax.environments.guest_kernel import GuestKernel
from vtax.environments.machine import Machine, pausing, shared_tree
from vtax.environments.process_environment import ProcessEnvironment
from vtax.environments.qemu_program import Emulator, Hypervisor
from vtax.environments.xen import dom0, parts
from vtax.workloads.base import MachineShape

Domain = Literal["native", "dom0", "domu"]

CPU = "max,-smap,-rdtscp"
"""With SMAP, Xen 4.17 crashes on QEMU 7.2. RDTSCP in a PVH domU leaves with the exit code of RDTSC,
at which Xen crashes that domU (both tried)."""
SMALLEST_BYTES = 192 << 20
XEN_BYTES = 192 << 20
"""Memory of the machine that Xen keeps for itself and its heap."""
DOM0_BYTES = 640 << 20
"""dom0's memory beside a domU: the initramfs and what is unpacked from it take 330 MiB."""
MOST_WEIGHT = 65535
CONSOLE = "console=hvc0"
BOUNCE = "swiotlb=4096"
"""8 MiB of bounce buffers. By default a paravirtualized dom0's kernel takes 64 MiB for them."""
BOOT_TIMEOUT_S = 120.0
"""A boot takes 13 s on an idle machine."""


class Installed(Check):
    """Xen's dom0 and domU beside the same kernel without Xen, on an emulated machine."""

    name = "xen"
    purpose = "environment xen"

    def find(self, host: Host) -> Finding:
        if not host.is_x86:
            return self.impossible(f"its machines are x86, and the agent is for {host.machine}")
        if host.which(qemu_program.PROGRAM) is None:
            return self.missing("QEMU is not installed", host.install("qemu-system-x86", "QEMU"))
        if any((host.cache / "vtax/xen").glob("xen-*/boot/xen-*.gz")):
            return self.ok(f"Xen {parts.VERSION}, in the cache of vtax")
        if reason := packages.obstacle(parts.SHELF, host.path("/")):
            return self.impossible(f"no packages of Xen: {reason}")
        return self.ok(f"Debian's packages of Xen {parts.VERSION}, fetched at first use")


@register
@dataclass(frozen=True, slots=True)
class Xen(HostTree, ProcessEnvironment):
    """Linux as Xen's dom0, as its domU, or without Xen, on the same emulated machine."""

    name: ClassVar[str] = "xen"
    keys: ClassVar[Mapping[str, str]] = {
        "domain": "native: without Xen, dom0, or domu (default: domu)",
        "mode": "a domU's kind: pv (paravirtualized) or pvh (by SVM) (default: pv)",
        "mem": "memory of the kernel that is measured (default: 256M)",
        "smp": "its number of CPUs (default: 1)",
        "swap": "a swap disk of this size (default: none)",
        "weight": "a domU's share of CPU time under credit2, beside dom0's 256 (default: 256)",
        "cap": "the most CPU time of a domU, in percent of a CPU (default: 0, no limit)",
        "kernel": "a vmlinuz-RELEASE (default: found in /boot or fetched)",
    }
    examples: ClassVar[Sequence[str]] = ("xen", "xen:domain=dom0,mem=512M", "xen:cap=50")
    offers: ClassVar[Mapping[type[Capability], str]] = {
        Files: "xen",
        RecordOutside: "xen",
        RecordInside: "xen",
        Pause: "xen:domain=native",
    }
    checks: ClassVar[Sequence[type[Check]]] = (Installed, sandbox.Bubblewrap)

    domain: Domain = "domu"
    mode: dom0.Mode = "pv"
    memory_bytes: int = 256 << 20
    smp: int = 1
    weight: int = 256
    cap_percent: int = 0
    kernel: Path | None = None
    swap_bytes: int = 0

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        one_of("xen", options, "domain", ("native", "dom0", "domu"))
        one_of("xen", options, "mode", ("pv", "pvh"))
        domain: Domain = options.get("domain", "domu")  # type: ignore[assignment]
        if domain != "domu" and (
            key := next((k for k in ("mode", "weight", "cap") if k in options), None)
        ):
            raise MisuseError(f"xen: {key}= is for a domU", "use domain=domu")
        kernel = Path(options["kernel"]) if "kernel" in options else None
        if kernel and not kernel.is_file():
            raise MisuseError(f"xen: kernel={kernel} is not a file")
        smp = cpu_count("xen", "smp", options.get("smp", "1"))
        return cls(
            domain=domain,
            mode=options.get("mode", "pv"),  # type: ignore[arg-type]
            memory_bytes=guest_memory("xen", options.get("mem", "256M"), SMALLEST_BYTES),
            smp=smp,
            weight=_number("weight", options.get("weight", "256"), 1, MOST_WEIGHT),
            cap_percent=_number("cap", options.get("cap", "0"), 0, 100 * smp),
            kernel=kernel,
            swap_bytes=swap.size("xen", options),
        )

    def shape(self) -> MachineShape:
        return MachineShape(self.smp, self.memory_bytes)

    def offered(self) -> frozenset[type[Capability]]:
        return frozenset(self.offers) - ({Pause} if self.domain == "domu" else set())

    def host_cpus(self) -> int:
        # dom0 has a CPU of its own beside a domU.
        return min(self.smp + (self.domain == "domu"), len(allowed_cpus()))

    def check(self) -> None:
        qemu_program.program()
        sandbox.bubblewrap()
        if self.swap_bytes:
            swap.check_guest()
        parts.kernel(self.kernel)
        if self.domain != "native":
            if reason := parts.obstacle():
                raise VtaxError(f"xen: {reason}", "use xen:domain=native, or a machine with Debian")
            parts.hypervisor()

    def start(self, work: Path, cpus: Sequence[int]) -> MachineLike:
        device = swap.VIRTIO_DEVICE if self.domain != "domu" else dom0.SWAP_DEVICE

        def start() -> MachineLike:
            return self._started(work, cpus)

        return swap.started(start, self.name, work, self.swap_bytes, device)

    def _started(self, work: Path, cpus: Sequence[int]) -> MachineLike:
        if self.domain != "domu":
            return Machine(self, work, cpus)
        from vtax.environments.xen.machine import XenMachine

        kernel = parts.kernel(self.kernel)
        first = parts.first_domain(kernel)
        domain = dom0.Domain(
            self.mode,
            self.memory_bytes,
            self.smp,
            self.weight,
            self.cap_percent,
            first.guest_modules,
            swaps=self.swap_bytes > 0,
        )
        return XenMachine(self._emulated(kernel.kernel, first), first.initramfs, domain, work, cpus)

    def launch(self, allocation: Allocation) -> Launch:
        kernel = parts.kernel(self.kernel)
        emulator = self._emulator(self.memory_bytes, self.smp)
        box = sandbox.Box(
            work=allocation.work,
            view=self.view(),
            read_only={
                kernel.kernel: _inside("kernel"),
                kernel.initramfs: _inside("initramfs"),
                **emulator.read_only,
            },
            has_tree=True,
        )
        argv = sandbox.command(box, self._qemu(emulator, kernel, allocation.channel_fd))
        return Launch(sandbox.pinned(allocation.cpus, argv), sandbox.WORK, BOOT_TIMEOUT_S)

    def capabilities(self, machine: Machine) -> Sequence[Capability]:
        return (*shared_tree(machine), pausing(machine))

    def description(self, facts: Mapping[str, Any]) -> str:
        release = facts.get("kernel", {}).get("release", "?")
        what = {
            "native": "no Xen",
            "dom0": f"dom0 of Xen {parts.VERSION}",
            "domu": f"domU ({self.mode.upper()}) of Xen {parts.VERSION}",
        }
        return (
            f"{what[self.domain]}, on an emulated machine (QEMU TCG), Linux {release}, "
            f"{self.smp} CPU, {format_bytes(self.memory_bytes)}{swap.said(self.swap_bytes)}"
        )

    def _qemu(self, emulator: Emulator, kernel: GuestKernel, channel_fd: int) -> list[str]:
        """The machine of `native` and `dom0`, which have this machine's tree at once."""
        size = self.memory_bytes + (XEN_BYTES if emulator.hypervisor else 0)
        line = [str(qemu_program.program()), "-accel", "tcg,thread=multi", "-machine", "q35"]
        line += ["-cpu", CPU, "-smp", str(self.smp), "-m", f"{size >> 20}M", *qemu_program.BARE]
        parameters = [*qemu_program.tree_parameters(_modules(kernel)), *emulator.parameters]
        line += emulator.boot(_inside("kernel"), _inside("initramfs"), parameters)
        line += qemu_program.export("host", sandbox.TREE, "readonly=on,multidevs=remap")
        line += qemu_program.export("work", sandbox.WORK, "multidevs=remap")
        line += emulator.options
        return [*line, *qemu_program.agent_port(channel_fd)]

    def _emulated(self, kernel: Path, first: parts.FirstDomain) -> Emulated:
        emulator = self._emulator(DOM0_BYTES, 1)
        return Emulated(
            memory_bytes=DOM0_BYTES + XEN_BYTES + self.memory_bytes,
            smp=self.smp + 1,
            guests=1,
            icount=None,
            kernel=kernel,
            modules=first.modules,
            view=self.view(),
            qemu=emulator,
            cpu=CPU,
        )

    def _emulator(self, memory_bytes: int, cpus: int) -> Emulator:
        disk = swap.virtio_disk() if self.swap_bytes else []
        if self.domain == "native":
            return replace(qemu_program.INSTALLED, options=disk)
        size = f"{memory_bytes >> 20}M"
        line = [f"dom0_mem={size},max:{size}", f"dom0_max_vcpus={cpus}", "dom0_vcpus_pin"]
        line += ["sched=credit2", "console=com1", "com1=115200,8n1", "loglvl=warning", "noreboot=0"]
        inside = _inside("hypervisor")
        return Emulator(
            qemu_program.program(),
            disk,
            parameters=(CONSOLE, BOUNCE),
            read_only={parts.hypervisor(): inside},
            hypervisor=Hypervisor(inside, " ".join(line)),
        )


def _modules(kernel: GuestKernel) -> list[str]:
    unused = guest_kernel.NETWORK_MODULES
    return [each for each in kernel.modules if Path(each).stem not in unused]


def _inside(name: str) -> Path:
    return sandbox.WORK.parent / name


def _number(key: str, text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise MisuseError(f"xen: {key}={text} must be a whole number from {least} to {most}")
    return int(text)
