"""A started domU: the emulated machine, Xen and dom0 on it, and the channels to both domains."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

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
    unless_lost,
)
from vtax.environments.base import Launch, MachineLike
from vtax.environments.capabilities import C, Files, RecordInside, RecordOutside, offered
from vtax.environments.channel import ChannelTimeoutError
from vtax.environments.emulated_host.emulator import Emulated, Emulator
from vtax.environments.emulated_host.host import EmulatedHost
from vtax.environments.machine_command import MachineCommand
from vtax.environments.output_limit import OutputLimit
from vtax.environments.xen import dom0, parts

DOM0_TIMEOUT_S = 120.0
GUEST_TIMEOUT_S = 120.0
"""A guest takes 10 s on an idle machine."""
_LOOK_EVERY_S = 2.0
_ABOUT_A_DOMU = re.compile(r"\bd[1-9]\d*(v\d+)?\b|[Dd]omain [1-9]")
NOISE_BYTES = 64 << 10
"""What the guest's kernel may print before the agent runs."""


class XenMachine(MachineLike):
    """A `Machine` whose commands run in the domU; a context manager too."""

    def __init__(
        self,
        machine: Emulated,
        initramfs: bytes,
        domain: dom0.Domain,
        work: Path,
        cpus: Sequence[int],
    ) -> None:
        begin = time.monotonic()
        self.output_limit_bytes = OUTPUT_LIMIT_BYTES
        self._work = work
        self._emulator = Emulator(machine, initramfs, work, cpus)
        self.launch = Launch(self._emulator.argv, sandbox.WORK, DOM0_TIMEOUT_S)
        try:
            first = Agent(self._emulator.host, sandbox.WORK, self._lost)
            first.hello(DOM0_TIMEOUT_S)
            self.host = EmulatedHost(first)
            self._guest = Agent(self._emulator.guests[0], sandbox.WORK, self._lost_guest)
            self.hello = self._start(domain)
            self.boot_s = time.monotonic() - begin
            self._guest.look_at_clock()
            self.facts: dict[str, Any] = {}
            self.refresh_facts()
        except BaseException:
            self.kill()
            raise

    def execute(self, command: MachineCommand) -> Finished:
        """Run a command in the domU."""
        limit = OutputLimit(self._work, command.folder, self.output_limit_bytes)
        return self._guest.run(command, limit, given_input(self._work, command.folder))

    def offer(self, wanted: type[C]) -> C | None:
        """The means to use a capability; None when the machine lacks it."""
        found = (
            Files(self._guest.push, self._guest.pull),
            RecordInside(lambda: str(binaries.find("vtax-host"))),
            RecordOutside({}, self.host, str(parts.RECORDER)),
        )
        return offered(found, wanted)

    def clock_skew(self) -> Skew:
        """How far the domU's clock is from this machine's."""
        return self._guest.clock_skew()

    def refresh_facts(self) -> None:
        """Read the domU's facts again."""
        self.facts = self._guest.facts()

    def console(self) -> str:
        """What Xen and dom0 printed last, for a log."""
        return self._emulator.console.text()

    def close(self) -> None:
        """End the machine. Nothing in it needs saving, so no agent is asked."""
        self.kill()

    def kill(self) -> None:
        """End the machine now."""
        self._emulator.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, domain: dom0.Domain) -> dict[str, Any]:
        self.host.set_clock()
        self.host.enter()
        script = ["busybox", "sh", "-c", dom0.toolstack_script()]
        self.host.must(script, "start Xen's toolstack", leave=True)
        self.host.push(str(dom0.CONFIGURATION), dom0.configuration(domain).encode())
        script = ["busybox", "sh", "-c", dom0.start_script()]
        self.host.must(script, "create the domU", leave=True)
        return self._await_guest()

    def _await_guest(self) -> dict[str, Any]:
        channel, deadline = self._emulator.guests[0], time.monotonic() + GUEST_TIMEOUT_S
        while True:
            try:
                return channel.hello(_LOOK_EVERY_S, NOISE_BYTES)
            except ChannelTimeoutError:
                pass
            if not self._lives():
                raise self._failed("ended while booting")
            if time.monotonic() > deadline:
                raise self._failed(f"did not boot within {GUEST_TIMEOUT_S:.0f} s")

    def _failed(self, what: str) -> VtaxError:
        said = self._emulator.guests[0].noise.decode(errors="replace").split("\n")
        lines = [line.strip() for line in said if line.strip()][-4:] or ["(nothing)"]
        console = " | ".join(lines)
        return VtaxError(f"the domU {what}{self._reason()}; its console ends: {console}")

    def _reason(self) -> str:
        """What Xen said of the domU's end."""
        said = [line for line in self._emulator.console.last_lines() if "(XEN)" in line]
        about = [line.removeprefix("(XEN) ") for line in said if _ABOUT_A_DOMU.search(line)]
        return f": Xen says {about[-1]!r}" if about else ""

    def _lives(self) -> bool:
        return self.host.run(["busybox", "sh", "-c", dom0.lives_script()]).outcome.exit_code == 0

    def _lost(self, what: str) -> MachineLostError:
        lines = self._emulator.console.last_lines() or ["(nothing)"]
        self.kill()
        return MachineLostError(f"Xen's dom0 {what}; its console ends: {' | '.join(lines)}")

    def _lost_guest(self, what: str) -> MachineLostError:
        lives = True
        with unless_lost():
            lives = self._lives()
        reason = "" if lives else self._reason()
        self.kill()
        if lives:
            return MachineLostError(f"the domU {what}")
        return MachineLostError(f"the domU crashed or powered off{reason}", "give it more memory")
