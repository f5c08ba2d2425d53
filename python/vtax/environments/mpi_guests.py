"""`mpi=on`: Open MPI over the guests of one machine, which share a network.

mpirun, in the first guest, starts ranks in all of them. It reaches a guest by a program that takes
a host and a command (`plm_rsh_agent`): here a few lines of shell, which send the command to a shell
that listens in the guest. That shell, started by vtax's agent, has the rights of the guest's
programs and no more, and only the guests are on their network.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from vtax.core.errors import MisuseError
from vtax.core.formats.exchange import Exchange
from vtax.environments.link import Wanted
from vtax.environments.machine import Machine
from vtax.environments.machine_command import MachineCommand
from vtax.environments.option_values import ON_OFF, choice
from vtax.workloads.variables import DEFAULT_PATH

KEYS = {"mpi": "on: mpirun starts ranks in all guests (default: off)"}
FOLDER = "mpi"
PORT = 4444
"""Where a shell listens in each guest but the first."""
READY_S = 20.0

_AGENT = """\
#!/bin/sh
host=$1
shift
printf '%s\\n' "$*" | busybox nc "$host" {port}
"""
_LISTEN = "busybox nc -ll -p {port} -e /bin/sh </dev/null >/dev/null 2>&1 &"
_LISTENS = "busybox nc -w 2 {address} {port} </dev/null"


def wanted(environment: str, options: Mapping[str, str], guests: int, link: Wanted | None) -> bool:
    """The value of the key `mpi`; one guest has nothing to do for it.

    Raises MisuseError for several guests without a network.
    """
    asked = choice(environment, "mpi", options.get("mpi", "off"), ON_OFF)
    if asked and guests > 1 and link is None:
        raise MisuseError(
            f"{environment}: mpi=on is for guests on one network",
            f"for example {environment}:guests={guests},net=tap,mpi=on",
        )
    return asked and guests > 1


class MpiGuests:
    """The guests as hosts of Open MPI. `folders`: the host's side of each one's writable folder;
    `addresses`: theirs on their network; `slots`: ranks that each one takes."""

    def __init__(
        self,
        guests: Sequence[Machine],
        folders: Sequence[Path],
        addresses: Sequence[str],
        slots: int,
    ) -> None:
        self._folders = folders
        self._inside = guests[0].launch.work_inside / FOLDER
        network = f"{addresses[0].rpartition('.')[0]}.0/24"
        hosts = "".join(f"{address} slots={slots}\n" for address in addresses)
        self._variables = {
            "OMPI_MCA_plm": "rsh",
            "OMPI_MCA_plm_rsh_agent": str(self._inside / "agent"),
            "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
            "OMPI_MCA_orte_default_hostfile": str(self._inside / "hosts"),
            # Names of hosts are addresses, of which the part before the first dot says nothing.
            "OMPI_MCA_orte_keep_fqdn_hostnames": "1",
            "OMPI_MCA_oob_tcp_if_include": network,
            "OMPI_MCA_btl_tcp_if_include": network,
            "OMPI_MCA_btl": "tcp,self,vader",
            # Where each rank is, on standard error.
            "OMPI_MCA_hwloc_base_report_bindings": "1",
        }
        for guest, folder in zip(guests, folders, strict=True):
            exchange = Exchange(folder, FOLDER)
            agent = _AGENT.format(port=PORT)
            exchange.create({"agent": agent.encode(), "hosts": hosts.encode()})
            (exchange.path / "agent").chmod(0o755)
            if guest is not guests[0]:
                self._shell(guest, _LISTEN.format(port=PORT), leave=True)
        for address in addresses[1:]:
            self._await(guests[0], address)

    def variables(self, own: Mapping[str, str]) -> dict[str, str]:
        """The variables of a command whose ranks may run in all guests."""
        # mpirun gives ranks elsewhere only what is asked for here, and what is Open MPI's.
        names = [name for name in own if name != "PATH" and not name.startswith("OMPI_")]
        return {**own, **self._variables, "OMPI_MCA_mca_base_env_list": ";".join(names)}

    def prepare(self, command: MachineCommand) -> None:
        """Give the other guests the command's folder with its files: ranks start in it."""
        first, *others = self._folders
        for folder in others:
            shutil.copytree(first / command.folder, folder / command.folder, dirs_exist_ok=True)

    def _await(self, guest: Machine, address: str) -> None:
        deadline = time.monotonic() + READY_S
        while self._shell(guest, _LISTENS.format(address=address, port=PORT)) != 0:
            if time.monotonic() > deadline:
                raise MisuseError(
                    f"mpi=on: the guest {address} does not answer", "apt-get install busybox-static"
                )
            time.sleep(0.1)

    def _shell(self, guest: Machine, script: str, *, leave: bool = False) -> int | None:
        line = ("/bin/sh", "-c", script)
        command = MachineCommand(line, {"PATH": DEFAULT_PATH}, FOLDER, READY_S, leave=leave)
        return guest.execute(command).outcome.exit_code
