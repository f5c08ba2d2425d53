"""The last lines of a guest's console, for the error message when it does not come up."""

from __future__ import annotations

import re
import threading
from typing import IO

KEEP_BYTES = 64 << 10

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class ConsoleTail:
    """Reads a pipe to its end in a thread and keeps the last 64 KiB.

    A guest decides how much it prints; so the pipe is always drained and memory stays bounded.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, name="console", daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while chunk := self._stream.read1(65536):  # type: ignore[attr-defined]
            with self._lock:
                self._kept += chunk
                del self._kept[:-KEEP_BYTES]

    def join(self, timeout_s: float = 1.0) -> None:
        """Wait until the writer has closed its end."""
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._stream.close()

    def text(self) -> str:
        """What is kept, without control characters (it may be printed on a terminal)."""
        with self._lock:
            raw = bytes(self._kept)
        return plain_text(raw)

    def last_lines(self, count: int = 6) -> list[str]:
        """The last lines that say something."""
        return [line.strip() for line in self.text().splitlines() if line.strip()][-count:]


def plain_text(raw: bytes) -> str:
    """What a console printed, without control characters."""
    return _CONTROL.sub("", raw.decode("utf-8", errors="replace").replace("\r", "\n"))
