"""Environments on other machines: what a command gets there, and how vtax's agent is brought."""

from __future__ import annotations

import re
import secrets
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Self, TypedDict

from vtax.core import binaries
from vtax.core.errors import MisuseError
from vtax.core.units import format_bytes, parse_size
from vtax.environments import host_side
from vtax.environments.base import Environment, Launch, MachineLike
from vtax.environments.capabilities import Capability, Files, HostReadings, RecordInside
from vtax.environments.copying_machine import bring
from vtax.environments.host_side import HostOf
from vtax.environments.host_swap import NO_SWAP, HostSwap
from vtax.environments.lease import lease
from vtax.environments.machine import Machine
from vtax.environments.option_values import process_limit, usual_processes, whole_number
from vtax.environments.process_environment import ProcessEnvironment
from vtax.environments.remote_machine import BOOT_TIMEOUT_S, FOLDER, script
from vtax.workloads.base import MachineShape

SMALLEST_CAP_BYTES = 16 << 20
MOST_CPUS = 1 << 22
KEYS = {
    "mem": "memory limit, swap included (default: none)",
    "pids": "most processes and threads of a command (default: 4096, or 64 a CPU if more)",
    "dir": "folder there for vtax's files (default: /tmp)",
}


SIZE = "cat /proc/self/status /proc/meminfo"
"""The command that `size` reads."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a machine has, as it says without an agent."""

    cpus: tuple[int, ...]
    memory_bytes: int


def size(said: str) -> Found | None:
    """What a machine has, given what `SIZE` prints there; None when that is not what Linux says."""
    cpus = re.search(r"^Cpus_allowed_list:\s*([0-9]+(?:[,-][0-9]+)*)$", said, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*([0-9]+) kB$", said, re.MULTILINE)
    return Found(_cpu_list(cpus[1]), int(memory[1]) << 10) if cpus and memory else None


def _cpu_list(text: str) -> tuple[int, ...]:
    """``0-3,8`` as numbers."""
    ranges = [part.partition("-") for part in text.split(",")]
    return tuple(n for a, _, b in ranges for n in range(int(a), min(int(b or a), MOST_CPUS) + 1))


class Limits(TypedDict):
    """Fields of `Elsewhere` that keys set."""

    cpus: int | None
    memory_bytes: int | None
    folder: str
    processes: int | None


def limits(environment: str, options: Mapping[str, str]) -> Limits:
    """The values of the keys `cpus`, `mem`, `pids` and `dir`; raises MisuseError for a bad one."""
    cpus = options.get("cpus")
    memory = parse_size(options["mem"]) if "mem" in options else None
    if memory is not None and memory < SMALLEST_CAP_BYTES:
        raise MisuseError(f"{environment}: mem={options['mem']} is too small to start a program in")
    folder = options.get("dir", "/tmp")
    if not FOLDER.fullmatch(folder):
        raise MisuseError(f"{environment}: dir={folder} is not an absolute path of plain letters")
    return Limits(
        cpus=None if cpus is None else whole_number(environment, "cpus", cpus, 1, MOST_CPUS),
        memory_bytes=memory,
        folder=folder,
        processes=process_limit(environment, options["pids"]) if "pids" in options else None,
    )


@dataclass(frozen=True)
class Elsewhere(Environment):
    """An environment on another machine; without slots, so that it can be one of several bases."""

    is_guest: ClassVar[bool] = False
    is_remote: ClassVar[bool] = True
    own_counter: ClassVar[bool] = True

    cpus: int | None = field(default=None, kw_only=True)
    memory_bytes: int | None = field(default=None, kw_only=True)
    folder: str = field(default="/tmp", kw_only=True)
    processes: int | None = field(default=None, kw_only=True)
    pushed: tuple[Path, ...] = field(default=(), kw_only=True)
    also: str | None = field(default=None, kw_only=True)
    """Where the folder of vtax's files there is found, too: the path of another machine's."""

    def memory_limit(self) -> int | None:
        return self.memory_bytes

    def host_cpus(self) -> int:
        return 1

    def agent_inside(self) -> str:
        return "vtax-agent"

    def with_pushed(self, paths: Sequence[Path]) -> Self:
        return replace(self, pushed=tuple(paths))

    def memory_said(self) -> str:
        """Words about memory for the description of a machine."""
        limit = format_bytes(self.memory_bytes) if self.memory_bytes else None
        return f"memory limited to {limit}" if limit else "no memory limit"

    def system_said(self, facts: Mapping[str, Any]) -> str:
        """Words about kernel, CPUs and memory for the description of a machine, given its facts."""
        release = facts.get("kernel", {}).get("release", "?")
        cpus = len(facts.get("affinity") or ()) or "?"
        return f"Linux {release}, {cpus} CPU, {self.memory_said()}"

    def launched(
        self, cpus: int, options: Sequence[str] = (), swap: HostSwap = NO_SWAP
    ) -> tuple[str, Launch]:
        """What the machine's shell has to do on this many CPUs, and the launch without its command
        line; `options`: further ones of the agent."""
        agent = binaries.find("vtax-agent").read_bytes()
        own = PurePosixPath(self.folder, f"vtax-{secrets.token_hex(6)}")
        serve = ["serve", *lease(), *options]
        serve += ["--pids", str(self.processes or usual_processes(cpus))]
        if self.memory_bytes is not None:
            serve += ["--memory", str(self.memory_bytes)]
        launch = Launch(
            (),
            work_inside=Path(own, "work"),
            boot_timeout_s=BOOT_TIMEOUT_S,
            over_stdio=True,
            preamble=agent,
        )
        return script(str(own), len(agent), serve, swap, self.also), launch


@dataclass(frozen=True, slots=True)
class Sized(Elsewhere, ProcessEnvironment):
    """An existing machine, which says without an agent how large it is; perhaps a guest of `host`,
    which is read beside it."""

    cleans_up: ClassVar[bool] = True

    host: HostOf | None = field(default=None, kw_only=True)

    @abstractmethod
    def entered(self, work: Path, cpus: Sequence[int]) -> Machine:
        """The machine with an agent in it."""

    @abstractmethod
    def found(self) -> Found:
        """What the machine has; raises VtaxError when it does not say."""

    def shape(self) -> MachineShape:
        return MachineShape(len(self.own_cpus()), self.memory_bytes or self.found().memory_bytes)

    def check(self) -> None:
        binaries.find("vtax-agent")
        self.own_cpus()
        if self.host is not None:
            binaries.find("vtax-host")
            self.host.environment.check()

    def offered(self) -> frozenset[type[Capability]]:
        return frozenset(self.offers) - ({HostReadings} if self.host is None else set())

    def session(self) -> AbstractContextManager[None]:
        return host_side.using(self.host)

    def start(self, work: Path, cpus: Sequence[int]) -> MachineLike:
        with ExitStack() as stack:
            machine = stack.enter_context(closing(self.entered(work, cpus)))
            host_side.join(self.host, machine, work / "host", cpus)
            stack.pop_all()
            return machine

    def own_cpus(self) -> tuple[int, ...]:
        """The machine's last CPUs, to run on; raises MisuseError when it has too few."""
        has = self.found().cpus
        if self.cpus is not None and self.cpus > len(has):
            raise MisuseError(f"{self.name}: cpus={self.cpus}: it has {len(has)} CPUs")
        return has[-(self.cpus or len(has)) :]

    def served(self, swap: HostSwap = NO_SWAP) -> tuple[str, Launch]:
        """What `launched` returns, on the machine's last CPUs."""
        cpus = self.own_cpus()
        return self.launched(len(cpus), ["--cpus", ",".join(map(str, cpus))], swap)

    def capabilities(self, machine: Machine) -> Sequence[Capability]:
        return (*offered(machine), *host_side.readings(self.host))


def offered(machine: Machine) -> Sequence[Capability]:
    """What a machine elsewhere can do: it has none of this machine's files."""
    return (
        Files(machine.push, machine.pull),
        RecordInside(lambda: bring(machine, "vtax-host")),
    )
