"""A started machine: the process, its console, and the channel to the agent in it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vtax.channel import AgentError, Channel, ChannelClosedError, ChannelTimeoutError
from vtax.environments.base import Environment, Launch, Seat
from vtax.environments.console import ConsoleTail
from vtax.errors import VtaxError
from vtax.workloads.base import Outcome

REQUEST_TIMEOUT_S = 30.0
"""For an answer that needs no work; generous, because emulated guests are slow."""
HALT_TIMEOUT_S = 3.0
CLEAN_UP_S = 6.0
"""What the native agent may take to end a command, which it first asks to (2 s)."""
OUTPUT_LIMIT_BYTES = 1 << 30
"""No single file that a workload writes may be larger (RLIMIT_FSIZE)."""


class MachineLostError(VtaxError):
    """The machine hung or died; it has been killed and a new one must be started."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished command: what the machine says, and the host's clock for the same stretch."""

    outcome: Outcome
    host_wall_s: float


class Machine:
    """Always used as a context manager: leaving it ends the machine, whatever happened."""

    def __init__(self, environment: Environment, work: Path, cpus: Sequence[int]) -> None:
        ours, theirs = socket.socketpair()
        try:
            seat = Seat(work=work, cpus=cpus, channel_fd=theirs.fileno())
            self.launch: Launch = environment.launch(seat)
            begin = time.monotonic()
            self._process = _spawn(self.launch.argv, theirs.fileno())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        assert self._process.stdout is not None
        self._environment = environment
        self._busy = False
        self._console = ConsoleTail(self._process.stdout)
        self._channel = Channel(ours)
        try:
            self.hello = self._wait_for_hello()
            self.boot_s = time.monotonic() - begin
            self.facts: dict[str, Any] = {}
            self.refresh_facts()
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        timeout_s: float | None = None,
    ) -> Finished:
        """Run a command with `folder` (below the writable folder) as its working folder.

        Raises VtaxError when it cannot be started, MachineLostError when the machine went away.
        """
        # The agent enforces the time-out; the host's own is for a guest that hangs altogether.
        patience = 24 * 3600.0 if timeout_s is None else timeout_s * 1.1 + REQUEST_TIMEOUT_S
        begin = time.monotonic()
        answer = self._request(
            "run",
            patience,
            argv=list(argv),
            env=dict(environment),
            cwd=str(self.launch.work_inside / folder),
            stdout="stdout",
            stderr="stderr",
            timeout_s=timeout_s,
            output_limit_bytes=OUTPUT_LIMIT_BYTES,
        )
        host_wall_s = time.monotonic() - begin
        try:
            return Finished(Outcome(**answer), host_wall_s)
        except TypeError:
            raise VtaxError(f"the machine's answer is not of this version: {answer}") from None

    def refresh_facts(self) -> None:
        """Read the facts again: a kernel changes some, like its clock source, just after boot."""
        self.facts = self._request("facts", REQUEST_TIMEOUT_S)

    def console(self) -> str:
        """What the machine printed last, for a log."""
        return self._console.text()

    def close(self) -> None:
        """Ask the machine to power off, and kill it if it does not.

        A machine that still runs a command (Ctrl-C came) would answer only after it: killed.
        """
        if self._process.poll() is None and not self._busy:
            with contextlib.suppress(VtaxError):
                self._channel.request("halt", HALT_TIMEOUT_S)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(HALT_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End the machine now. Its process is the root of all of it (see sandbox.py)."""
        self._channel.close()
        if self._process.poll() is None and not self._environment.is_guest:
            # The native agent cleans up (descendants, cgroup) when its channel closes.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLEAN_UP_S)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._console.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_for_hello(self) -> dict[str, Any]:
        timeout_s = self.launch.boot_timeout_s
        try:
            return self._channel.hello(timeout_s)
        except ChannelTimeoutError:
            raise self._lost(f"did not boot within {timeout_s:.0f} s") from None
        except ChannelClosedError:
            raise self._lost("ended while booting") from None

    def _request(self, op: str, patience_s: float, **fields: Any) -> dict[str, Any]:
        self._busy = True
        try:
            answer = self._channel.request(op, patience_s, **fields)
        except AgentError:
            self._busy = False
            raise
        except ChannelTimeoutError:
            raise self._lost(f"hung: no answer for {patience_s:.0f} s") from None
        except ChannelClosedError:
            raise self._lost("died") from None
        self._busy = False
        return answer

    def _lost(self, what: str) -> MachineLostError:
        self.kill()
        lines = self._console.last_lines() or ["(nothing)"]
        name = self._environment.name
        return MachineLostError(f"the {name} machine {what}; its console ends: {' | '.join(lines)}")


def _spawn(argv: Sequence[str], channel_fd: int) -> subprocess.Popen[bytes]:
    """Start in a session of its own, so that Ctrl-C reaches vtax alone, which then cleans up."""
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(channel_fd,),
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
        )
    except OSError as error:
        raise VtaxError(f"cannot start {argv[0]}: {error.strerror}") from None
