"""A disk that vtax makes for one guest: a file of the machine's folder, which loses its name as
soon as the guest uses it, and ends with the guest.

`swap=SIZE` is such a disk (`swap.py`). `disk=SIZE` is one for programs: an ext4 file system at
`DISK` in the guest. `iops=` makes QEMU carry out at most as many operations per second on it, as a
disk with a head does; without it the disk is as fast as the page cache of this machine.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.core.units import format_bytes, parse_size
from vtax.environments import sandbox
from vtax.environments.base import MachineLike
from vtax.environments.option_values import whole_number
from vtax.workloads.outcomes import require_success
from vtax.workloads.variables import DEFAULT_PATH, DISK

KEYS = {"disk": f"a disk of this size, at {DISK} in the guest (default: none)"}
IOPS = {"iops": "the most operations per second of the disk (default: no limit)"}
FILE = "data.disk"
"""The name of the disk in its machine's folder, until the guest uses it."""
VIRTIO_DEVICES = ("/dev/vda", "/dev/vdb")
"""A guest's names of its first and second `virtio_disk`."""
SMALLEST_BYTES = 1 << 20
SMALLEST_FILE_SYSTEM_BYTES = 16 << 20
"""ext4 with a journal takes 8 MiB at least."""
LARGEST_BYTES = 1 << 40
MOST_IOPS = 1_000_000
USE_TIMEOUT_S = 60.0
_EXT4 = ("-q", "-F", "-t", "ext4", "-m", "0")
"""No message, no question about a file that is no device, nothing kept for root."""


@dataclass(frozen=True, slots=True)
class GuestDisk:
    """One disk: the file's name, its size, the guest's name of it, the program that fills it on
    this machine, and the command by which the guest takes it."""

    file: str
    size_bytes: int
    device: str
    make: Sequence[str]
    use: Sequence[str]


@dataclass(frozen=True, slots=True)
class DataDisk:
    """What `disk=` and `iops=` ask for; a size of 0: no disk."""

    size_bytes: int = 0
    iops: int | None = None

    def __bool__(self) -> bool:
        return self.size_bytes > 0

    def check(self) -> None:
        """Raise VtaxError when a program is missing that makes the disk or mounts it."""
        if self:
            for name in ("mkfs.ext4", "mount"):
                program(name, "makes a guest's disk", "e2fsprogs and util-linux")

    def disk(self, device: str) -> Sequence[GuestDisk]:
        """The disk, which the guest knows as `device`; none when none was asked for."""
        if not self:
            return ()
        mount = ("mount", "--mkdir", "-t", "ext4", device, DISK)
        make = ("mkfs.ext4", *_EXT4)
        return (GuestDisk(FILE, self.size_bytes, device, make, mount),)

    def said(self) -> str:
        """Words about the disk for the description of a machine."""
        if not self:
            return ""
        limit = f" of at most {self.iops} operations/s" if self.iops else ""
        return f", a disk of {format_bytes(self.size_bytes)}{limit}"


NONE = DataDisk()


def size(environment: str, key: str, options: Mapping[str, str], smallest: int) -> int:
    """The value of a key in bytes, whole MiB; 0 without it. Raises MisuseError for any other
    value."""
    if key not in options:
        return 0
    found = parse_size(options[key]) >> 20 << 20
    if not smallest <= found <= LARGEST_BYTES:
        raise MisuseError(
            f"{environment}: {key}={options[key]} is not from {format_bytes(smallest)} to "
            f"{format_bytes(LARGEST_BYTES)}"
        )
    return found


def wanted(environment: str, options: Mapping[str, str]) -> DataDisk:
    """What the keys ask for. Raises MisuseError for a wrong value, and for a limit of no disk."""
    space = size(environment, "disk", options, SMALLEST_FILE_SYSTEM_BYTES)
    if "iops" not in options:
        return DataDisk(space)
    if not space:
        raise MisuseError(f"{environment}: iops= without disk=", "add disk=1G")
    limit = whole_number(environment, "iops", options["iops"], 1, MOST_IOPS)
    return DataDisk(space, limit)


def virtio_disk(file: str, name: str, iops: int | None = None) -> list[str]:
    """QEMU's options for a disk, with the machine's folder at `sandbox.WORK`."""
    drive = f"file={sandbox.WORK / file},format=raw,if=none,id={name}"
    drive += f",throttling.iops-total={iops}" if iops else ""
    return ["-drive", drive, "-device", f"virtio-blk-pci,drive={name}"]


M = TypeVar("M", bound=MachineLike)


def started(start: Callable[[], M], name: str, work: Path, disks: Sequence[GuestDisk]) -> M:
    """A guest of the environment `name` that uses the disks, whose files are there when `start` is
    called.

    Raises VtaxError when a disk cannot be made, or when the guest does not take it.
    """
    try:
        for disk in disks:
            _make(work / disk.file, disk)
        machine = start()
        try:
            for disk in disks:
                _use(name, machine, work, disk.use)
        except BaseException:
            machine.close()
            raise
    finally:
        # The guest has the disks open. Without a name nothing is left of them when the guest ends,
        # and no program in the guest finds them.
        for disk in disks:
            (work / disk.file).unlink(missing_ok=True)
    return machine


def program(name: str, purpose: str, package: str) -> str:
    """The path of a program; raises VtaxError when it is missing."""
    if found := shutil.which(name, path=DEFAULT_PATH):
        return found
    raise VtaxError(f"{name} is missing: it {purpose}", f"install {package}")


def _make(file: Path, disk: GuestDisk) -> None:
    try:
        with file.open("xb") as opened:
            file.chmod(0o600)
            opened.truncate(disk.size_bytes)
    except OSError as error:
        raise VtaxError(f"cannot make the disk {file}: {error.strerror}") from None
    made = subprocess.run([*disk.make, str(file)], capture_output=True, text=True, check=False,
                          env={"PATH": DEFAULT_PATH})  # fmt: skip
    if made.returncode != 0:
        raise VtaxError(f"cannot make the disk {file}: {made.stderr.strip()}")


def _use(name: str, machine: MachineLike, work: Path, argv: Sequence[str]) -> None:
    exchange = Exchange(work, "disk")
    exchange.create({})
    done = machine.run(argv, {"PATH": DEFAULT_PATH}, exchange.name, USE_TIMEOUT_S)
    require_success(f"{name}: {' '.join(argv)}", done.outcome, exchange)
    shutil.rmtree(exchange.path, ignore_errors=True)
