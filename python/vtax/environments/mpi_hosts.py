"""`mpi=on`: Open MPI over several guests, hosts or nodes, which stand for one machine.

mpirun, in the first of them, starts ranks in all. It reaches another by a program that takes a host
and a command (Open MPI's `plm_rsh_agent`). Here that is a few lines of shell, which leave the
command in a file. vtax finds it and lets its agent there run it, so that what starts ranks is
reached as vtax reaches the machine, and ends with its agent. Their messages take the network
between the machines.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from threading import Event

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.environments.agent import REQUEST_TIMEOUT_S, Finished, MachineLostError
from vtax.environments.machine import Machine
from vtax.environments.machine_command import MachineCommand
from vtax.environments.option_values import ON_OFF, choice

KEYS = {"mpi": "on: mpirun starts ranks in all guests, hosts or nodes (default: off)"}
FOLDER = "mpi"
"""A folder of the first machine, below its writable one."""
SOON_S, LATEST_S, LATE = 0.002, 0.5, 0.05
"""The first and the longest pause between looks for what mpirun asks for; its share of the time
since the command began, or asked last, in between."""
GRACE_S = 3.0
"""Time for mpirun to notice by itself that it cannot start ranks."""

_ASKED = "asked-"
_PROGRAM = f"""\
#!/bin/sh
cd "${{0%/*}}" || exit
asked={_ASKED}${{1##*.}}
shift
printf '%s\\n' "$*" >new-$$ && mv new-$$ "$asked"
"""
_FIRST, _OTHER = "127.0.0.1", "240.0.0.{number}"
"""What mpirun calls its own machine, and the others: numbers of a range that no network has (RFC
1112, section 4), so that no name is looked up."""
_SUMS = (
    *("user_s", "system_s", "minor_faults", "major_faults"),
    *("voluntary_switches", "involuntary_switches", "left_processes"),
)
"""What all machines together have, as fields of `Outcome`."""

Take = Callable[[], Mapping[str, str]]
"""Take what mpirun has asked for since the last time: contents of files by their names."""


def wanted(
    environment: str, options: Mapping[str, str], machines: int, *, joined: bool = True
) -> bool:
    """The value of the key `mpi`; one machine has nothing to do for it.

    Raises MisuseError for several that no network joins.
    """
    asked = choice(environment, "mpi", options.get("mpi", "off"), ON_OFF)
    if asked and machines > 1 and not joined:
        raise MisuseError(
            f"{environment}: mpi=on is for guests on one network",
            f"for example {environment}:guests={machines},net=tap,mpi=on",
        )
    return asked and machines > 1


def from_shared(folder: Path) -> Take:
    """How to take it from a guest's writable folder, which this host has."""

    def take() -> Mapping[str, str]:
        exchange = Exchange(folder, FOLDER)
        names = [name for name in exchange.names() if name.startswith(_ASKED)]
        found = {name: exchange.read_text(name) for name in names}
        for name in names:
            exchange.remove(name)
        return found

    return take


def from_beside(watcher: Machine, first: Machine) -> Take:
    """How to take it by a second agent on the first machine, whose own agent is busy."""
    folder = first.launch.work_inside / FOLDER

    def take() -> Mapping[str, str]:
        found = {}
        for name, size in watcher.list_files(str(folder)).items():
            if name.startswith(_ASKED) and size:
                found[name] = watcher.pull(str(folder / name)).decode(errors="replace")
                watcher.push(str(folder / name), b"")
        return found

    return take


class MpiHosts:
    """Machines as hosts of Open MPI. `folders`: this host's side of each one's writable folder;
    `slots`: ranks that each one takes."""

    def __init__(
        self, machines: Mapping[str, Machine], folders: Sequence[Path], slots: Sequence[int],
        take: Take,
    ) -> None:  # fmt: skip
        self._names, self._machines = tuple(machines), tuple(machines.values())
        self._folders, self._take = folders, take
        self._pool = ThreadPoolExecutor(len(machines))
        self._fault: VtaxError | None = None
        names = [_FIRST, *(_OTHER.format(number=n) for n in range(1, len(machines)))]
        hosts = "".join(f"{name} slots={own}\n" for name, own in zip(names, slots, strict=True))
        for machine in self._machines:
            # What starts ranks elsewhere refuses settings that name files it does not find.
            inside = machine.launch.work_inside / FOLDER
            machine.push(str(inside / "agent"), _PROGRAM.encode(), 0o700)
            machine.push(str(inside / "hosts"), hosts.encode())
        inside = self._machines[0].launch.work_inside / FOLDER
        self._variables = _variables(str(inside / "agent"), str(inside / "hosts"))

    def execute(self, command: MachineCommand) -> Finished:
        """Run a command in the first machine, and in the others what starts its ranks there."""
        first, *others = self._folders
        for folder in others:
            # Ranks start in a folder like the command's.
            shutil.copytree(first / command.folder, folder / command.folder, dirs_exist_ok=True)
        command = replace(command, environment={**command.environment, **self._variables})
        ended = Event()
        watching = self._pool.submit(self._watch, command, ended)
        try:
            finished = self._machines[0].execute(command)
        except MachineLostError:
            if self._fault is not None:
                raise MachineLostError(self._fault.message, self._fault.remedy) from None
            raise
        finally:
            ended.set()
        done, running = wait(watching.result(), REQUEST_TIMEOUT_S)
        if running:
            raise MachineLostError("mpi=on: what mpirun has started elsewhere does not end")
        told = [each.result().told for each in done]
        sums = {name: sum(getattr(each, name) for each in (finished.told, *told)) for name in _SUMS}
        return replace(finished, told=replace(finished.told, **sums))

    def close(self) -> None:
        """Start nothing more; what runs ends with the machines."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _watch(self, command: MachineCommand, ended: Event) -> Sequence[Future[Finished]]:
        """Obey until the command has ended; returns what was started."""
        begin, started = time.monotonic(), list[Future[Finished]]()
        while not ended.wait(min(LATEST_S, max(SOON_S, LATE * (time.monotonic() - begin)))):
            with self._ending_first(ended):
                for name, line in self._take().items():
                    number = name.removeprefix(_ASKED)
                    if number not in map(str, range(1, len(self._machines))):
                        raise VtaxError(f"mpi=on: mpirun asked for a host {number!r:.20}")
                    started.append(self._pool.submit(self._obey, int(number), line, command, ended))
                    begin = time.monotonic()
        return started

    def _obey(self, number: int, line: str, command: MachineCommand, ended: Event) -> Finished:
        shell = replace(command, argv=("/bin/sh", "-c", line), leave=True)
        with self._ending_first(ended):
            finished = self._machines[number].execute(shell)
            if finished.told.exit_code != 0 and not ended.wait(GRACE_S):
                said = Exchange(self._folders[number], command.folder).read_text("stderr")
                why = (said.strip().splitlines() or [f"exit code {finished.told.exit_code}"])[-1]
                raise VtaxError(
                    f"mpi=on: no ranks on {self._names[number]}: {why}",
                    "the Open MPI of the first has to be there, and the network open between them",
                )
        return finished

    @contextlib.contextmanager
    def _ending_first(self, ended: Event) -> Iterator[None]:
        """End the first machine after the block's error: mpirun would wait for what never comes."""
        try:
            yield
        except VtaxError as error:
            if not ended.wait(GRACE_S):
                self._fault = error
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._machines[0].pid, signal.SIGKILL)
            raise


def _variables(agent: str, hosts: str) -> Mapping[str, str]:
    """Settings of Open MPI 4 (ORTE) and 5 (PRRTE); neither minds the other's."""
    four = {
        "plm": "rsh",
        "plm_rsh_agent": agent,
        "plm_rsh_no_tree_spawn": "1",
        "orte_default_hostfile": hosts,
        # Names of hosts are addresses, of which the part before the first dot says nothing.
        "orte_keep_fqdn_hostnames": "1",
        # What starts ranks lasts as long as they do, so that its CPU time is known.
        "orte_leave_session_attached": "1",
        # Where each rank is, on standard error.
        "hwloc_base_report_bindings": "1",
        # Messages between machines go over TCP. What a version lacks is no error here.
        "btl": "^openib,ofi,ucx,uct,ugni,usnic,portals4,smcuda",
    }
    five = {
        "plm": "ssh",
        "plm_ssh_agent": agent,
        "plm_ssh_no_tree_spawn": "1",
        "prte_default_hostfile": hosts,
        "prte_keep_fqdn_hostnames": "1",
    }
    return {f"OMPI_MCA_{name}": value for name, value in four.items()} | {
        f"PRTE_MCA_{name}": value for name, value in five.items()
    }
