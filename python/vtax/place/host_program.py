"""The program `vtax-host place`, on this machine or on one around a guest: started, read, ended."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import time
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from vtax.core import binaries
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.readable import readable
from vtax.environments.background import Background
from vtax.environments.capabilities import Shell
from vtax.workloads.base import tail

PROGRAM = "vtax-host"
END_S = 10.0
MISUSE = 2
BUSY = "try again when the machine is less busy"
FOLDERS_THERE = PurePosixPath("/run/vtax/place-programs")


class Running(Protocol):
    """The running program."""

    def first_line(self, timeout_s: float) -> bytes:
        """The first line of output.

        Raises VtaxError when the program ends without one, or takes too long.
        """
        ...

    def ask_to_end(self) -> None:
        """Ask the program to come to its end, if it does not do so by itself."""
        ...

    def rest(self, timeout_s: float) -> bytes:
        """Wait for the program's end; return what it printed after the first line that was read.

        Raises VtaxError when it fails or does not end.
        """
        ...

    def end(self) -> None:
        """End the program, which restores what it changed."""
        ...


class Host(Protocol):
    """A machine with the program."""

    def start(self, *arguments: str) -> Running:
        """Start `vtax-host place` with these arguments. Raises VtaxError."""
        ...


class ThisHost:
    """This machine."""

    def start(self, *arguments: str) -> Running:
        # In a session of its own: Ctrl-C reaches vtax alone, which then cleans up.
        line = [str(binaries.find(PROGRAM)), "place", *arguments]
        pipe = subprocess.PIPE
        try:
            return _Here(
                subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
            )
        except OSError as error:
            raise VtaxError(f"cannot start {line[0]}: {error.strerror}") from None


THIS_HOST = ThisHost()


@dataclass(frozen=True, slots=True)
class HostAround:
    """The machine around a guest that serves it."""

    shell: Shell
    program: str

    def start(self, *arguments: str) -> Running:
        background = Background(self.shell, FOLDERS_THERE / secrets.token_hex(8))
        background.start([self.program, "place", *arguments], f"start {PROGRAM}")
        return _There(background)


class _Here:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def first_line(self, timeout_s: float) -> bytes:
        process = self._process
        assert process.stdout is not None and process.stderr is not None
        deadline, said = time.monotonic() + timeout_s, b""
        while b"\n" not in said:
            left = deadline - time.monotonic()
            if left <= 0 or not readable(process.stdout, left):
                raise _late(timeout_s)
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                raise _failure(process.wait(END_S), process.stderr.read(1 << 16))
            said += piece
        return said.partition(b"\n")[0]

    def ask_to_end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
            self._process.stdin = None

    def rest(self, timeout_s: float) -> bytes:
        process = self._process
        try:
            said, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise _late(timeout_s) from None
        if process.returncode != 0:
            raise _failure(process.returncode, errors)
        return said

    def end(self) -> None:
        process = self._process
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        if process.poll() is None:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class _There:
    def __init__(self, background: Background) -> None:
        self._running, self._read, self._ended = background, 0, False

    def first_line(self, timeout_s: float) -> bytes:
        if not self._running.wait('[ "$(wc -l < out)" -gt 0 ]', round(10 * timeout_s)):
            code = self._running.code()
            raise _late(timeout_s) if code is None else _failure(code, self._errors())
        line = self._running.output().partition(b"\n")[0]
        self._read = len(line) + 1
        return line

    def ask_to_end(self) -> None:
        self._running.signal("TERM")

    def rest(self, timeout_s: float) -> bytes:
        if not self._running.ended(round(10 * timeout_s)):
            raise _late(timeout_s)
        if code := self._running.code():
            raise _failure(code, self._errors())
        said = self._running.output()[self._read :]
        self._running.remove()
        self._ended = True
        return said

    def end(self) -> None:
        if self._ended:
            return
        # The machine may be gone, and with it the program.
        with contextlib.suppress(VtaxError):
            self._running.signal("TERM")
            if not self._running.ended(round(10 * END_S)):
                self._running.signal("KILL")
            self._running.remove()

    def _errors(self) -> bytes:
        return self._running.errors().encode()


def _late(timeout_s: float) -> VtaxError:
    return VtaxError(f"{PROGRAM} did not answer within {timeout_s:.0f} s", BUSY)


def _failure(code: int, errors: bytes) -> VtaxError:
    words = tail(errors.decode(errors="replace"), 1) or f"{PROGRAM} ended with {code}"
    words = words.removeprefix("vtax: ")
    return (MisuseError if code == MISUSE else VtaxError)(words)
