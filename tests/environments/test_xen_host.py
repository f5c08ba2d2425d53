"""A domU on a real Xen host over ssh, which here is an emulated dom0 with Debian's tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from command_line import command
from process_watch import eventually
from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.core.errors import MisuseError
from vtax.environments import build
from vtax.environments.base import allowed_cpus
from vtax.environments.lab.tree import ROOT
from vtax.environments.machine_command import MachineCommand
from xen_host import XenHost, xen_host


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("xen:host=node7", "xen: host=node7 is not ssh:root@HOST"),
        ("xen:host=ssh:n7,domain=dom0", "dom0 is ssh:n7"),
        ("xen:host=ssh:n7,domain=native", "native is ssh:n7, booted without Xen"),
        ("xen:host=ssh:n7,guests=2", "guests= is for the emulated machine"),
        ("xen:host=ssh:-x", "'-x' is not [user@]host[:port]"),
        ("xen:config=c", "config= is for host="),
    ],
)
def test_what_does_not_fit_is_named(spec: str, says: str) -> None:
    with pytest.raises(MisuseError) as caught:
        build(spec)
    assert says in f"{caught.value}"


@pytest.mark.slow
def test_a_domu_of_a_host_is_what_was_asked_for_and_leaves_nothing(tmp_path: Path) -> None:
    checked("xen")
    with xen_host(tmp_path) as host:
        (tmp_path / "own/a").mkdir(parents=True)
        (tmp_path / "own/a/given").write_text("given\n")
        environment = build(f"{host.spec},mem=200M,weight=512,cap=80")
        script = (
            "cat given; cat /sys/hypervisor/type; nproc; echo made > made; ls -A /root /etc/ssh"
        )
        script += "; touch /run/vtax/written; cat /etc/shadow | wc -c; mount | grep '^host'"
        with environment.start(tmp_path / "own", allowed_cpus()) as machine:  # type: ignore[attr-defined]
            assert machine.facts["memory"]["total_bytes"] < 200 << 20
            asked = MachineCommand(["sh", "-c", script], GUEST_ENVIRONMENT, "a", 90)
            machine.execute(asked)
            said = (tmp_path / "own/a/stdout").read_text()
            assert said == "given\nxen\n1\n"
            assert (tmp_path / "own/a/made").read_text() == "made\n"
            name = next(line for line in host.xl("list").splitlines() if "vtax-" in line).split()[0]
            rows = [line.split() for line in host.xl("sched-credit2").splitlines()]
            assert [row[2:] for row in rows if row[0] == name] == [["512", "80"]]
        assert eventually(lambda: "vtax-" not in host.xl("list"))
        assert eventually(lambda: "vtax-" not in files(host))


@pytest.mark.slow
def test_a_killed_vtax_leaves_nothing_on_the_host(tmp_path: Path) -> None:
    checked("xen")
    with xen_host(tmp_path) as host:
        options = ("--in", f"{host.spec},mem=200M", "--baseline", "none")
        argv = command("compare", *options, "--", "sleep", "100")
        started = subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.DEVNULL)
        assert eventually(lambda: "vtax-" in host.xl("list"), 90)
        started.kill()
        started.wait()
        assert eventually(lambda: "vtax-" not in host.xl("list"), 60)
        assert eventually(lambda: "vtax-" not in files(host), 20)


def files(host: XenHost) -> str:
    return host.dom0.must(["busybox", "ls", f"{ROOT}/tmp"], "look")
