"""gVisor: its own facts, its limits and faults, and that it leaves nothing behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import command
from process_watch import ended_while_it_saves, eventually, processes_naming
from tested_machines import GUEST_ENVIRONMENT, HUNGRY, checked
from vtax import workloads
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.environments import Environment, build
from vtax.environments.gvisor import CGROUP_PREFIX
from vtax.environments.machine import Machine, MachineLostError
from vtax.workloads.base import MachineShape

Start = Callable[[str | Environment], Machine]


def groups_of(pid: int) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"**/{CGROUP_PREFIX}{pid}-*"))


def test_facts_are_its_own_and_not_the_hosts(start: Start) -> None:
    facts = start("gvisor:cpus=1,mem=256M").facts
    assert facts["virtualization"] == {
        "kind": "gvisor",
        "hypervisor_vendor": None,
        "source": "/proc/version",
    }
    assert facts["kernel"]["release"] not in (None, os.uname().release)
    # gVisor's /proc/stat has a column for stolen time, which nothing fills.
    assert facts["clock"]["steal_clock"] is False
    assert facts["cpu"]["online"] == 1
    assert facts["memory"]["total_bytes"] == 256 << 20


def test_over_its_memory_limit_it_is_killed_as_a_whole(start: Start) -> None:
    machine = start("gvisor:mem=256M")
    with pytest.raises(MachineLostError, match="killed, as by its memory limit of 256 MiB"):
        machine.run(["python3", "-c", HUNGRY], GUEST_ENVIRONMENT, "r0", 60)
    assert eventually(lambda: not groups_of(os.getpid()))


def test_hpcc_of_one_process_runs_in_it(start: Start, tmp_path: Path) -> None:
    machine = start("gvisor:cpus=1,mem=512M")
    workload = workloads.parse(("hpcc", "--preset", "tiny"), ())
    made = workload.command(MachineShape(1, 512 << 20))
    exchange = Exchange(tmp_path / "work0", "r0")
    exchange.create(made.files)
    finished = machine.run(
        made.argv, {**GUEST_ENVIRONMENT, **made.environment}, "r0", timeout_s=100
    )
    names = {metric.name for metric in workload.metrics(finished.outcome, exchange)}
    assert "wall_s" in names and len(names) > 10


def processes_in(group: Path) -> str:
    try:
        return (group / "cgroup.procs").read_text()
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_sandbox_is_left_when_vtax_is_ended(
    tmp_path: Path, environment: dict[str, str], start: Start, number: int
) -> None:
    checked("gvisor")
    argv = ("compare", "--in", "gvisor", "--reps", "1000", "--out", str(tmp_path))
    with ended_while_it_saves(
        command(*argv, "--", "sleep", "0.07"), tmp_path, environment, number
    ) as process:
        assert groups_of(process.pid)
    assert eventually(lambda: not processes_naming(f"{CGROUP_PREFIX}{process.pid}-"))
    # The box is killed with vtax, and runsc in it: the next start removes the empty group. A group
    # that still has a dying process is not empty.
    assert eventually(lambda: not any(map(processes_in, groups_of(process.pid))))
    start("gvisor")
    assert not groups_of(process.pid)


def test_systrap_of_an_old_runsc_is_refused_with_the_remedy() -> None:
    checked("gvisor")
    environment = build("gvisor:platform=systrap")
    try:
        environment.check()
    except VtaxError as error:
        assert "too old for platform=systrap" in str(error) and "newer runsc" in str(error)
    else:
        assert "systrap" in environment.description({})


@pytest.mark.parametrize("spec", ["gvisor:platform=xen", "gvisor:mem=1M", "gvisor:smp=1"])
def test_specs_that_are_refused(spec: str) -> None:
    with pytest.raises(MisuseError):
        build(spec)
