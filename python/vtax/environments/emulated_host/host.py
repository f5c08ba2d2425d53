"""The emulated host as vtax uses it: commands, files, counters, the switch."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from vtax.core import foreign_json
from vtax.core.clocks import Skew
from vtax.core.errors import VtaxError
from vtax.environments.agent import REQUEST_TIMEOUT_S, Agent
from vtax.environments.capabilities import Completed
from vtax.environments.machine_command import MachineCommand
from vtax.workloads.base import tail

PATH = {"PATH": "/bin:/usr/bin"}
SWITCH_PATH = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
HOST_PROGRAM = PurePosixPath("/bin/vtax-host")
"""Where the emulated host has it."""
COMMAND_TIMEOUT_S = 60.0
SWITCH_TIMEOUT_S = 120.0
_FOLDER = "/run/vtax/commands"
_OUTPUT_BYTES = 4 << 20


class EmulatedHost:
    """Requests to the agent of the emulated host. Its programs are busybox, vtax-host and QEMU."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] = PATH,
        timeout_s: float = COMMAND_TIMEOUT_S,
        leave: bool = False,
    ) -> Completed:
        """Run a command to its end; `leave`: what the command starts in the background stays.

        The caller has to look at the exit code.
        """
        command = MachineCommand(argv, environment, _FOLDER, timeout_s, leave=leave)
        finished = self._agent.run(command)
        out, err = (
            self._agent.pull(f"{_FOLDER}/{name}", _OUTPUT_BYTES).decode(errors="replace")
            for name in ("stdout", "stderr")
        )
        return Completed(finished.outcome, out, err)

    def must(self, argv: Sequence[str], what: str, *, leave: bool = False) -> str:
        """Run a command that has to succeed, and return its output. Raises VtaxError."""
        done = self.run(argv, leave=leave)
        if done.outcome.exit_code != 0:
            said = tail(done.stderr) or tail(done.stdout) or "it says nothing"
            raise VtaxError(f"the emulated host cannot {what}: {said[-300:]}")
        return done.stdout

    def shell(self, script: str, what: str) -> str:
        """Run a shell script that has to succeed; see `must`."""
        return self.must(["busybox", "sh", "-c", script], what)

    def push(self, path: str, content: bytes, permissions: int = 0o600) -> None:
        """Write a file in the emulated host."""
        self._agent.push(path, content, permissions)

    def pull(self, path: str, limit_bytes: int = 16 << 20) -> bytes:
        """Read a file in the emulated host; raises VtaxError when it is larger than the limit."""
        return self._agent.pull(path, limit_bytes)

    def tail(self, path: str, size: int = 64 << 10) -> bytes:
        """The last bytes of a file in the emulated host."""
        return self._agent.tail(path, size)

    def facts(self) -> dict[str, Any]:
        """The emulated host's own facts."""
        return self._agent.facts()

    def counters(self) -> dict[str, Any]:
        """KVM's counters as crates/agent/PROTOCOL.md has them."""
        return self._agent.request("counters", REQUEST_TIMEOUT_S)

    def enter(self) -> None:
        """Mount the real host's tree and the work folder."""
        self._agent.request("enter", REQUEST_TIMEOUT_S)

    def switch(self, to: str, *options: str) -> dict[str, Any]:
        """Switch all guests to `nested` or `shadow` paging, and return the report of `vtax paging
        switch`, which takes `options`.

        Raises VtaxError in its words when it fails.
        """
        line = [str(HOST_PROGRAM), "paging", "switch", "--json", f"--to={to}", *options]
        # The QEMUs that it starts are the guests' new ones.
        done = self.run(line, environment=SWITCH_PATH, timeout_s=SWITCH_TIMEOUT_S, leave=True)
        if done.outcome.signal is not None:
            raise VtaxError(f"switch: killed by signal {done.outcome.signal}")
        if done.outcome.exit_code != 0:
            said = tail(done.stderr, 1) or "switch: it failed without a message"
            raise VtaxError(said.removeprefix("vtax: "))
        return foreign_json.parse_object(done.stdout.encode())

    def clock_skew(self) -> Skew:
        """How far the emulated host's clock is from this machine's."""
        return self._agent.clock_skew()

    def set_clock(self) -> None:
        """Set the wall clock, which in a restored machine stands where it was saved."""
        self._agent.set_clock()


def quoted(argv: Sequence[str]) -> str:
    """A command line to paste into a shell."""
    return shlex.join(argv)
