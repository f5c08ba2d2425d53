"""`swap=SIZE`: space to which programs are swapped out, made by vtax for one machine.

A guest has a disk (`guest_disk.py`). For machines without a kernel of their own see host_swap.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vtax.core.units import format_bytes
from vtax.environments import guest_disk
from vtax.environments.guest_disk import GuestDisk

DISK = "swap.disk"
"""The name of a guest's disk in its machine's folder, until the guest uses it."""


def size(environment: str, options: Mapping[str, str]) -> int:
    """The value of a key `swap` in bytes, whole MiB; 0 without it. Raises MisuseError for any other
    value."""
    return guest_disk.size(environment, "swap", options, guest_disk.SMALLEST_BYTES)


def said(space: int) -> str:
    """Words about the swap space for the description of a machine."""
    return f" and {format_bytes(space)} of swap" if space else ""


def check_guest() -> None:
    """Raise VtaxError when a program is missing that makes a guest's disk or turns it on."""
    for name in ("mkswap", "swapon"):
        guest_disk.program(name, "makes a guest's swap disk", "util-linux")


def virtio_disk() -> list[str]:
    """QEMU's options for the disk, with the machine's folder at `sandbox.WORK`."""
    return guest_disk.virtio_disk(DISK, "swap")


def disk(wanted: int, device: str) -> Sequence[GuestDisk]:
    """The disk, which the guest knows as `device`; none when `wanted` is 0."""
    if not wanted:
        return ()
    return (GuestDisk(DISK, wanted, device, ("mkswap",), ("swapon", device)),)
