"""The standard streams: whatever they are connected to, writing to them never stops vtax's work.

Output may be ASCII or in any old encoding, a reader may go away, a stream may be closed from the
beginning. This module deals with all of that, before anything else runs.
"""

from __future__ import annotations

import codecs
import errno
import io
import locale
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

READABLE = "vtax-readable"
"""Name of the error handler that replaces letters that an encoding lacks."""
_SIGNS = {
    "\N{MINUS SIGN}": "-", "\N{EN DASH}": "-", "\N{EM DASH}": "-", "\N{MULTIPLICATION SIGN}": "x",
    "\N{PLUS-MINUS SIGN}": "+-", "\N{ALMOST EQUAL TO}": "~", "\N{NOT EQUAL TO}": "!=",
    "\N{MICRO SIGN}": "u", "\N{GREEK SMALL LETTER MU}": "u", "\N{MIDDLE DOT}": ".",
    "\N{HORIZONTAL ELLIPSIS}": "...", "\N{LEFT DOUBLE QUOTATION MARK}": '"',
    "\N{RIGHT DOUBLE QUOTATION MARK}": '"', "\N{LEFT SINGLE QUOTATION MARK}": "'",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'", "\N{NO-BREAK SPACE}": " ", "\N{THIN SPACE}": " ",
    "\N{NARROW NO-BREAK SPACE}": " ", "\N{UPWARDS ARROW}": "^", "\N{DOWNWARDS ARROW}": "v",
    "\N{RIGHTWARDS ARROW}": ">", "\N{CHECK MARK}": "v", "\N{MULTIPLICATION X}": "x",
    "\N{BALLOT X}": "x", "\N{BULLET}": "*", "\N{SUPERSCRIPT TWO}": "^2",
    "\N{BLACK DOWN-POINTING TRIANGLE}": "<", "\N{BLACK UP-POINTING TRIANGLE}": ">",
    "\N{SUPERSCRIPT SIX}": "^6", "\N{SUPERSCRIPT NINE}": "^9",
}  # fmt: skip
_UPRIGHT = "│┃║"


def prepare() -> None:
    """Make standard streams accept every text. May replace the process by one in UTF-8 mode."""
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode and sys.executable:
        # File names and command lines are bytes to Linux, and UTF-8 to machines and run folders,
        # whatever the locale is.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    codecs.register_error(READABLE, _readable)
    _open_closed()
    sys.stdout = _writer(1, sys.stdout, lambda error: error.errno == errno.EPIPE)
    # There is nobody to tell about a fault of standard error.
    sys.stderr = _writer(2, sys.stderr, lambda _: True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", errors="replace")  # noqa: SIM115


class _Lasting(io.FileIO):
    """A descriptor that treats some faults as if the text had been written."""

    def __init__(self, descriptor: int, is_borne: Callable[[OSError], bool]) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._is_borne = is_borne

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if self._is_borne(error):
                return memoryview(data).nbytes
            raise


def _writer(
    descriptor: int, now: TextIO | None, is_borne: Callable[[OSError], bool]
) -> io.TextIOWrapper:
    raw = _Lasting(descriptor, is_borne)
    errors_only = descriptor == 2
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=_encoding(now),
        errors=READABLE,
        line_buffering=errors_only or raw.isatty(),
        write_through=errors_only or bool(getattr(now, "write_through", False)),
    )


def _encoding(now: TextIO | None) -> str:
    if now is not None and (os.environ.get("PYTHONIOENCODING") or "utf8" not in sys._xoptions):
        return now.encoding or "utf-8"
    try:
        # UTF-8 mode is for file names: a terminal with another encoding keeps its own.
        return codecs.lookup(locale.getencoding()).name
    except LookupError:
        return "ascii"


def _open_closed() -> None:
    """Open closed streams, so that a file that is opened later does not become a standard
    stream."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(opened, True)
    os.close(opened)


def _readable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(map(_ascii, text)), error.end


def _ascii(letter: str) -> str:
    if "\u2500" <= letter <= "\u257f":
        return "|" if letter in _UPRIGHT else "-"
    if "\u2581" <= letter <= "\u2588":
        return str(ord(letter) - 0x2580)  # Eighths of a block: its height.
    return _SIGNS.get(letter) or letter.encode("ascii", "backslashreplace").decode()
