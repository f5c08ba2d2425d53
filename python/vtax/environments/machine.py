"""A started machine: the process, its console, and the channel to the agent in it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self

from vtax.core import binaries
from vtax.core.clocks import Skew
from vtax.core.errors import VtaxError
from vtax.environments import sandbox
from vtax.environments.agent import (
    OUTPUT_LIMIT_BYTES,
    Agent,
    Finished,
    MachineLostError,
    given_input,
)
from vtax.environments.base import Allocation, Launch, MachineLike
from vtax.environments.capabilities import (
    C,
    Capability,
    CountPrograms,
    Files,
    GuestPage,
    Link,
    Pause,
    RecordInside,
    RecordOutside,
    offered,
)
from vtax.environments.channel import Channel
from vtax.environments.console import ConsoleTail
from vtax.environments.machine_command import MachineCommand
from vtax.environments.output_limit import OutputLimit

HALT_TIMEOUT_S = 3.0
CLEAN_UP_S = 6.0
"""Time for an agent to end a command, which it first asks to end (2 s)."""
NOISE_BYTES = 64 << 10
"""Bytes of lines before hello to skip where something may print before the agent runs."""
REMOVAL_S = 30.0
"""Time for `Launch.clean_up`. A container engine answers in under a second when nothing is
wrong."""

__all__ = ["Finished", "Machine", "MachineLostError", "shared_tree", "spawn"]


class MachineNetwork(Protocol):
    """The network of one machine (`vtax.environments.link`)."""

    switch: Path | None
    """The folder of its switch's sockets, if it has a switch."""

    @property
    def namespace_pid(self) -> int:
        """The process that holds the namespace of the machine's process."""
        ...

    def configure(self, run: Callable[..., Finished], work: Path, number: int = 0) -> None: ...

    def offered(self, *pids: int) -> Link: ...

    def close(self) -> None: ...


class MachineSource(Protocol):
    """What a machine needs of its environment (`ProcessEnvironment`)."""

    name: ClassVar[str]
    cleans_up: ClassVar[bool]

    def emulates_clock(self) -> bool: ...

    def launch(self, allocation: Allocation) -> Launch: ...

    def own_network(self, cpus: Sequence[int]) -> MachineNetwork | None: ...

    def capabilities(self, machine: Machine) -> Sequence[Capability]: ...

    def explain_end(self, code: int, console: Sequence[str]) -> tuple[str, str | None] | None: ...


class Machine(MachineLike):
    """Always used as a context manager: leaving it ends the machine, whatever happened.

    `number`: which one of the guests that run side by side it is; `shared`: their network, which is
    not the machine's to close.
    """

    def __init__(
        self,
        environment: MachineSource,
        work: Path,
        cpus: Sequence[int],
        number: int = 0,
        shared: MachineNetwork | None = None,
    ) -> None:
        self.output_limit_bytes = OUTPUT_LIMIT_BYTES
        """How many bytes a command may add to the writable folder."""
        self.work = work
        """The host's side of its writable folder."""
        self._shares_network = shared is not None
        self.network = shared or environment.own_network(cpus)
        ours, theirs = socket.socketpair()
        try:
            allocation = Allocation(
                work,
                cpus,
                theirs.fileno(),
                self.network.namespace_pid if self.network else None,
                self.network.switch if self.network else None,
                number,
            )
            self.launch: Launch = environment.launch(allocation)
            begin = time.monotonic()
            self._process = _start(self.launch, theirs, work)
        except BaseException:
            ours.close()
            self._close_network()
            raise
        finally:
            theirs.close()
        console = self._process.stderr if self.launch.over_stdio else self._process.stdout
        assert console is not None
        self._environment = environment
        self._console = ConsoleTail(console)
        self._agent = Agent(
            self.channel(ours),
            self.launch.work_inside,
            self._lost,
            emulated_clock=environment.emulates_clock(),
        )
        try:
            self.hello = self._agent.hello(
                self.launch.boot_timeout_s,
                self.launch.preamble,
                NOISE_BYTES if self.launch.over_stdio else 0,
            )
            if reason := self.hello.get("process_limit_error"):
                note = f"The number of processes is not limited by a control group: {reason}."
                self.launch = replace(self.launch, notes=(*self.launch.notes, note))
            self.boot_s = time.monotonic() - begin
            self._agent.look_at_clock()
            self.facts: dict[str, Any] = {}
            self.refresh_facts()
            if self.network:
                self.network.configure(self.run, work, number)
        except BaseException:
            self.kill()
            raise

    def channel(self, ours: socket.socket) -> Channel:
        """The channel to the agent, given this end of the process's descriptor."""
        return Channel(ours, acknowledges=self.launch.acknowledged)

    @property
    def pid(self) -> int:
        return self._process.pid

    def execute(self, command: MachineCommand) -> Finished:
        limit = OutputLimit(self.work, command.folder, self.output_limit_bytes)
        return self._agent.run(command, limit, given_input(self.work, command.folder))

    def offer(self, wanted: type[C]) -> C | None:
        """The means to use a capability; None when the machine lacks it."""
        return offered(self._environment.capabilities(self), wanted)

    def push(self, path: str, content: bytes, permissions: int = 0o600) -> None:
        """Write a file in the machine; an existing one is replaced."""
        self._agent.push(path, content, permissions)

    def pull(self, path: str) -> bytes:
        """Read a regular file of at most 16 MiB in the machine."""
        return self._agent.pull(path)

    def list_files(self, path: str) -> dict[str, int]:
        """The sizes in bytes of the regular files in a folder of the machine, by name."""
        return self._agent.list_files(path)

    def clock_skew(self) -> Skew:
        """How far the machine's clock is from this machine's (50 round trips)."""
        return self._agent.clock_skew()

    def refresh_facts(self) -> None:
        """Read the facts again: a kernel changes some of them, such as its clocksource, just after
        boot."""
        self.facts = self._agent.facts()

    def pause(self) -> None:
        """Stop the process that runs the guest; its clock may go on."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process that runs the guest go on."""
        self._signal(signal.SIGCONT)

    def terminate(self, timeout_s: float) -> bool:
        """Ask the process that runs the guest to end by itself; return whether it did."""
        with contextlib.suppress(OSError, IndexError):
            sandbox.signal_inside(self.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._process.poll() is not None

    def _signal(self, number: int) -> None:
        try:
            sandbox.signal_inside(self.pid, number)
        except (OSError, IndexError):
            raise self._lost("died") from None

    def count_programs(self, wanted: bool) -> None:
        """Count the instructions and cycles of commands, or stop counting, from the next command
        on."""
        self._agent.counting = wanted

    def console(self) -> str:
        """What the machine printed last, for a log."""
        return self._console.text()

    def close(self) -> None:
        """Ask the machine to power off, and kill it if it does not.

        A machine that still runs a command (after Ctrl-C) would answer only after that, so it is
        killed.
        """
        if self._process.poll() is None and not self._agent.busy:
            with contextlib.suppress(VtaxError):
                self._agent.request("halt", HALT_TIMEOUT_S)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(HALT_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End the machine at once. Its process is the root of the process tree (see sandbox.py)."""
        self._agent.close()
        if self._process.poll() is None and self._environment.cleans_up:
            # The agent cleans up (descendants, cgroup) when its channel closes.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLEAN_UP_S)
        if self._process.poll() is None:
            self._process.kill()
        if self._process.wait() != 0 and self.launch.clean_up:
            _clean_up(self.launch)
        self._console.join()
        self._close_network()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _close_network(self) -> None:
        if self.network and not self._shares_network:
            self.network.close()

    def _lost(self, what: str) -> MachineLostError:
        self.kill()
        lines = self._console.last_lines() or ["(nothing)"]
        message = f"the {self._environment.name} machine {what}"
        explained = self._environment.explain_end(self._process.returncode, lines)
        if explained is not None:
            return MachineLostError(f"{message}: {explained[0]}", explained[1])
        return MachineLostError(f"{message}; its console ends: {' | '.join(lines)}")


def shared_tree(machine: Machine) -> Sequence[Capability]:
    """What any process of this host can do that sees the host's own files."""
    return (
        Files(machine.push, machine.pull),
        RecordOutside({"processes": (machine.pid,)}),
        RecordInside(lambda: str(binaries.find("vtax-host"))),
    )


def counting(machine: Machine) -> CountPrograms:
    """What any machine can do whose CPU has a PMU that the machine may use."""
    return CountPrograms(machine.count_programs)


def pausing(machine: Machine) -> Pause:
    """What a guest in one process can do."""
    return Pause(machine.pause, machine.resume)


def publishing(machine: Machine, *, device: bool = False) -> GuestPage:
    """What a guest with a kernel of its own can do; `device`: through the memory of a device."""
    return GuestPage(guests=[(machine, machine.work)], device=device)


def _start(launch: Launch, channel: socket.socket, work: Path) -> subprocess.Popen[bytes]:
    if not launch.over_stdio:
        return spawn(launch.argv, (channel.fileno(),), launch.environment)
    ours, pipe = channel.fileno(), subprocess.PIPE
    # The process starts in the machine's folder: podman's monitor leaves a file `oom` where it was
    # started.
    return spawn(
        launch.argv, (), launch.environment, stdin=ours, stdout=ours, stderr=pipe, folder=work
    )


def spawn(
    argv: Sequence[str],
    descriptors: Collection[int],
    environment: Mapping[str, str] = MappingProxyType({}),
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.STDOUT,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that Ctrl-C reaches vtax alone, which then cleans
    up.

    `folder`: where the process starts; None: in the current folder. `environment` is what the
    process gets besides PATH. Raises VtaxError when it does not start.
    """
    try:
        return subprocess.Popen(
            list(argv),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            pass_fds=tuple(descriptors),
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), **environment},
        )
    except OSError as error:
        raise VtaxError(f"cannot start {argv[0]}: {error.strerror}") from None


def _clean_up(launch: Launch) -> None:
    """Remove what a killed machine leaves. A failure stays silent: the run has its own message by
    then."""
    for argv in launch.clean_up:
        with contextlib.suppress(VtaxError, subprocess.TimeoutExpired):
            spawn(argv, (), launch.environment, stdout=subprocess.DEVNULL).wait(REMOVAL_S)
