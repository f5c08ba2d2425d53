"""A journal: what is finished piece by piece, one JSON object per line, safe at once.

A journal holds samples, or points of a sweep, until the whole is done. A line without its newline
was cut short by a crash: readers ignore it, and the next writer removes it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.formats.files import open_regular

SYNC_EVERY_S = 1.0
MAX_BYTES = 1 << 30
_BLOCK = 1 << 16


class Journal:
    """One file. Many may read it, one process writes it (the folder's lock sees to that)."""

    def __init__(self, path: Path, remedy: str = "free space; what was finished is kept") -> None:
        self.path = path
        self._remedy = remedy
        self._synced = time.monotonic()

    def append(self, pieces: Iterable[Mapping[str, Any]]) -> None:
        """Add finished pieces, all of them JSON values.

        When this returns they survive the death of vtax; a power cut loses the last second at most.
        Waiting for the disk after each of many short pieces would cost more than the pieces do.

        Raises VtaxError when they cannot be written.
        """
        lines = "".join(json.dumps(piece) + "\n" for piece in pieces)
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "r+b") as file:
                _remove_torn_line(file)
                file.write(lines.encode())
                file.flush()
                if time.monotonic() - self._synced >= SYNC_EVERY_S:
                    os.fsync(file.fileno())
                    self._synced = time.monotonic()
        except OSError as error:
            raise VtaxError(f"cannot write {self.path}: {error.strerror}", self._remedy) from None

    def read(self) -> Iterator[dict[str, Any]]:
        """Every piece in the order of writing; nothing where there is no journal.

        Raises VtaxError when a whole line is not a JSON object, or the file is larger than 1 GiB.
        """
        try:
            with open_regular(self.path) as file:
                if os.fstat(file.fileno()).st_size > MAX_BYTES:
                    raise VtaxError(f"{self.path} is larger than 1 GiB: refused")
                for number, line in enumerate(file, 1):
                    if line.endswith(b"\n"):
                        yield self._piece(number, line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise VtaxError(f"cannot read {self.path}: {error.strerror}") from None

    def remove(self) -> None:
        """Remove the file: its content has been saved elsewhere."""
        self.path.unlink(missing_ok=True)

    def _piece(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            return foreign_json.parse_object(line)
        except ValueError as error:
            raise VtaxError(
                f"{self.path} is damaged: line {number} is not a JSON object: {error}"
            ) from None


def _remove_torn_line(file: BinaryIO) -> None:
    """Cut the file after its last newline, and stand at its end."""
    kept = end = file.seek(0, os.SEEK_END)
    block = 1  # As a rule the last byte is a newline.
    while kept > 0:
        start = max(0, kept - block)
        file.seek(start)
        newline = file.read(kept - start).rfind(b"\n")
        kept, block = start + newline + 1, _BLOCK
        if newline >= 0:
            break
    if kept < end:
        file.truncate(kept)
    file.seek(kept)
