"""The configuration of a lab: its emulated host and the guests in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtax.environments.base import PagingEnvironment
from vtax.environments.capabilities import Capability, GuestPage, PagingMode, Switch
from vtax.environments.emulated_host import emulator
from vtax.environments.emulated_host.emulator import Emulated
from vtax.environments.lab import guest_initramfs, host_initramfs, program
from vtax.environments.lab.nested import Nested
from vtax.workloads.base import MachineShape

QCOW2_MAGIC = b"QFI\xfb"


@dataclass(frozen=True)
class LabConfiguration(PagingEnvironment):
    """What a spec of the environment `lab` says, without how a machine is started from it."""

    nested_paging: bool = True
    memory_bytes: int = (1280 + 256) << 20
    smp: int = 1
    guest: str = "host"
    guest_memory_bytes: int = 256 << 20
    guest_smp: int = 1
    guests: int = 1
    icount: int | None = None
    kernel: Path | None = None
    snapshot: bool = True
    model: str | None = None
    """The machine of the model by which a plugin of QEMU counts what the nested guest does."""
    slow_cores: bool = False
    """Whether programs in the emulated host can slow its CPUs."""
    kept: Path | None = None
    """For `guest=none`: a folder of this machine's that programs in the emulated host write."""

    @property
    def kind(self) -> guest_initramfs.Kind:
        return guest_initramfs.kind(self.guest)

    def shape(self) -> MachineShape:
        return MachineShape(self.guest_smp, self.guest_memory_bytes)

    def offered(self) -> frozenset[type[Capability]]:
        # A guest whose files are mounted by 9p cannot be switched; only such a one shares a folder.
        if self.kind == "host":
            return frozenset(self.offers) - {Switch}
        return frozenset(self.offers) - (frozenset() if self.model else {GuestPage})

    def paging_obstacle(self, mode: PagingMode) -> str | None:
        return program.shadow_obstacle() if mode == "shadow" else None

    def asked(self) -> Mapping[str, Any]:
        """Plain values that distinguish one saved lab from another."""
        return {
            "npt": self.nested_paging,
            "mem": self.memory_bytes,
            "smp": self.smp,
            "guest": self.guest,
            "guest_mem": self.guest_memory_bytes,
            "guest_smp": self.guest_smp,
            "guests": self.guests,
            "icount": self.icount,
            "kernel": str(self.kernel),
        }

    def files(self, parts: host_initramfs.Parts) -> Sequence[Path]:
        """Every file that a saved lab is made of, including the code that makes it."""
        image = [Path(self.guest)] if self.kind in ("disk", "initramfs") else []
        return [*parts.files(), *image, *_code()]

    def nested(self, modules: tuple[str, ...]) -> Nested:
        """The nested guests; `modules` are in their initramfs."""
        return Nested(self.kind, self.guest_memory_bytes, self.guest_smp, modules)

    def emulated(
        self,
        parts: host_initramfs.Parts,
        modules: tuple[str, ...],
        ram: Path | None = None,
        saved: bool = False,
    ) -> Emulated:
        """The emulated host; the file `ram`, if given, has its memory."""
        image = Path(self.guest) if self.kind == "disk" else None
        return Emulated(
            memory_bytes=self.memory_bytes,
            smp=self.smp,
            guests=self.guests,
            icount=self.icount,
            kernel=parts.kernel.kernel,
            modules=modules,
            view=self.view(),
            qemu=program.boxed(self.model, slow_cores=self.slow_cores),
            image=image,
            image_format=_image_format(image) if image else "raw",
            ram=ram,
            kept=self.kept,
            saved=saved,
        )


def _image_format(image: Path) -> str:
    # Named to QEMU, which must not guess the format: a guest could have written another format's
    # header.
    with image.open("rb") as file:
        return "qcow2" if file.read(4) == QCOW2_MAGIC else "raw"


def _code() -> Sequence[Path]:
    return sorted(
        [*Path(__file__).parent.glob("*.py"), *Path(emulator.__file__).parent.glob("*.py")]
    )
