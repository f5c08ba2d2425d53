"""How a machine with Xen, or without, is booted, saved and restored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from vtax.environments.agent import Agent, MachineLostError
from vtax.environments.emulated_host import snapshot
from vtax.environments.emulated_host.emulator import Emulated, Emulator
from vtax.environments.emulated_host.host import EmulatedHost
from vtax.environments.emulated_host.snapshot import Name
from vtax.environments.emulated_host.started import HOST_TIMEOUT_S, Booting, Hellos
from vtax.environments.guest_kernel import GuestKernel
from vtax.environments.xen import boot, dom0, parts
from vtax.environments.xen.configuration import XenConfiguration, measured_modules

KEEP = 6
"""Three domains of two sizes each; a domU's snapshot takes 0.7 GB of disk."""


@dataclass(frozen=True, slots=True)
class XenRecipe:
    """The `Recipe` of one domain."""

    xen: XenConfiguration
    kernel: GuestKernel
    folder: str = "xen-saved"
    keep: int = KEEP
    attempts: int = 1
    nudge_s: float | None = None
    emulated_clock: bool = False
    network_pid: int | None = None
    """The process that holds the network namespace of the machine's link; None: no link."""

    @classmethod
    def of(cls, xen: XenConfiguration, network_pid: int | None = None) -> Self:
        """The recipe, with the kernel that is there now; raises VtaxError when it cannot do."""
        return cls(xen, parts.kernel(xen.kernel), network_pid=network_pid)

    @property
    def what(self) -> str:
        return "the emulated machine" if self.xen.domain == "native" else "Xen's dom0"

    @property
    def snapshot(self) -> bool:
        # dom0 of a saved machine would remember the content of another disk; a link is made anew
        # for each machine.
        return self.xen.snapshot and not self.xen.swap_bytes and not self.xen.link

    def name(self) -> Name:
        versions = [parts.VERSION, self.kernel.release]
        return snapshot.name(self.xen.asked(), self.xen.files(self.kernel), versions)

    def booting(self, ram: Path | None) -> Booting:
        xen = replace(self.xen, slow_cores=False) if ram else self.xen
        if xen.domain != "domu":
            machine = xen.emulated(self.kernel, measured_modules(self.kernel), ram)
            return Booting(machine, self.kernel.initramfs.read_bytes(), _await_measured)
        linked = xen.link is not None
        guest = parts.guest(self.kernel, linked=linked)
        first = parts.first_domain(self.kernel, guest, linked=linked)
        machine = xen.emulated(self.kernel, first.modules, ram, network_pid=self.network_pid)

        def start(emulator: Emulator, agent: Agent) -> Hellos:
            hello = agent.hello(HOST_TIMEOUT_S)
            host = EmulatedHost(agent)
            host.set_clock()
            if linked:
                host.must(dom0.shell(dom0.bridge_script()), "make a bridge for its domU")
            domains = [xen.domu(n, guest.modules) for n in range(xen.guests)]
            return Hellos(hello, boot.start_domus(emulator, host, domains))

        return Booting(machine, first.initramfs, start)

    def restored(self, ram: Path) -> Emulated:
        return self.xen.emulated(self.kernel, (), ram, saved=True)

    def pause(self, host: EmulatedHost) -> None:
        # A domU that is in its own code under SVM could not be restored.
        if self.xen.domain == "domu":
            host.must(dom0.shell(dom0.each_script("pause", self.xen.guests)), "pause its domUs")

    def resume(self, host: EmulatedHost) -> None:
        if self.xen.domain == "domu":
            host.set_clock()
            host.must(dom0.shell(dom0.each_script("unpause", self.xen.guests)), "resume its domUs")

    def lost_guest(
        self, emulator: Emulator, host: EmulatedHost, number: int, what: str
    ) -> MachineLostError:
        return boot.lost_guest(emulator, host, number, what)


def _await_measured(_emulator: Emulator, agent: Agent) -> Hellos:
    return Hellos(agent.waiting(HOST_TIMEOUT_S), ())
