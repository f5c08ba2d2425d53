"""What the header of an ELF program says: its processor, and the dynamic loader that starts it."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"\x7fELF"
I386, X86_64 = "i386", "x86_64"
MACHINES: Mapping[int, str] = {
    3: I386, 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "armv7l", 62: X86_64,
    183: "aarch64", 243: "riscv64", 258: "loongarch64",
}  # fmt: skip
"""The processor's name as `uname -m` gives it, by `e_machine` (linux/elf-em.h)."""
PT_INTERP = 3
_HEADER_BYTES = 64
_MOST_SEGMENTS = 256
_LOADER_BYTES = 4096

# Places in the header: offset of the segments, their size and number. In a segment: offset and
# length of its content (elf(5)).
_LAYOUTS: Mapping[int, tuple[str, int, int, int, int]] = {
    1: ("I", 28, 42, 4, 16),
    2: ("Q", 32, 54, 8, 32),
}


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a program."""

    machine: str
    """The processor, or the number of one that is not in MACHINES."""
    loader: str | None
    """The dynamic loader; None: the program is linked statically."""


def read(program: Path) -> Header | None:
    """The header of a file; None when it is no ELF file, is cut off or cannot be read."""
    try:
        with program.open("rb") as file:
            return _read(file.fileno())
    except (OSError, OverflowError, struct.error, LookupError):
        return None


def is_static(program: Path) -> bool:
    """Whether it is an ELF program without a dynamic loader, which needs no library."""
    header = read(program)
    return header is not None and header.loader is None


def _read(file: int) -> Header | None:
    head = os.pread(file, _HEADER_BYTES, 0)
    if not head.startswith(MAGIC):
        return None
    order = {1: "<", 2: ">"}[head[5]]
    word, segments_at, size_at, content_at, length_at = _LAYOUTS[head[4]]
    (number,) = struct.unpack_from(f"{order}H", head, 18)
    (offset,) = struct.unpack_from(order + word, head, segments_at)
    size, count = struct.unpack_from(f"{order}HH", head, size_at)
    loader = None
    for each in range(min(count, _MOST_SEGMENTS)):
        segment = os.pread(file, size, offset + each * size)
        if struct.unpack_from(f"{order}I", segment) == (PT_INTERP,):
            (begin,) = struct.unpack_from(order + word, segment, content_at)
            (length,) = struct.unpack_from(order + word, segment, length_at)
            text = os.pread(file, min(length, _LOADER_BYTES), begin)
            loader = os.fsdecode(text.rstrip(b"\0"))
    return Header(MACHINES.get(number, f"number {number}"), loader)
