"""A lab whose nested guest is under check while it is switched, for the tests of the switch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from vtax.core import cache
from vtax.core.errors import VtaxError
from vtax.environments.agent import Agent, MachineLostError
from vtax.environments.base import allowed_cpus
from vtax.environments.emulated_host import traces
from vtax.environments.emulated_host.host import EmulatedHost
from vtax.environments.lab.environment import Lab
from vtax.environments.lab.machine import LabMachine
from vtax.environments.machine_command import MachineCommand

ECHO = "192.168.77.1:7007"
GUEST_ADDRESS = "192.168.77.2/24"
PATH = {"PATH": "/bin:/usr/bin"}
PATIENCE_S = 120.0
"""Time for an emulated host on a busy machine; a step takes a second or two on an idle machine."""
AGENT = "/run/vtax/vtax-agent"


@contextmanager
def started(folder: Path, **options: str) -> Iterator[LabMachine]:
    """A lab with guests that need nothing of the host; a skip where it, or a switch, cannot be."""
    lab = Lab.from_options({"guest": "builtin", **options})
    try:
        lab.check()
    except VtaxError as error:
        pytest.skip(f"lab: {error}")
    if obstacle := lab.paging_obstacle("shadow"):
        pytest.skip(f"lab: {obstacle}")
    with LabMachine(lab, folder, allowed_cpus()) as machine:
        try:
            yield machine
        except MachineLostError as error:
            # For people who read the report of the test alone.
            if error.remedy:
                print((cache.folder("lab") / traces.FILE).read_text())
            raise
        for guest in machine.guests:
            assert not oopses(guest)


class SharedLab:
    """One lab for tests that leave it as they found it; a lab in which a test failed is ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lab = ExitStack()
        self._machine: LabMachine | None = None
        self._labs = 0

    @contextmanager
    def use(self) -> Iterator[LabMachine]:
        if self._machine is None:
            self._labs += 1
            work = self._folder / f"lab{self._labs}"
            work.mkdir(mode=0o700)
            self._machine = self._lab.enter_context(started(work))
        try:
            yield self._machine
            for guest in self._machine.guests:
                assert not oopses(guest)
        except BaseException as error:
            self._machine = None
            # The block is told of the error, so that a lost machine is not asked for its state.
            self._lab.__exit__(type(error), error, error.__traceback__)
            raise

    def close(self) -> None:
        self._lab.close()


def oopses(guest: Agent) -> str:
    """What the guest's kernel says about its own faults; "" where there are none."""
    return shell(guest, "dmesg | grep -E -A 4 'BUG:|Oops|general protection|segfault' || true")


def shell(agent: Agent | EmulatedHost, script: str, patience_s: float = PATIENCE_S) -> str:
    """What a shell script prints in a guest or in the emulated host; it has to succeed.

    What the script starts in the background stays.
    """
    argv = ["busybox", "sh", "-c", script]
    if isinstance(agent, EmulatedHost):
        done = agent.run(argv, leave=True, timeout_s=patience_s)
        assert done.outcome.exit_code == 0, done.stderr
        return done.stdout
    command = MachineCommand(argv, PATH, "/run/shell", patience_s, leave=True)
    outcome = agent.run(command).outcome
    assert outcome.exit_code == 0, agent.pull("/run/shell/stderr").decode()
    return agent.pull("/run/shell/stdout").decode()


class Background:
    """A workload of the agent that runs until it is asked for its report."""

    def __init__(self, agent: Agent | EmulatedHost, name: str, arguments: str) -> None:
        self._agent = agent
        self._folder = f"/run/{name}"
        command = f"{AGENT} workload {name} {arguments} --json"
        script = f"mkdir -p {self._folder}; cd {self._folder}; "
        script += f"setsid {command} >report 2>errors </dev/null & echo $!"
        self.pid = int(shell(agent, script))

    def report(self, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """End the workload and return its report about itself."""
        script = f"kill -TERM {self.pid}; while kill -0 {self.pid} 2>/dev/null; do sleep 0.1; done"
        shell(self._agent, script, patience_s)
        text = self._agent.pull(f"{self._folder}/report")
        if not text:
            errors = self._agent.pull(f"{self._folder}/errors").decode()
            raise AssertionError(f"no report; {errors}; {shell(self._agent, 'dmesg | tail -n 20')}")
        report = json.loads(text)
        assert isinstance(report, dict)
        return report


class Checked:
    """Everything in a guest that must survive a switch, checked all the time."""

    def __init__(self, machine: LabMachine, memory: str = "8M") -> None:
        self._machine, guest = machine, machine.guests[0]
        self._echo = Background(machine.host, "echo", f"--listen {ECHO}")
        shell(guest, f"ip address replace {GUEST_ADDRESS} dev eth0; ip link set eth0 up")
        options = f"--mem {memory} --seconds 3000 --connect {ECHO}"
        self._guest = Background(guest, "round-trip", options)
        # State 01 is "established": a switch that is over at once must find the connection.
        port = f"{int(ECHO.rpartition(':')[2]):04X}"
        answered = f"grep -q ':{port} [^ ]* 01 ' /proc/net/tcp"
        shell(machine.host, f"while ! {answered}; do sleep 0.1; done")

    def reports(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The guest's report and the emulated host's; the guest goes first."""
        return self._guest.report(), self._echo.report()


def qemus(host: EmulatedHost) -> list[int]:
    """The QEMUs that run in the emulated host."""
    script = (
        "for p in /proc/[0-9]*; do case $(readlink $p/exe) in *qemu*) echo ${p#/proc/};; esac; done"
    )
    return [int(line) for line in shell(host, script).split()]


def mode(host: EmulatedHost) -> str | None:
    """The paging mode of KVM in the emulated host."""
    found = host.counters()["mode"]
    return str(found) if found else None
