"""`swap=SIZE`: space to which programs are swapped out, made by vtax for one machine.

A guest has a disk: a file in the machine's own folder, which loses its name as soon as the guest
uses it, and ends with the guest. For machines without a kernel of their own see host_swap.py.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.core.units import format_bytes, parse_size
from vtax.environments import sandbox
from vtax.environments.base import MachineLike
from vtax.workloads.outcomes import require_success
from vtax.workloads.variables import DEFAULT_PATH

DISK = "swap.disk"
"""The name of a guest's disk in its machine's folder, until the guest uses it."""
SMALLEST_BYTES = 1 << 20
LARGEST_BYTES = 1 << 40
SWAPON_TIMEOUT_S = 60.0
VIRTIO_DEVICE = "/dev/vda"
"""A guest's name of the disk of `virtio_disk`."""


def size(environment: str, options: Mapping[str, str]) -> int:
    """The value of a key `swap` in bytes, whole MiB; 0 without it. Raises MisuseError for any other
    value."""
    if "swap" not in options:
        return 0
    found = parse_size(options["swap"]) >> 20 << 20
    if not SMALLEST_BYTES <= found <= LARGEST_BYTES:
        raise MisuseError(
            f"{environment}: swap={options['swap']} is not from {format_bytes(SMALLEST_BYTES)} to "
            f"{format_bytes(LARGEST_BYTES)}"
        )
    return found


def said(space: int) -> str:
    """Words about the swap space for the description of a machine."""
    return f" and {format_bytes(space)} of swap" if space else ""


def check_guest() -> None:
    """Raise VtaxError when a program is missing that makes a guest's disk or turns it on."""
    for name in ("mkswap", "swapon"):
        _program(name)


def virtio_disk() -> list[str]:
    """QEMU's options for the disk, with the machine's folder at `sandbox.WORK`."""
    drive = f"file={sandbox.WORK / DISK},format=raw,if=none,id=swap"
    return ["-drive", drive, "-device", "virtio-blk-pci,drive=swap"]


M = TypeVar("M", bound=MachineLike)


def started(start: Callable[[], M], name: str, work: Path, wanted: int, device: str) -> M:
    """A guest of the environment `name` that swaps to `device`: the file DISK of its folder, which
    is there when `start` is called; no swap when `wanted` is 0.

    Raises VtaxError when the disk cannot be made, or when the guest does not take it.
    """
    if not wanted:
        return start()
    disk = work / DISK
    try:
        _make(disk, wanted)
        machine = start()
        try:
            _turn_on(name, machine, work, device)
        except BaseException:
            machine.close()
            raise
    finally:
        # The guest has the disk open. Without a name nothing is left of it when the guest ends, and
        # no program in the guest finds it.
        disk.unlink(missing_ok=True)
    return machine


def _make(disk: Path, wanted: int) -> None:
    try:
        with disk.open("xb") as file:
            disk.chmod(0o600)
            file.truncate(wanted)
    except OSError as error:
        raise VtaxError(f"cannot make the swap disk {disk}: {error.strerror}") from None
    argv = [_program("mkswap"), str(disk)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise VtaxError(f"cannot make the swap disk {disk}: {done.stderr.strip()}")


def _turn_on(name: str, machine: MachineLike, work: Path, device: str) -> None:
    exchange = Exchange(work, "swap-on")
    exchange.create({})
    argv = [_program("swapon"), device]
    done = machine.run(argv, {"PATH": DEFAULT_PATH}, exchange.name, SWAPON_TIMEOUT_S)
    require_success(f"{name}: swapon {device}", done.outcome, exchange)
    shutil.rmtree(exchange.path, ignore_errors=True)


def _program(name: str) -> str:
    if found := shutil.which(name, path=DEFAULT_PATH):
        return found
    raise VtaxError(f"{name} is missing: it makes a guest's swap disk", "install util-linux")
