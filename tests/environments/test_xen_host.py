"""A domU on a real Xen host over ssh, which here is an emulated dom0 with Debian's tree."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import command
from process_watch import ended, eventually
from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.core.errors import MisuseError
from vtax.environments import build
from vtax.environments.base import allowed_cpus
from vtax.environments.lab.tree import ROOT
from vtax.environments.machine_command import MachineCommand
from vtax.environments.xen import dom0
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


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[XenHost]:
    checked("xen")
    with xen_host(tmp_path_factory.mktemp("host")) as running:
        secrets = f"mkdir -p {ROOT}/home; echo secret | tee {ROOT}/etc/shadow {ROOT}/home/key"
        running.dom0.must(dom0.shell(secrets), "have secrets")
        yield running


@pytest.mark.slow
@pytest.mark.long
def test_a_domu_of_a_host_is_what_was_asked_for(host: XenHost, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/given").write_text("given\n")
    environment = build(f"{host.spec},mem=200M,weight=512,cap=80")
    script = "cat given; cat /sys/hypervisor/type; nproc; echo made > made; cat /etc/shadow"
    script += "; ls -A /home"
    with environment.start(tmp_path, allowed_cpus()) as machine:  # type: ignore[attr-defined]
        assert machine.facts["memory"]["total_bytes"] < 200 << 20
        machine.execute(MachineCommand(["sh", "-c", script], GUEST_ENVIRONMENT, "a", 90))
        assert (tmp_path / "a/stdout").read_text() == "given\nxen\n1\n"
        assert (tmp_path / "a/made").read_text() == "made\n"
        name = next(line for line in host.xl("list").splitlines() if "vtax-" in line).split()[0]
        rows = [line.split() for line in host.xl("sched-credit2").splitlines()]
        assert [row[2:] for row in rows if row[0] == name] == [["512", "80"]]
    assert eventually(lambda: not left(host), 60)


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_vtax_leaves_nothing_on_the_host(host: XenHost, tmp_path: Path) -> None:
    options = ("--in", f"{host.spec},mem=200M", "--baseline", "none")
    argv = command("compare", *options, "--", "sleep", "100")
    with ended(subprocess.Popen(argv, cwd=tmp_path)) as started:
        assert eventually(lambda: started.poll() is not None or "vtax-" in host.xl("list"), 240)
        assert started.poll() is None
    assert eventually(lambda: not left(host), 60)


def left(host: XenHost) -> bool:
    """Whether there is still a domU, or the folder of one: vtax, and 12 digits."""
    # Files of this machine may come and go there meanwhile.
    made = host.dom0.must(dom0.shell(f"ls {ROOT}/tmp 2> /dev/null || true"), "look")
    return re.search(r"^vtax-[0-9a-f]{12}\b", made + host.xl("list"), re.MULTILINE) is not None
