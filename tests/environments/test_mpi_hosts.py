"""Open MPI over guests, hosts and nodes: ranks are on all, and have what the command has."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import command
from process_watch import eventually, processes_naming
from ssh_server import two_hosts
from tested_machines import GUEST_ENVIRONMENT
from vtax.core.errors import MisuseError
from vtax.core.formats.exchange import Exchange
from vtax.environments import build, mpi_hosts
from vtax.environments.agent import Finished, MachineLostError
from vtax.environments.base import MachineLike
from vtax.environments.capabilities import Files, Guests, Nodes
from vtax.workloads.base import MachineShape

ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SAY = 'grep -o -m1 "10\\.213\\.1\\.[23]$" /proc/net/fib_trie; echo "$OMP_NUM_THREADS"; cat given'
"""What each rank prints: its guest's address, a variable, and a file of the command's folder."""


def test_what_guests_have_counts_together() -> None:
    alone, both = (
        build("uml:guests=2,net=vde,mem=256M"),
        build("uml:guests=2,net=vde,mem=256M,mpi=on"),
    )
    assert alone.shape() == MachineShape(1, 256 << 20)
    assert both.shape() == MachineShape(2, 512 << 20)
    assert build("qemu:guests=2,net=tap,mem=512M,mpi=on").shape() == MachineShape(2, 1 << 30)
    assert Guests in alone.offered() and Guests not in both.offered()


def test_one_guest_needs_nothing_for_it() -> None:
    assert build("uml:mpi=on") == build("uml")


@pytest.mark.parametrize(
    ("spec", "says"),
    [("uml:guests=2,mpi=on", "guests on one network"), ("uml:mpi=maybe", "use on or off")],
)
def test_what_cannot_be_is_refused(spec: str, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        build(spec)


needs_mpi = pytest.mark.skipif(
    not shutil.which("mpirun"), reason="no Open MPI: apt-get install openmpi-bin"
)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a network of guests needs root")
@needs_mpi
def test_ranks_run_in_all_guests_with_the_commands_files_and_variables(tmp_path: Path) -> None:
    environment = build("uml:guests=2,net=vde,mem=256M,mpi=on")
    environment.check()
    work = tmp_path / "work"
    work.mkdir()
    machine = environment.start(work, sorted(os.sched_getaffinity(0)))
    try:
        exchange = Exchange(work, "r0")
        exchange.create({"given": b"given\n"})
        argv = ["mpirun", "-np", "2", "--tag-output", "sh", "-c", SAY]
        variables = {**GUEST_ENVIRONMENT, **ROOT, "OMP_NUM_THREADS": "7"}
        finished = machine.run(argv, variables, "r0", timeout_s=300)
        printed = exchange.read_text("stdout")
        assert finished.outcome.exit_code == 0, exchange.read_text("stderr")
        said = [line.partition(">:")[2] or line.partition(">")[2] for line in printed.splitlines()]
        assert sorted(said) == sorted(["10.213.1.2", "7", "given", "10.213.1.3", "7", "given"])
        assert exchange.read_text("stderr").count("MCW rank") == 2
    finally:
        machine.close()


class Hosts:
    """Two hosts with servers, and how to start both as one machine."""

    def __init__(self, folder: Path) -> None:
        self.far = folder / "far"
        self._held = contextlib.ExitStack()
        self.servers = self._held.enter_context(two_hosts(folder))

    @property
    def spec(self) -> str:
        names = "+".join(f"{each.address}:{each.port}" for each in self.servers)
        return f"ssh:{names},mpi=on,cpus=1,dir={self.far},config={self.servers[0].config}"

    def left(self) -> list[Path]:
        """What is in the folder of either, as each sees it."""
        roots = [Path(f"/proc/{each.process.pid}/root{self.far}") for each in self.servers]
        return [path for root in roots for path in root.iterdir()]

    def close(self) -> None:
        self._held.close()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with contextlib.closing(Hosts(tmp_path_factory.mktemp("hosts") / "servers")) as running:
        yield running


@contextlib.contextmanager
def machine_on(hosts: Hosts, tmp_path: Path) -> Iterator[MachineLike]:
    environment = build(hosts.spec)
    environment.check()
    (tmp_path / "work").mkdir()
    with contextlib.closing(environment.start(tmp_path / "work", [])) as machine:
        yield machine
    assert eventually(lambda: not hosts.left())


def ranks(machine: MachineLike, tmp_path: Path, script: str, name: str) -> Finished:
    Exchange(tmp_path / "work", name).create({"given": b"given\n"})
    argv = ["mpirun", "-np", "2", "--tag-output", "sh", "-c", script]
    return machine.run(argv, {**GUEST_ENVIRONMENT, **ROOT, "ASKED": "7"}, name, timeout_s=120)


BUSY = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; times"
"""A loop, and the CPU time of the shell that ran it."""


@needs_mpi
def test_ranks_run_on_all_hosts_as_one_command(hosts: Hosts, tmp_path: Path) -> None:
    with machine_on(hosts, tmp_path) as machine:
        said = 'hostname; echo $ASKED; cat given; hostname >"$(hostname)"; '
        finished = ranks(machine, tmp_path, said + BUSY, "r0")
        out = tmp_path / "work/r0"
        assert finished.outcome.exit_code == 0, (out / "stderr").read_text()
        names = [each.folder.name for each in hosts.servers]
        printed = (out / "stdout").read_text().splitlines()
        busy: list[float] = []
        for rank, name in enumerate(names):
            own = [line.partition(">:")[2] for line in printed if line.startswith(f"[1,{rank}]")]
            assert own[:3] == [name, "7", "given"]
            busy.append(sum(map(float, re.findall("m([0-9.]+)s", own[3]))))
        bindings = (out / "stderr").read_text()
        for rank, name in enumerate(names):
            assert re.search(rf"\[{name}:[0-9]+\] MCW rank {rank} bound to .*core", bindings)
        # What each rank leaves comes back, and the CPU time is that of both.
        assert (out / names[0]).read_text() == f"{names[0]}\n"
        assert (tmp_path / "work-1/r0" / names[1]).read_text() == f"{names[1]}\n"
        assert min(busy) > 0.05 and finished.outcome.cpu_s > 0.98 * sum(busy)


@needs_mpi
def test_a_host_without_open_mpi_is_one_line(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi_hosts, "GRACE_S", 0.5)
    second = hosts.servers[1]
    there = ["nsenter", f"--target={second.process.pid}", "--mount"]
    subprocess.run([*there, "mount", "--bind", "/dev/null", "/usr/bin/orted"], check=True)
    says = f"no ranks on {second.address}.*orted"
    try:
        with (
            machine_on(hosts, tmp_path) as machine,
            pytest.raises(MachineLostError, match=says),
        ):
            ranks(machine, tmp_path, "true", "r0")
    finally:
        subprocess.run([*there, "umount", "/usr/bin/orted"], check=True)


@needs_mpi
def test_a_host_that_is_lost_ends_the_command_everywhere(hosts: Hosts, tmp_path: Path) -> None:
    with machine_on(hosts, tmp_path) as machine:
        second = hosts.servers[1]
        cut = threading.Timer(1, second.signal, [signal.SIGKILL])
        cut.start()
        with pytest.raises(MachineLostError):
            ranks(machine, tmp_path, "exec sleep 86384", "r0")
        cut.join()
    assert eventually(lambda: not processes_naming("sleep 86384"))


@needs_mpi
@pytest.mark.slow
def test_nothing_is_left_on_hosts_when_vtax_is_killed(
    hosts: Hosts, tmp_path: Path, environment: dict[str, str]
) -> None:
    argv = ["compare", "--in", hosts.spec, "--baseline", "none", "--no-control", "--reps", "1000"]
    mpirun = ["mpirun", "--allow-run-as-root", "-np", "2", "sleep", "0.0385"]
    line = command(*argv, "--out", str(tmp_path / "runs"), "--", *mpirun)
    process = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL)
    saved = lambda: any(  # noqa: E731
        path.stat().st_size for path in (tmp_path / "runs").glob("*/samples.jsonl")
    )
    try:
        assert eventually(saved, within_s=60)
    finally:
        process.kill()
        process.wait()
    assert eventually(lambda: not hosts.left() and not processes_naming("sleep 0.0385"))


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("ssh:a+b", "several hosts, but no mpi=on"),
        ("ssh:a+b,mpi=off", "several hosts, but no mpi=on"),
        ("ssh:a+b+a,mpi=on", "a host twice"),
        ("ssh:a+,mpi=on", "is not"),
        ("ssh:a+-v,mpi=on", "is not"),
    ],
)
def test_hosts_that_are_refused(spec: str, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        build(spec)


def test_one_host_or_node_needs_nothing_for_it() -> None:
    assert build("ssh:a,mpi=on") == build("ssh:a")
    assert build("slurm:p,mpi=on") == build("slurm:p")
    assert Nodes in build("slurm:p,nodes=2").offered()
    assert build("slurm:p,nodes=2,mpi=on").offered() == {Files}
