"""Open MPI over guests: ranks are in different guests, and have what the command has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tested_machines import GUEST_ENVIRONMENT
from vtax.core.errors import MisuseError
from vtax.core.formats.exchange import Exchange
from vtax.environments import build
from vtax.environments.capabilities import Guests
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


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a network of guests needs root")
@pytest.mark.skipif(not shutil.which("mpirun"), reason="no Open MPI: apt-get install openmpi-bin")
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
