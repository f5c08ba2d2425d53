"""Pages of counters as a model would publish them (docs/record.md), and hosts of files.

The tests make up their content: no hardware and no model has counted it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path

BYTES = 4096
MAGIC, VERSION = b"VTAXPAGE", 1


def page(counters: Mapping[str, int], sequence: int) -> bytes:
    """A whole page; `sequence` is even and grows with each page."""
    head = MAGIC + struct.pack("<7Q", VERSION, sequence, 0, 0, len(counters), 1, 0)
    entries = (name.encode().ljust(56, b"\0") + struct.pack("<Q", value)
               for name, value in counters.items())  # fmt: skip
    return (head + b"".join(entries)).ljust(BYTES, b"\0")


def counters(path: Path) -> dict[str, int]:
    """What a page says; its publisher is asked for nothing."""
    content = path.read_bytes()
    (count,) = struct.unpack_from("<Q", content, 40)
    entries = [content[64 + 64 * at :][:64] for at in range(count)]
    return {
        entry[:56].rstrip(b"\0").decode(): int.from_bytes(entry[56:], "little") for entry in entries
    }


class FakeHost:
    """A tree of files with what KVM reports on a host with guests."""

    def __init__(self, root: Path, guests: int = 1, nested: bool = False) -> None:
        self.root = root
        self.page = root / "page"
        self._counts = dict.fromkeys(("exits", "pf_taken", "invlpg"), 0)
        self._model = dict.fromkeys(("instructions", "cycles", "tlb_misses"), 0)
        self._sequence = 0
        self._kvm = root / "sys/kernel/debug/kvm"
        self._guests = [self._kvm / f"{100 + n}-11" for n in range(guests)]
        for folder in self._guests:
            folder.mkdir(parents=True)
        parameters = root / "sys/module/kvm_amd/parameters"
        parameters.mkdir(parents=True)
        self._parameter = parameters / "npt"
        boot = root / "proc/sys/kernel/random"
        boot.mkdir(parents=True)
        (boot / "boot_id").write_text("of the test\n")
        self.set_mode(nested)
        self.goes_on()

    def set_mode(self, nested: bool) -> None:
        self._parameter.write_text("Y\n" if nested else "N\n")

    def goes_on(self, faults: int = 0, instructions: int = 0, misses: int = 0) -> None:
        """Each guest takes `faults` page faults; all together run `instructions`."""
        self._counts["exits"] += faults
        self._counts["pf_taken"] += faults
        for name, value in self._counts.items():
            _write(self._kvm / name, f"{value * len(self._guests)}\n".encode())
        self._model["instructions"] += instructions
        self._model["cycles"] += 2 * instructions
        self._model["tlb_misses"] += misses
        self._sequence += 2
        named = {f"model.{name}": value for name, value in self._model.items()}
        # Write at once, into the file that a reader holds open.
        file = os.open(self.page, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(file, page(named, self._sequence), 0)
        finally:
            os.close(file)

    def end(self, guest: int) -> None:
        """A guest is shut down."""
        self._guests.pop(guest).rmdir()


def _write(path: Path, content: bytes) -> None:
    """Write the file whole or not at all, as the kernel does with its files."""
    fresh = path.parent / f".{path.name}"
    fresh.write_bytes(content)
    fresh.rename(path)
