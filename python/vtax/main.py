"""The entry point of `vtax`: a user's mistake is one line, and Ctrl-C at any time is exit code 130.

Nothing slow is imported before the signals are handled.
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from vtax.core.errors import VtaxError

INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_was_interrupted = False


def main() -> NoReturn:
    """Carry out the command line and end the process."""
    # Nothing has been started that would have to be ended. An import must not be interrupted:
    # a library that catches what it does not expect would continue half imported.
    for number in _SIGNALS:
        signal.signal(number, _leave)
    # The first to be registered is the last to be called.
    atexit.register(_ignore_signals)
    from vtax.core.command import streams

    streams.prepare()
    from vtax.core.errors import VtaxError

    try:
        code = _carry_out()
    except VtaxError as error:
        print(f"vtax: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        if _was_interrupted:
            # An import that is interrupted raises whatever its library makes of that.
            code = INTERRUPTED
        elif (known := _of_surroundings(error)) is not None:
            print(f"vtax: {known}", file=sys.stderr)
            code = 1
        else:
            raise
    _end(code)


def _of_surroundings(error: Exception) -> VtaxError | None:
    """What to say about an error that is not a fault of vtax; None: it is a fault of vtax."""
    from vtax.core.command import room

    if isinstance(error, MemoryError):
        return room.out_of_memory()
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return room.NO_THREADS
    if not isinstance(error, OSError):
        return None
    if error.errno in _FULL:
        return _full(error)
    if isinstance(error, FileNotFoundError) and not room.has_folder():
        return room.NO_FOLDER
    known = {
        errno.ENOMEM: room.out_of_memory(),
        errno.EAGAIN: room.NO_THREADS,
        errno.EMFILE: room.NO_FILES,
        errno.ENFILE: room.NO_FILES,
    }
    return known.get(error.errno or 0)


def _carry_out() -> int:
    from vtax.core.command import room
    from vtax.core.errors import MisuseError

    room.require(sys.argv[1:])
    from vtax.verbs import app

    if (index := _not_utf8(sys.argv)) is not None:
        raise MisuseError(
            f"argument {index} is not UTF-8: {os.fsencode(sys.argv[index])!r}",
            "machines are spoken to in UTF-8; rename the file or change the argument",
        )
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    try:
        app(prog_name="vtax")
    except SystemExit as end:
        if isinstance(end.code, int | None):
            return end.code or 0
        raise
    return 0


def _not_utf8(words: Sequence[str]) -> int | None:
    """The index of the first word that is not UTF-8; Python marks such bytes by surrogates."""
    for index, word in enumerate(words):
        if not word.isascii() and any("\ud800" <= letter <= "\udfff" for letter in word):
            return index
    return None


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Treat SIGTERM like Ctrl-C: finish what is being saved, end every guest."""
    global _was_interrupted
    _was_interrupted = True
    raise KeyboardInterrupt


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def _ignore_signals() -> None:
    """Keep the exit code: Python takes handlers away as it ends, and a signal would kill it."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _end(code: int) -> NoReturn:
    """Say what is left to say; from here on there is nothing else to interrupt."""
    for number in _SIGNALS:
        signal.signal(number, _leave)
    try:
        sys.stdout.flush()
    except OSError as error:
        print(f"vtax: {_full(error)}", file=sys.stderr)
        os._exit(code or 1)
    if code == INTERRUPTED:
        # Python ends itself by SIGINT, whatever the code, if C code that it ran at an import has
        # seen the interrupt on its way.
        atexit._run_exitfuncs()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _full(error: OSError) -> VtaxError:
    from vtax.core.errors import VtaxError

    return VtaxError(f"{error.filename or 'output'}: {error.strerror}", "free space there")


if __name__ == "__main__":
    main()
