"""A started lab: the emulated host, the guests in it, and the channels to all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from vtax.core.clocks import Skew
from vtax.core.errors import VtaxError
from vtax.environments import sandbox
from vtax.environments.agent import OUTPUT_LIMIT_BYTES, Agent, Finished, given_input
from vtax.environments.base import MachineLike
from vtax.environments.capabilities import (
    C,
    Files,
    GuestPage,
    Guests,
    KvmCounters,
    PagingMode,
    Pause,
    RecordOutside,
    Switch,
    offered,
)
from vtax.environments.emulated_host import plugins
from vtax.environments.emulated_host.host import HOST_PROGRAM
from vtax.environments.emulated_host.started import StartedHost
from vtax.environments.guest_page import FILE as PAGE_FILE
from vtax.environments.kvm_counters import Counters, of_guest
from vtax.environments.lab import boot, nested, program
from vtax.environments.lab.configuration import LabConfiguration
from vtax.environments.lab.recipe import LabRecipe
from vtax.environments.machine_command import MachineCommand
from vtax.environments.output_limit import OutputLimit

HALT_TIMEOUT_S = 3.0
OUTPUT_BYTES = 64 << 20
"""The limit for each of stdout and stderr from a guest without a shared folder."""
_OUTPUTS = ("stdout", "stderr")
_GUEST_PATH = "/bin:/usr/bin"
"""The PATH of a guest that has nothing but busybox."""


class LabMachine(MachineLike):
    """A `Machine` whose commands run in the nested guest; a context manager too."""

    def __init__(self, lab: LabConfiguration, work: Path, cpus: Sequence[int]) -> None:
        begin = time.monotonic()
        self.output_limit_bytes = OUTPUT_LIMIT_BYTES
        self._lab = lab
        self._work = work
        self._mode: PagingMode = "nested" if lab.nested_paging else "shadow"
        self._shares = lab.kind == "host"
        self._started = StartedHost(LabRecipe.of(lab), work, cpus)
        self.host, self.guests = self._started.host, self._started.guests
        self.launch = self._started.launch
        try:
            if lab.model and not self._shares:
                # The host reads the page in the work folder.
                self.host.enter()
            self.hello = self._let_in()
            self.boot_s = time.monotonic() - begin
            self.facts: dict[str, Any] = {}
            self.refresh_facts()
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._started.emulator.pid

    def execute(self, command: MachineCommand) -> Finished:
        """Run a command in the first nested guest.

        A guest without the host's tree gets the files in the folder before, and its stdout and
        stderr are fetched into it after.
        """
        agent, folder = self.guests[0], command.folder
        if not self._shares:
            self._push_inputs(agent, folder)
        asked = replace(command, environment=self._variables(command.environment))
        finished = agent.run(asked, self._output_limit(folder), given_input(self._work, folder))
        if not self._shares:
            self._pull_outputs(agent, folder, folder)
        return finished

    def run_everywhere(self, command: MachineCommand) -> Sequence[Finished]:
        """Run a command in all guests at once; output of guest N goes to the folder FOLDER-N."""
        folder = command.folder
        asked = replace(command, environment=self._variables(command.environment))
        limit, stdin = self._output_limit(folder), given_input(self._work, folder)
        # Each guest has its own channel, so each gets a thread.
        pool = ThreadPoolExecutor(len(self.guests))
        if not self._shares:
            for guest in self.guests:
                self._push_inputs(guest, folder)
        try:
            running = [pool.submit(guest.run, asked, limit, stdin) for guest in self.guests]
            found = [each.result() for each in running]
        finally:
            # After Ctrl-C the threads go on until the machine, and with it their channels, is
            # closed.
            pool.shutdown(wait=False, cancel_futures=True)
        for number, guest in enumerate(self.guests):
            self._pull_outputs(guest, folder, f"{folder}-{number}")
        return found

    def offer(self, wanted: type[C]) -> C | None:
        """The means to use a capability; None when the machine lacks it."""
        guest = self.guests[0]
        found = (
            Files(guest.push, guest.pull),
            Guests(self.run_everywhere),
            RecordOutside({"vm": "all"}, self.host, str(HOST_PROGRAM)),
            KvmCounters(self.counters),
            Switch(self.switch, lambda: self._mode),
            Pause(
                lambda: boot.pause(self.host, len(self.guests)),
                lambda: boot.resume(self.host, len(self.guests)),
            ),
            GuestPage(program.MODEL_PAGE, published=True)
            if self._lab.model
            else GuestPage(self.launch.work_inside / PAGE_FILE),
        )
        return offered([each for each in found if type(each) in self._lab.offered()], wanted)

    def switch(self, to: PagingMode) -> Mapping[str, Any]:
        """Switch all guests while they run, and return the report.

        Raises VtaxError where this QEMU's guests would not survive it.
        """
        if obstacle := self._lab.paging_obstacle(to):
            raise VtaxError(f"lab: {obstacle}", plugins.REMEDY)
        report = self.host.switch(to)
        self._mode = to
        return report

    def _output_limit(self, folder: str) -> OutputLimit:
        return OutputLimit(self._work, folder, self.output_limit_bytes)

    def counters(self, guest: int = 0) -> Counters:
        """What KVM has counted for a guest so far."""
        return of_guest(self.host.counters(), self._qemu_pid(guest))

    def clock_skew(self) -> Skew:
        """How far the nested guest's clock is from this machine's."""
        return self.guests[0].clock_skew()

    def refresh_facts(self) -> None:
        """Read the nested guest's facts again."""
        self.facts = self.guests[0].facts()

    def console(self) -> str:
        """What the emulated host printed last, for a log."""
        return self._started.emulator.console.text()

    def close(self) -> None:
        """End the lab. Nothing in it needs saving, so no agent is asked."""
        self.kill()

    def kill(self) -> None:
        """End the lab now."""
        self._started.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _let_in(self) -> dict[str, Any]:
        """The first guest's hello; guests that use the real host's tree get it here."""
        if self._shares:
            return boot.let_in(self.host, self._started.emulator.guests)[0]
        for agent in self.guests:
            agent.set_clock()
        return self._started.hellos.guests[0]

    def _qemu_pid(self, guest: int) -> int | None:
        """The process of a guest's QEMU; None where there is only one guest, so that none need be
        looked up."""
        if len(self.guests) == 1:
            return None
        text = self.host.pull(str(nested.folder(guest) / "pid"), 64).decode().strip()
        return int(text) if text.isdecimal() else -1

    def _variables(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        if self._shares:
            return environment
        return {**environment, "PATH": f"{environment.get('PATH', '')}:{_GUEST_PATH}".lstrip(":")}

    def _push_inputs(self, agent: Agent, folder: str) -> None:
        for path in sorted((self._work / folder).glob("*")):
            if path.is_file() and not path.is_symlink():
                agent.push(str(sandbox.WORK / folder / path.name), path.read_bytes())

    def _pull_outputs(self, agent: Agent, folder: str, to: str) -> None:
        target = self._work / to
        target.mkdir(mode=0o700, exist_ok=True)
        for name in _OUTPUTS:
            content = agent.pull(str(sandbox.WORK / folder / name), OUTPUT_BYTES)
            (target / name).write_bytes(content)
