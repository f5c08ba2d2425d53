"""The program `vtax-host record` on this machine: started, awaited, asked to finish."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from vtax.core import binaries, foreign_json
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.files import read_bounded
from vtax.core.recorder.intervals import RECORD, STREAM
from vtax.workloads.base import tail

PROGRAM = "vtax-host"
OWN_WORDS = ("vtax: ", f"{PROGRAM} record: ")
"""The beginnings of its messages."""
READY_TIMEOUT_S = 60.0
"""Time to load the eBPF programs; about 0.3 s is usual."""
FINISH_TIMEOUT_S = 120.0
"""Time to make the Parquet file of a long recording."""
POLL_S = 0.01
MAX_RECORD_BYTES = 16 << 20
MISUSE = 2


def command(arguments: Sequence[str], out: Path) -> list[str]:
    """A command line of `vtax-host record`; it finishes its files when vtax is killed."""
    line = [str(binaries.find(PROGRAM)), "record", "--child"]
    return [*line, "--out", str(out), *arguments]


def in_foreground(arguments: Sequence[str], out: Path, command_output_to_stderr: bool) -> int:
    """Record to the end with the terminal as its own; return the recorder's exit code.

    Ctrl-C ends the recording and finishes its files; a second one gives them up.
    """
    sink = sys.stderr if command_output_to_stderr else None
    process = _spawn(command(arguments, out), stdout=sink)
    try:
        return process.wait()
    except KeyboardInterrupt:
        return _finish(process)
    finally:
        # Also after a second Ctrl-C.
        if process.poll() is None:
            process.kill()
            process.wait()


class Recorder:
    """A recorder beside which the caller does something; a context manager.

    `ready` waits until the recorder counts, `finish` until its files are complete.
    """

    def __init__(self, arguments: Sequence[str], out: Path) -> None:
        self._out = out
        # This is a file, not a pipe, so that nobody has to read it meanwhile.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the recorder
        self._process = _spawn(command(arguments, out), stderr=self._said, start_new_session=True)

    def ready(self) -> None:
        """Wait until events are counted; raises VtaxError with the recorder's own words."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not (self._out / STREAM).exists():
            if self._process.poll() is not None:
                self._raise()
            if time.monotonic() > deadline:
                raise VtaxError(f"the recorder did not begin within {READY_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)

    def finish(self) -> None:
        """Ask the recorder to end, and wait; raises VtaxError when it failed."""
        if _finish(self._process) != 0:
            self._raise()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._said.close()

    def _raise(self) -> None:
        self._said.seek(0)
        said = self._said.read(1 << 16).decode(errors="replace")
        raise failure(self._process.returncode, said)


def failure(code: int | None, said: str) -> VtaxError:
    """The error of a recorder that ended with this exit code and these words."""
    words = tail(said, 1) or f"the recorder ended with {code}"
    for name in OWN_WORDS:
        words = words.removeprefix(name)
    return (MisuseError if code == MISUSE else VtaxError)(words)


def summary(out: Path) -> dict[str, Any] | None:
    """`record.json`; None when the recorder was killed before it was written.

    Raises VtaxError when the file is too large or not JSON.
    """
    path = out / RECORD
    try:
        content = foreign_json.parse(read_bounded(path, MAX_RECORD_BYTES))
    except FileNotFoundError:
        return None
    except ValueError:
        raise VtaxError(f"{path} is not JSON") from None
    return content if isinstance(content, dict) else None


def _spawn(line: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(list(line), **how)
    except OSError as error:
        raise VtaxError(f"cannot start {line[0]}: {error.strerror}") from None


def _finish(process: subprocess.Popen[bytes]) -> int:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(FINISH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise VtaxError(
            f"the recorder did not finish within {FINISH_TIMEOUT_S:.0f} s",
            "its rows up to the last flush are kept: vtax timeline",
        ) from None
