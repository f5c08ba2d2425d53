"""The initramfs of the nested guest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vtax.core.errors import VtaxError
from vtax.environments.initramfs import newc
from vtax.environments.kernel_image import ModuleTree, decompress

Kind = Literal["host", "builtin", "disk", "initramfs", "none"]

NO_GUEST = "none"
"""Stands for no guest: the emulated host then runs commands of this machine (tree.py)."""
FOLDERS = ("bin", "dev", "modules", "proc", "run", "sys", "tmp")
BUSYBOX = "bin/busybox-vtax"
"""A name that no image of a user has; busybox needs a name that begins with its own."""
MAX_ARCHIVE_BYTES = 256 << 20

_VIRTIO = ("virtio_mmio", "virtio_console", "virtio_net")
_MODULES: Mapping[Kind, Sequence[str]] = {
    "host": ("9p", "9pnet_virtio", "overlay"),
    "builtin": (),
    "disk": ("virtio_blk", "ext4", "crc32c_generic", "overlay"),
    "initramfs": (),
}
_CPIO_MAGIC = (b"070701", b"070702")
_COMPRESSED = (b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")


@dataclass(frozen=True, slots=True)
class GuestFiles:
    """What the nested guest boots, besides the kernel."""

    initramfs: bytes
    modules: tuple[str, ...]
    """Paths in the initramfs in the order of loading."""


def kind(guest: str) -> Kind:
    """The kind of guest that the value of `guest=` stands for."""
    if guest == "host":
        return "host"
    if guest == "builtin":
        return "builtin"
    if guest == NO_GUEST:
        return "none"
    return "initramfs" if _is_archive(Path(guest)) else "disk"


def build(guest: str, tree: ModuleTree, agent: bytes, busybox: bytes) -> GuestFiles:
    """The guest's initramfs; raises VtaxError when the image cannot be used."""
    what = kind(guest)
    modules = tree.closure((*_VIRTIO, *_MODULES[what]))
    files = {"init": agent} | {f"modules/{name}.ko": content for name, content in modules}
    files |= {"bin/vtax-agent": agent, BUSYBOX: busybox}
    if what == "builtin":
        files["bin/busybox"] = busybox
    ours = newc(files, FOLDERS)
    # Later archives replace files of earlier ones: /init is the agent, whatever the image contains.
    image = _archive(Path(guest)) if what == "initramfs" else b""
    return GuestFiles(image + ours, tuple(f"/modules/{name}.ko" for name, _ in modules))


def _is_archive(image: Path) -> bool:
    try:
        with image.open("rb") as file:
            return file.read(6).startswith((*_CPIO_MAGIC, *_COMPRESSED))
    except OSError as error:
        raise VtaxError(f"lab: guest={image} cannot be read: {error.strerror}") from None


def _archive(image: Path) -> bytes:
    """The user's archive uncompressed (an emulated guest is slow at that), padded to 4 bytes."""
    if image.stat().st_size > MAX_ARCHIVE_BYTES:
        raise VtaxError(f"lab: guest={image} is larger than 256 MiB: no initramfs for the lab")
    content = decompress(image.read_bytes())
    if not content.startswith(_CPIO_MAGIC):
        raise VtaxError(
            f"lab: guest={image} is neither a cpio archive nor a disk image",
            "give an initramfs in the format newc, or a raw or qcow2 image with a root on ext4",
        )
    return content + b"\0" * (-len(content) % 4)
