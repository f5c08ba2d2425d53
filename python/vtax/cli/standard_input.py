"""vtax's own standard input, read once for all repetitions."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys

LIMIT_BYTES = 64 << 20
"""Of what is given to every repetition."""
SILENCE_S = 10.0
"""A pipe into which nothing came for so long is one that nobody writes to."""
_PIECE = 1 << 20


def given() -> bytes | None:
    """What a file or a pipe holds; None: a terminal, a device, nothing, or a silent pipe.

    Raises MisuseError when it is more than LIMIT_BYTES or cannot be read.
    """
    from vtax.errors import MisuseError
    from vtax.units import format_bytes

    try:
        mode = os.fstat(0).st_mode
        if not _may_hold(mode):
            return None
        content = _read()
    except OSError as error:
        if error.errno == errno.EBADF:
            return None  # closed by whoever started vtax
        raise MisuseError(f"standard input: {error.strerror}", "write < /dev/null") from None
    if len(content) > LIMIT_BYTES:
        raise MisuseError(
            f"standard input holds more than {format_bytes(LIMIT_BYTES)}",
            "let the command read the file itself: -- sh -c 'PROGRAM < FILE'",
        )
    return content or None


def _may_hold(mode: int) -> bool:
    if stat.S_ISREG(mode):
        return True
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    if select.select([0], [], [], SILENCE_S)[0]:
        return True
    print(
        f"note: standard input is a pipe that gave nothing for {SILENCE_S:g} s: the command gets "
        "none (< /dev/null keeps vtax from waiting)",
        file=sys.stderr,
    )
    return False


def _read() -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= LIMIT_BYTES and (piece := os.read(0, _PIECE)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)
