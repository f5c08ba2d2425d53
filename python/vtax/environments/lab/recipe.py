"""How the lab's emulated host is booted, saved and restored."""

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
from vtax.environments.lab import boot, host_initramfs, program
from vtax.environments.lab.configuration import LabConfiguration

KEEP = 4
"""Each snapshot takes about 0.5 GB of disk."""
NUDGE_S = 5.0
"""QEMU 7.2 now and then leaves the timer's interrupt pending (IRR of the local APIC has it) while a
nested guest runs, and delivers it with the next interrupt. If that guest only computes, there is no
next interrupt, and the emulated host stands still."""


@dataclass(frozen=True, slots=True)
class LabRecipe:
    """The `Recipe` of a lab."""

    lab: LabConfiguration
    parts: host_initramfs.Parts
    folder: str = "lab"
    keep: int = KEEP
    what: str = "the lab's emulated host"
    nudge_s: float | None = NUDGE_S
    emulated_clock: bool = True
    """On a busy host the emulator's clock lags, and with it those of the guests."""

    @classmethod
    def of(cls, lab: LabConfiguration) -> Self:
        """The recipe, with the files that are there now; raises VtaxError when one is missing."""
        return cls(lab, host_initramfs.find_parts(lab.kernel))

    @property
    def snapshot(self) -> bool:
        return self.lab.snapshot

    @property
    def attempts(self) -> int:
        """If vtax's own guest does not boot, that is the emulator's fault: now and then it loses an
        interrupt of the nested guest (docs/environments.md). With an image of the user's, the image
        may be the cause."""
        return 1 if self.lab.kind in ("disk", "initramfs") else 2

    def name(self) -> Name:
        versions = [program.find().version, self.parts.kernel.release]
        return snapshot.name(self.lab.asked(), self.lab.files(self.parts), versions)

    def booting(self, ram: Path | None) -> Booting:
        lab = replace(self.lab, model=None, slow_cores=False) if ram else self.lab
        built = host_initramfs.build(self.parts, lab.guest, lab.nested_paging)

        def start(emulator: Emulator, agent: Agent) -> Hellos:
            hello = agent.hello(HOST_TIMEOUT_S)
            host = EmulatedHost(agent)
            host.set_clock()
            guests = boot.start_guests(host, emulator.guests, lab.nested(built.guest_modules))
            host.set_clock()
            return Hellos(hello, guests)

        machine = lab.emulated(self.parts, built.modules, ram)
        return Booting(machine, built.initramfs, start)

    def restored(self, ram: Path) -> Emulated:
        return self.lab.emulated(self.parts, (), ram, saved=True)

    def pause(self, host: EmulatedHost) -> None:
        boot.pause(host, self.lab.guests)

    def resume(self, host: EmulatedHost) -> None:
        boot.resume(host, self.lab.guests)
        host.set_clock()

    def lost_guest(
        self, _emulator: Emulator, host: EmulatedHost, number: int, what: str
    ) -> MachineLostError:
        lines = " | ".join(boot.console(host, number))
        return MachineLostError(
            f"the lab's nested guest {number} {what}; its console ends: {lines}"
        )
