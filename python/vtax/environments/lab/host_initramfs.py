"""The initramfs of the emulated host: vtax's programs, busybox, KVM, QEMU and its libraries."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vtax.core import binaries
from vtax.core.errors import VtaxError
from vtax.environments import guest_kernel, qemu_program
from vtax.environments.emulated_host import contents
from vtax.environments.emulated_host.host import HOST_PROGRAM
from vtax.environments.initramfs import newc
from vtax.environments.kernel_image import ModuleTree
from vtax.environments.lab import guest_initramfs

QEMU = PurePosixPath("/usr/bin") / qemu_program.PROGRAM
"""The path of QEMU in the emulated host, wherever it is on the real host."""
FIRMWARE_FOLDER = PurePosixPath("/usr/share/qemu")
GUEST_FIRMWARE = "qboot.rom"
"""The firmware of microvm. SeaBIOS puts the ACPI tables at the top of the memory, where microvm
puts the end of the initramfs as well: depending on its size the guest hangs or finds no devices.
qboot puts them below 1 MiB."""
FIRMWARE = (GUEST_FIRMWARE, "kvmvapic.bin", "linuxboot_dma.bin", "pvh.bin")
GUEST_KERNEL = PurePosixPath("/guest/kernel")
GUEST_INITRAMFS = PurePosixPath("/guest/initramfs")
MODULES = ("virtio_pci", "virtio_console", "virtio_blk", "9p", "9pnet_virtio", "tun", "kvm_amd")
FOR_TREE = ("overlay", "veth", "bridge", "sch_tbf", "vhost_net", "zram", "loop")
"""Modules for programs of the real host, where the kernel has them as modules."""
KVM_MODULE = "/modules/kvm_amd.ko"


@dataclass(frozen=True, slots=True)
class Parts:
    """The files of the real host that an emulated host is made of."""

    kernel: guest_kernel.GuestKernel
    agent: Path
    host_program: Path | None
    """None where it is not installed: guests can then be neither recorded nor switched."""
    busybox: Path
    qemu: Path
    libraries: tuple[Path, ...]
    firmware: tuple[Path, ...]

    def files(self) -> tuple[Path, ...]:
        """All these files: a snapshot is of another machine when one of them changes."""
        return (
            self.kernel.kernel,
            self.kernel.initramfs,
            self.agent,
            *([self.host_program] if self.host_program else []),
            self.busybox,
            self.qemu,
            *self.libraries,
            *self.firmware,
        )


@dataclass(frozen=True, slots=True)
class HostFiles:
    """A built initramfs, and the parameters that init needs for it."""

    initramfs: bytes
    modules: tuple[str, ...]
    guest_modules: tuple[str, ...]


def find_parts(kernel: Path | None) -> Parts:
    """Look up the files. Raises VtaxError with the remedy for a missing one."""
    program, own = qemu_program.program(), _host_program()
    found = guest_kernel.prepare(kernel)
    if not ModuleTree(found.tree).has("kvm_amd"):
        raise VtaxError(
            f"the kernel {found.release} has no module kvm_amd: no KVM in the emulated host",
            "install the distribution's generic kernel or give another one with lab:kernel=PATH",
        )
    return Parts(
        kernel=found,
        agent=binaries.find("vtax-agent"),
        host_program=own,
        busybox=contents.busybox(),
        qemu=program.resolve(),
        libraries=tuple(
            dict.fromkeys([*contents.libraries(program), *(contents.needed(own) if own else ())])
        ),
        firmware=tuple(_firmware(program)),
    )


def _host_program() -> Path | None:
    with contextlib.suppress(VtaxError):
        return binaries.find(HOST_PROGRAM.name)
    return None


def build(parts: Parts, guest: str, nested_paging: bool) -> HostFiles:
    """Put the archive together; it takes about 0.3 s and 130 MB."""
    tree = ModuleTree(parts.kernel.tree)
    agent, shell = parts.agent.read_bytes(), parts.busybox.read_bytes()
    has_guests = guest != guest_initramfs.NO_GUEST
    extra = [] if has_guests else [name for name in FOR_TREE if tree.has(name)]
    modules = tree.closure([*MODULES, *extra])
    files = {"init": agent, "bin/vtax-agent": agent, "bin/busybox": shell}
    files |= {f"modules/{name}.ko": content for name, content in modules}
    guest_modules: tuple[str, ...] = ()
    if has_guests:
        nested = guest_initramfs.build(guest, tree, agent, shell)
        guest_modules = nested.modules
        files |= _for_guests(parts, nested.initramfs)
    parameter = f"?npt={int(nested_paging)}"
    loaded = [f"/modules/{name}.ko" for name, _ in modules]
    return HostFiles(
        newc(files, contents.folders(files)),
        tuple(path + parameter if path == KVM_MODULE else path for path in loaded),
        guest_modules,
    )


def _for_guests(parts: Parts, initramfs: bytes) -> dict[str, bytes]:
    """QEMU and vtax's program with all that they load, and what the guests boot."""
    found = {
        QEMU: parts.qemu.read_bytes(),
        GUEST_KERNEL: parts.kernel.kernel.read_bytes(),
        GUEST_INITRAMFS: initramfs,
    }
    if parts.host_program:
        found[HOST_PROGRAM] = parts.host_program.read_bytes()
    found |= {PurePosixPath(path): path.read_bytes() for path in parts.libraries}
    found |= {FIRMWARE_FOLDER / path.name: path.read_bytes() for path in parts.firmware}
    return {str(path).lstrip("/"): content for path, content in found.items()}


def _firmware(program: Path) -> list[Path]:
    done = subprocess.run(
        [str(program), "-L", "help"], capture_output=True, text=True, timeout=20, check=False
    )
    locations = [Path(line) for line in done.stdout.split()]
    found = []
    for name in FIRMWARE:
        path = next((folder / name for folder in locations if (folder / name).is_file()), None)
        if path is None:
            raise VtaxError(
                f"QEMU's firmware {name} is missing from {', '.join(map(str, locations))}",
                "apt-get install --reinstall qemu-system-x86 qemu-system-data seabios",
            )
        found.append(path)
    return found
