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
from typing import NoReturn

INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_was_interrupted = False


def main() -> NoReturn:
    """Carry out the command line and end the process."""
    # Nothing has been started that would have to be ended, and an import may not be torn apart:
    # a library that catches what it does not expect would go on half imported.
    for number in _SIGNALS:
        signal.signal(number, _leave)
    from vtax.errors import VtaxError

    try:
        code = _carry_out()
    except VtaxError as error:
        print(f"vtax: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        if _was_interrupted:
            # An import that is torn apart raises whatever its library makes of it.
            code = INTERRUPTED
        elif isinstance(error, OSError) and error.errno in _FULL:
            _say_full(error)
            code = 1
        else:
            raise
    _end(code)


def _carry_out() -> int:
    from vtax.cli.app import app
    from vtax.errors import MisuseError

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
    """The index of the first word that came as other bytes; Python marks these by surrogates."""
    for index, word in enumerate(words):
        if not word.isascii() and any("\ud800" <= letter <= "\udfff" for letter in word):
            return index
    return None


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """A polite kill is the same as Ctrl-C: finish what is being saved, end every guest."""
    global _was_interrupted
    _was_interrupted = True
    raise KeyboardInterrupt


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def _end(code: int) -> NoReturn:
    """Say what is left to say; from here on there is nothing to interrupt but that."""
    for number in _SIGNALS:
        signal.signal(number, _leave)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(code)
    except OSError as error:
        _say_full(error)
        os._exit(code or 1)
    if code == INTERRUPTED:
        # Python ends itself by SIGINT, whatever the code, if C code that it runs at an import has
        # seen the interrupt on its way.
        atexit._run_exitfuncs()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _say_full(error: OSError) -> None:
    where = error.filename or "output"
    print(f"vtax: {where}: {error.strerror}; free space there", file=sys.stderr)


if __name__ == "__main__":
    main()
