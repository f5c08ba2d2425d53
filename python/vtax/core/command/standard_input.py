"""vtax's own standard input, read once for all repetitions."""

from __future__ import annotations

import errno
import functools
import os
import select
import stat
import sys
import time
from dataclasses import dataclass

LIMIT_BYTES = 64 << 20
"""Each repetition gets a copy, so there is a limit."""
NOTICE_S = 2.0
"""After this wait, vtax says what it is waiting for."""
SILENCE_S = 10.0
"""A pipe that gave nothing for this long counts as one that nobody writes to."""
SILENT = f"standard input is a pipe that gave nothing for {SILENCE_S:g} s: the command gets none"
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class StandardInput:
    """The standard input for commands."""

    content: bytes | None = None
    """None: vtax has a terminal, a device, nothing, or a silent pipe."""
    said: tuple[str, ...] = ()
    """What commands do not get, in sentences."""


@functools.cache
def read() -> StandardInput:
    """Read standard input if it is a file or a pipe; once, for it is at its end afterwards.

    Raises MisuseError when the input is longer than LIMIT_BYTES or cannot be read.
    """
    from vtax.core.errors import MisuseError
    from vtax.core.units import format_bytes

    try:
        mode = os.fstat(0).st_mode
        waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        if not waits and not stat.S_ISREG(mode):
            return StandardInput()
        content = _content(may_wait=waits)
    except OSError as error:
        if error.errno == errno.EBADF:
            return StandardInput()  # closed by whoever started vtax
        raise MisuseError(f"standard input: {error.strerror}", "write < /dev/null") from None
    if content is None:
        _note(SILENT)
        return StandardInput(said=(SILENT,))
    if len(content) > LIMIT_BYTES:
        raise MisuseError(
            f"standard input holds more than {format_bytes(LIMIT_BYTES)}",
            "let the command read the file itself: -- sh -c 'PROGRAM < FILE'",
        )
    return StandardInput(content or None)


def _content(*, may_wait: bool) -> bytes | None:
    """The input up to its end, or a little more than LIMIT_BYTES; None: a silent pipe."""
    pieces: list[bytes] = []
    size = 0
    began = time.monotonic()
    told = False
    while size <= LIMIT_BYTES:
        if may_wait and not told and not _ready(began + NOTICE_S):
            told = True
            _note("reading standard input to its end (< /dev/null gives the command none)")
            if not pieces and not _ready(began + SILENCE_S):
                return None
        if may_wait:
            select.select([0], [], [])  # whoever made the pipe may have set it to never block
        piece = os.read(0, _PIECE)
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _ready(until: float) -> bool:
    """Whether there is something to read, or the end, by the time `until`."""
    left = max(0.0, until - time.monotonic())
    return bool(select.select([0], [], [], left)[0])


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)
