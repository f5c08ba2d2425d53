"""A started domain: the emulated machine, Xen on it or not, and the channels to the agents."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from vtax.core import binaries
from vtax.core.clocks import Skew
from vtax.environments.agent import OUTPUT_LIMIT_BYTES, Agent, Finished, given_input
from vtax.environments.base import MachineLike
from vtax.environments.capabilities import (
    C,
    Files,
    Guests,
    Pause,
    RecordInside,
    RecordOutside,
    offered,
)
from vtax.environments.emulated_host.started import HOST_TIMEOUT_S, StartedHost
from vtax.environments.link import Network
from vtax.environments.machine_command import MachineCommand
from vtax.environments.output_limit import OutputLimit
from vtax.environments.xen import boot, parts
from vtax.environments.xen.configuration import XenConfiguration
from vtax.environments.xen.recipe import XenRecipe


class XenMachine(MachineLike):
    """A `Machine` whose commands run in the domain that is measured; a context manager too."""

    def __init__(self, xen: XenConfiguration, work: Path, cpus: Sequence[int]) -> None:
        begin = time.monotonic()
        self.output_limit_bytes = OUTPUT_LIMIT_BYTES
        self._xen = xen
        self._work = work
        self._held = contextlib.ExitStack()
        with self._held:
            self._network = self._held.enter_context(Network(xen.link, cpus)) if xen.link else None
            pid = self._network.namespace_pid if self._network else None
            self._started = StartedHost(XenRecipe.of(xen, pid), work, cpus)
            self._held = self._held.pop_all()
        self.host = self._started.host
        """The dom0 of a domU; otherwise the machine itself."""
        self.launch = self._started.launch
        try:
            self.hello = self._let_in()
            self.boot_s = time.monotonic() - begin
            self._agents[0].look_at_clock()
            self.facts: dict[str, Any] = {}
            self.refresh_facts()
            if self._network:
                for number, agent in enumerate(self._agents):
                    self._network.configure(partial(self._run_in, agent), work, number)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._started.emulator.pid

    def execute(self, command: MachineCommand) -> Finished:
        """Run a command in the domain, or in the first domU."""
        return self._execute(self._agents[0], command)

    def run_everywhere(self, command: MachineCommand) -> Sequence[Finished]:
        """Run a command in all domUs at once; output of domU N goes to the folder FOLDER-N."""
        given = {path.name: path.read_bytes() for path in self._inputs(command.folder)}
        commands = [
            replace(command, folder=f"{command.folder}-{number}")
            for number in range(len(self._agents))
        ]
        for each in commands:
            (self._work / each.folder).mkdir(mode=0o700, exist_ok=True)
            for name, content in given.items():
                (self._work / each.folder / name).write_bytes(content)
        # Each domU has its own channel, so each gets a thread.
        pool = ThreadPoolExecutor(len(commands))
        try:
            return list(pool.map(self._execute, self._agents, commands))
        finally:
            # After Ctrl-C the threads go on until the machine, and with it their channels, is
            # closed.
            pool.shutdown(wait=False, cancel_futures=True)

    def offer(self, wanted: type[C]) -> C | None:
        """The means to use a capability; None when the machine lacks it."""
        agent, emulator = self._agents[0], self._started.emulator
        network, tool = self._network, str(parts.TOOL)
        found = (
            *([network.served_by(self.host, tool, len(self._agents), self.pid)] if network else []),
            Files(agent.push, agent.pull),
            RecordInside(lambda: str(binaries.find("vtax-host"))),
            RecordOutside({}, self.host, str(parts.RECORDER))
            if self._xen.domain == "domu"
            else RecordOutside({"processes": (self.pid,)}),
            Guests(self.run_everywhere),
            Pause(lambda: emulator.signal(signal.SIGSTOP), lambda: emulator.signal(signal.SIGCONT)),
        )
        return offered([each for each in found if type(each) in self._xen.offered()], wanted)

    def clock_skew(self) -> Skew:
        """How far the domain's clock is from this machine's."""
        return self._agents[0].clock_skew()

    def refresh_facts(self) -> None:
        """Read the domain's facts again."""
        self.facts = self._agents[0].facts()

    def console(self) -> str:
        """What the machine's serial line printed last, for a log."""
        return self._started.emulator.console.text()

    def close(self) -> None:
        """End the machine. Nothing in it needs saving, so no agent is asked."""
        self.kill()

    def kill(self) -> None:
        """End the machine now."""
        self._started.kill()
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _let_in(self) -> dict[str, Any]:
        if self._xen.domain == "domu":
            self._agents: Sequence[Agent] = self._started.guests
            return boot.let_in(self._started.emulator, self.host)[0]
        self._agents = [self._started.agent]
        return self._started.agent.let_in(HOST_TIMEOUT_S)

    def _run_in(
        self,
        agent: Agent,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        timeout_s: float,
    ) -> Finished:
        return self._execute(agent, MachineCommand(argv, environment, folder, timeout_s))

    def _execute(self, agent: Agent, command: MachineCommand) -> Finished:
        limit = OutputLimit(self._work, command.folder, self.output_limit_bytes)
        return agent.run(command, limit, given_input(self._work, command.folder))

    def _inputs(self, folder: str) -> list[Path]:
        paths = sorted((self._work / folder).glob("*"))
        return [path for path in paths if path.is_file() and not path.is_symlink()]
