"""Slurm's own daemons on loopback with two nodes on this machine, for tests."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import pytest

from process_watch import descendants, eventually

PATHS = os.environ.get("PATH", "") + ":/usr/sbin"
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=1
KillWait=5
NodeName=n1 NodeAddr=127.0.0.1 NodeHostname={host} Port={ports[1]} CPUs={cpus} RealMemory=1000
NodeName=n2 NodeAddr=127.0.0.1 NodeHostname={host} Port={ports[2]} CPUs={cpus} RealMemory=1000
PartitionName=p Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


class SlurmCluster:
    """A running cluster; `SLURM_CONF` of the programs that talk to it is `configuration`."""

    def __init__(self, folder: Path) -> None:
        wanted = ("munged", "slurmctld", "slurmd", "salloc")
        programs = {name: shutil.which(name, path=PATHS) for name in wanted}
        if lacking := [name for name, found in programs.items() if found is None]:
            pytest.skip(f"no {', '.join(lacking)}: apt-get install slurmctld slurmd munge")
        if os.geteuid() != 0:
            pytest.skip("Slurm's daemons need root")
        self.folder, self.configuration = folder, folder / "slurm.conf"
        self._programs = {name: str(found) for name, found in programs.items()}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir()
        (folder / "state").mkdir()
        (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
        (folder / "munge.key").chmod(0o400)
        text = CONFIGURATION.format(
            host=socket.gethostname().split(".")[0],
            folder=folder,
            ports=_free_ports(3),
            cpus=len(os.sched_getaffinity(0)),
        )
        self.configuration.write_text(text)

    def start(self, name: str, *arguments: str, known_as: str | None = None) -> None:
        with (self.folder / f"{known_as or name}.log").open("ab") as log:
            self._running[known_as or name] = subprocess.Popen(
                [self._programs[name], *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "SLURM_CONF": str(self.configuration)},
            )

    def start_controller(self) -> None:
        self.start("slurmctld", "-D", "-f", str(self.configuration))

    def end(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a daemon: by SIGTERM slurmctld saves its state first, as at a restart."""
        process = self._running.pop(name)
        process.send_signal(number)
        process.wait()

    def ask(self, *line: str) -> str:
        done = subprocess.run(
            line,
            env={**os.environ, "SLURM_CONF": str(self.configuration)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    def jobs(self) -> list[str]:
        """Jobs that wait or run."""
        return self.ask("squeue", "--noheader", "--format=%i").split()

    def await_idle(self) -> None:
        """Wait until both nodes take jobs."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.ask("sinfo", "--noheader", "--format=%D %t").split() == ["2", "idle"]:
                return
            time.sleep(0.1)
        raise AssertionError(f"Slurm did not start: {self.ask('sinfo')}")

    def __enter__(self) -> Self:
        munge = [f"--key-file={self.folder}/munge.key", f"--socket={self.folder}/munge.socket"]
        munge += [f"--{name}-file={self.folder}/munge.{name}" for name in ("pid", "log", "seed")]
        # A test's folder is root's alone, which munged would refuse.
        self.start("munged", "--foreground", "--force", *munge)
        deadline = time.monotonic() + 20
        while not (self.folder / "munge.socket").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.start_controller()
        for node in ("n1", "n2"):
            self.start("slurmd", "-D", "-N", node, "-f", str(self.configuration), known_as=node)
        try:
            self.await_idle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # A test that failed may have left jobs, whose steps no daemon would end any more.
        if "slurmctld" in self._running and (jobs := self.jobs()):
            self.ask("scancel", *jobs)
            eventually(lambda: not self.jobs(), within_s=20)
        left = [pid for each in self._running.values() for pid in descendants(each.pid)]
        for name in list(self._running):
            self.end(name)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)


def _free_ports(count: int) -> list[int]:
    chosen = [socket.socket() for _ in range(count)]
    for each in chosen:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in chosen]
    for each in chosen:
        each.close()
    return ports
