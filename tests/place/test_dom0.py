"""dom0 as the service of a domU: it is watched and slowed as a whole, in its emulated host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tested_machines import checked
from vtax.environments import build
from vtax.environments.base import MachineLike, allowed_cpus
from vtax.environments.capabilities import Link
from vtax.environments.xen import dom0, parts
from vtax.environments.xen.machine import XenMachine
from vtax.place.host_program import HostAround
from vtax.place.service_domain import Service, look, slowed, watched

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a link"),
]
SPEC = "xen:net=tap,slow-cores=on"
LONG = ("emulator", "hog")
DATAGRAMS = "for i in $(seq 100); do echo x > /dev/udp/$1/9; sleep 0.01; done"


@pytest.fixture(scope="module")
def domu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[XenMachine]:
    environment = checked(SPEC)
    work = tmp_path_factory.mktemp("work")
    with environment.start(work, allowed_cpus()) as machine:
        assert isinstance(machine, XenMachine)
        yield machine


def around(machine: MachineLike) -> tuple[Link, HostAround]:
    link = machine.offer(Link)
    assert link is not None and link.host is not None
    return link, HostAround(link.host, link.host_program)


def cap(machine: XenMachine) -> str:
    script = f"{parts.VARIABLES}; xl sched-credit2 -d 0 | tail -n 1"
    return machine.host.must(dom0.shell(script), "read the cap").split()[-1]


def test_packets_of_a_domu_are_work_of_dom0(domu: XenMachine) -> None:
    link, host = around(domu)
    service = Service(None, around=host)
    service.find(link.pids)
    assert {"dom0", "xen"} <= {each.role for each in service.threads}
    before = link.counters()
    with watched((), host) as found:
        subprocess.run(link.client(["bash", "-c", DATAGRAMS, "bash", link.address]), check=True)
    after = link.counters()
    assert after.received.packets - before.received.packets >= 100
    (window,) = found
    (cpu,) = window.cpus
    assert cpu.busy_s is not None and 0 < cpu.busy_s <= window.window_s + 0.1
    netback = [each for each in window.threads if each.name.startswith("vif")]
    # It is woken for packets, several at a time.
    assert sum(each.wakeups or 0 for each in netback) >= 10


@pytest.mark.parametrize(
    "backend", ["xen-cap", *(pytest.param(name, marks=pytest.mark.long) for name in LONG)]
)
def test_dom0_is_slow_within_the_block_alone(domu: XenMachine, backend: str) -> None:
    link, host = around(domu)
    service = Service(None, around=host)
    service.find(link.pids)
    assert cap(domu) == "0"
    with slowed(backend, 40, service.alive(), None, host) as held:
        assert held.obtained_percent is not None and held.obtained_percent < 80
        assert cap(domu) == ("40" if backend == "xen-cap" else "0")
    assert cap(domu) == "0"


@pytest.mark.long
def test_a_killed_program_leaves_dom0_as_it_was(domu: XenMachine) -> None:
    link, host = around(domu)
    service = Service(None, around=host)
    service.find(link.pids)
    (tid,) = service.alive()
    line = ("slow", "--backend", "xen-cap", "--percent", "40", "--tid", str(tid))
    running = host.start(*line)
    assert b"xen-cap" in running.first_line(60)
    assert cap(domu) == "40"
    domu.host.run(dom0.shell("kill -KILL $(pidof vtax-host)"))
    running = host.start("sweep", "--json")
    assert b"restored" in running.rest(60)
    assert cap(domu) == "0"


def test_a_host_without_slow_cores_has_no_emulator() -> None:
    assert build("xen:net=tap").slowed_by() == {"xen-cap", "hog"}
    assert build("xen:slow-cores=on").slowed_by() is None


@pytest.mark.long
def test_several_domus_have_one_service(tmp_path: Path) -> None:
    with checked("xen:guests=2,pcpus=1,net=tap,mem=192M").start(
        tmp_path, allowed_cpus()
    ) as machine:
        link, host = around(machine)
        before = link.counters()
        for address in (link.address, *link.others):
            subprocess.run(link.client(["bash", "-c", DATAGRAMS, "bash", address]), check=True)
        # Each datagram is answered: nobody listens.
        assert link.counters().sent.packets - before.sent.packets >= 10
        names = {each.name for each in look((), on=host).threads}
        assert {"vif1.0-q0-guest-rx", "vif2.0-q0-guest-rx"} <= names
