"""The environment `xen`: what its spec may say, and what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.units import format_bytes
from vtax.environments import guest_disk, link, packages, qemu_program, sandbox, swap
from vtax.environments.base import MachineLike, allowed_cpus, register
from vtax.environments.capabilities import (
    Capability,
    Files,
    Guests,
    Link,
    LinkKind,
    Pause,
    RecordInside,
    RecordOutside,
)
from vtax.environments.copying_machine import CopyingMachine
from vtax.environments.emulated_host import emulator
from vtax.environments.option_values import (
    ON_OFF,
    choice,
    cpu_count,
    guest_memory,
    one_of,
    whole_number,
)
from vtax.environments.ssh_client import Login
from vtax.environments.xen import dom0, parts
from vtax.environments.xen.configuration import Domain, XenConfiguration

SMALLEST_BYTES = 192 << 20
MOST_WEIGHT = 65535
MOST_GUESTS = 4
OF_EMULATED = ("guests", "snapshot", "swap", "slow-cores", "net", "rate")
OF_DOMUS = ("mode", "guests", "pcpus", "weight", "cap", "net", "rate")
LINKS: Mapping[LinkKind, str | None] = {"tap": "eth0"}


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
class Xen(XenConfiguration):
    """Linux as Xen's dom0, as its domU, or without Xen, on the same emulated machine."""

    name: ClassVar[str] = "xen"
    keys: ClassVar[Mapping[str, str]] = {
        "domain": "native: without Xen, dom0, or domu (default: domu)",
        "mode": "a domU's kind: pv (paravirtualized) or pvh (by SVM) (default: pv)",
        "mem": "memory of the kernel that is measured (default: 256M)",
        "smp": "its number of CPUs (default: 1)",
        "swap": "a swap disk of this size (default: none)",
        "guests": "number of domUs, all alike (default: 1)",
        "pcpus": "physical CPUs that the domUs share (default: smp)",
        "weight": "a domU's share of CPU time under credit2, beside dom0's 256 (default: 256)",
        "cap": "the most CPU time of a domU, in percent of a CPU (default: 0, no limit)",
        "slow-cores": "on: its CPUs can be slowed while it runs (default: off)",
        **link.KEYS,
        "kernel": "a vmlinuz-RELEASE (default: found in /boot or fetched)",
        "host": "ssh:root@HOST, a real Xen host's dom0 (default: an emulated machine)",
        "config": "ssh's configuration file for host= (default: the user's)",
        "snapshot": "off: boot each time (default: on)",
    }
    examples: ClassVar[Sequence[str]] = ("xen", "xen:domain=dom0,mem=512M", "xen:cap=50")
    offers: ClassVar[Mapping[type[Capability], str]] = {
        Files: "xen",
        RecordOutside: "xen",
        RecordInside: "xen",
        Guests: "xen",
        Link: "xen:net=tap",
        Pause: "xen",
    }
    checks: ClassVar[Sequence[type[Check]]] = (Installed, sandbox.Bubblewrap, link.Links)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        one_of("xen", options, "domain", ("native", "dom0", "domu"))
        one_of("xen", options, "mode", ("pv", "pvh"))
        domain: Domain = options.get("domain", "domu")  # type: ignore[assignment]
        if domain != "domu" and (key := next((key for key in OF_DOMUS if key in options), None)):
            raise MisuseError(f"xen: {key}= is for a domU", "use domain=domu")
        host = _host(domain, options)
        kernel = Path(options["kernel"]) if "kernel" in options else None
        if kernel and not kernel.is_file():
            raise MisuseError(f"xen: kernel={kernel} is not a file")
        smp = cpu_count("xen", "smp", options.get("smp", "1"))
        guests = whole_number("xen", "guests", options.get("guests", "1"), 1, MOST_GUESTS)
        pcpus = options.get("pcpus", str(smp))
        return cls(
            domain=domain,
            mode=options.get("mode", "pv"),  # type: ignore[arg-type]
            memory_bytes=guest_memory("xen", options.get("mem", "256M"), SMALLEST_BYTES),
            smp=smp,
            guests=guests,
            pcpus=whole_number("xen", "pcpus", pcpus, 1, guests * smp),
            weight=whole_number("xen", "weight", options.get("weight", "256"), 1, MOST_WEIGHT),
            cap_percent=whole_number("xen", "cap", options.get("cap", "0"), 0, 100 * smp),
            slow_cores=choice("xen", "slow-cores", options.get("slow-cores", "off"), ON_OFF),
            kernel=kernel,
            snapshot=choice("xen", "snapshot", options.get("snapshot", "on"), ON_OFF),
            host=host,
            swap_bytes=_swap(guests, options),
            link=link.wanted("xen", options, LINKS),
        )

    def host_cpus(self) -> int:
        # dom0 has a CPU of its own beside a domU.
        return min(self.cpus, len(allowed_cpus()))

    def check(self) -> None:
        if self.host is not None:
            self.host.line()
            parts.kernel(self.kernel)
            return
        program = qemu_program.program()
        if self.mode == "pvh":
            emulator.require_svm(program)
        sandbox.bubblewrap()
        if self.swap_bytes:
            swap.check_guest()
        link.check(self.name, self.link)
        parts.kernel(self.kernel)
        if self.domain != "native":
            if reason := parts.obstacle():
                raise VtaxError(f"xen: {reason}", "use xen:domain=native, or a machine with Debian")
            parts.hypervisor()

    def start(self, work: Path, cpus: Sequence[int]) -> MachineLike:
        # Most commands start no such machine.
        from vtax.environments.xen.machine import XenMachine
        from vtax.environments.xen.remote import RemoteDomu

        if self.host is not None:
            return CopyingMachine(RemoteDomu(self, self.host), work, cpus, self.pushed)
        device = guest_disk.VIRTIO_DEVICES[0] if self.domain != "domu" else dom0.SWAP_DEVICE

        def start() -> MachineLike:
            return XenMachine(self, work, cpus)

        disks = swap.disk(self.swap_bytes, device)
        return guest_disk.started(start, self.name, work, disks)

    def description(self, facts: Mapping[str, Any]) -> str:
        release = facts.get("kernel", {}).get("release", "?")
        what = {
            "native": "no Xen",
            "dom0": f"dom0 of Xen {parts.VERSION}",
            "domu": f"domU ({self.mode.upper()}) of Xen {parts.VERSION}",
        }
        where = f"the host {self.host.host}" if self.host else "an emulated machine (QEMU TCG)"
        return (
            f"{what[self.domain]}, on {where}, Linux {release}, "
            f"{self.smp} CPU, {format_bytes(self.memory_bytes)}{swap.said(self.swap_bytes)}"
            f"{link.said(self.link)}"
        )


def _host(domain: Domain, options: Mapping[str, str]) -> Login | None:
    if (text := options.get("host")) is None:
        if "config" in options:
            raise MisuseError("xen: config= is for host=", "write for example host=ssh:root@HOST")
        return None
    target = text.removeprefix("ssh:")
    if target == text:
        raise MisuseError(f"xen: host={text} is not ssh:root@HOST")
    if domain != "domu":
        other = f"ssh:{target}" if domain == "dom0" else f"ssh:{target}, booted without Xen"
        raise MisuseError(f"xen: host= is for domain=domu; {domain} is {other}")
    if wrong := next((key for key in OF_EMULATED if key in options), None):
        raise MisuseError(f"xen: {wrong}= is for the emulated machine, not for host=")
    return Login.parse(target, options.get("config"))


def _swap(guests: int, options: Mapping[str, str]) -> int:
    found = swap.size("xen", options)
    if found and guests > 1:
        raise MisuseError("xen: swap= is for one domU, which has the only disk", "use guests=1")
    return found
