"""Containers: their limits, images and faults, and that they leave nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from command_line import command, one_line, run
from process_watch import ended_while_it_saves, eventually, processes_naming
from tested_machines import GUEST_ENVIRONMENT, HUNGRY, checked
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.environments import Environment, build
from vtax.environments.capabilities import RecordOutside
from vtax.environments.machine import Machine, MachineLostError
from vtax.workloads.outcomes import require_success

Start = Callable[[str | Environment], Machine]


def podman(*argv: str, stdin: bytes | None = None) -> str:
    done = subprocess.run(["podman", *argv], input=stdin, capture_output=True, check=True)
    return done.stdout.decode()


def containers_of(pid: int) -> str:
    return podman("ps", "--all", "--quiet", "--filter", f"name=^vtax-{pid}-")


@pytest.fixture
def image(tmp_path: Path) -> Iterator[str]:
    """An image with busybox alone, made without a registry."""
    checked("container")
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("no busybox: apt-get install busybox-static")
    archive = tmp_path / "image.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(busybox, "bin/busybox")
        for applet in ("sh", "cat", "ls", "sleep"):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    name = f"localhost/vtax-test-{os.getpid()}"
    podman("import", str(archive), name)
    yield name
    podman("rmi", "--force", name)


def test_limits_are_set_and_seen(start: Start) -> None:
    machine = start("container:cpus=1,mem=256M")
    if machine.launch.notes:
        pytest.skip(" ".join(machine.launch.notes))
    assert machine.facts["cgroup"]["memory_limit_bytes"] == 256 << 20
    assert len(machine.facts["affinity"]) == 1
    assert machine.facts["kernel"]["release"] == os.uname().release


def test_a_recorder_outside_finds_the_containers_processes(start: Start) -> None:
    machine = start("container")
    outside = machine.offer(RecordOutside)
    assert outside is not None
    (process,) = outside.target["processes"]
    line = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ")
    assert b"vtax-agent serve" in line


def test_over_its_memory_limit_the_command_is_killed_and_the_container_goes_on(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    machine = start("container:cpus=1,mem=256M")
    if machine.launch.notes:
        pytest.skip(" ".join(machine.launch.notes))
    finished = machine.run(["python3", "-c", HUNGRY], GUEST_ENVIRONMENT, "r0", 60)
    with pytest.raises(VtaxError, match=r"killed by SIGKILL \(as by a memory limit\)"):
        require_success("python3", finished.outcome, Exchange(tmp_path / "work0", "r0"))
    assert machine.run(["true"], GUEST_ENVIRONMENT, "r1", 60).outcome.exit_code == 0
    # The engine's own note must not end up in the user's folder.
    assert list(here.iterdir()) == []


def test_a_container_that_is_killed_as_a_whole_names_its_limit(
    start: Start, tmp_path: Path
) -> None:
    machine = start("container:mem=256M")
    outside = machine.offer(RecordOutside)
    assert outside is not None
    script = "touch running; exec sleep 86366"
    killed: list[bool] = []

    def kill_when_it_runs() -> None:
        killed.append(eventually((tmp_path / "work0/r0/running").exists))
        os.kill(*outside.target["processes"], signal.SIGKILL)

    threading.Thread(target=kill_when_it_runs, daemon=True).start()
    with pytest.raises(MachineLostError, match="killed, as by its memory limit of 256 MiB"):
        machine.run(["/bin/sh", "-c", script], GUEST_ENVIRONMENT, "r0")
    assert killed == [True]
    assert eventually(lambda: not processes_naming("sleep 86366"))
    assert eventually(lambda: not containers_of(os.getpid()))


def test_an_image_has_its_own_tree_and_gets_what_is_pushed(
    image: str, start: Start, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.write_text("pushed\n")
    machine = start(build(f"container:image={image}").with_pushed((data,)))
    machine.run(["cat", str(data), "/bin/cat-is-here"], GUEST_ENVIRONMENT, "r0", 30)
    assert (tmp_path / "work0/r0/stdout").read_text() == "pushed\n"
    machine.run(["ls", "/"], GUEST_ENVIRONMENT, "r1", 30)
    assert "usr" not in (tmp_path / "work0/r1/stdout").read_text().split()


def test_an_image_that_is_not_here_is_one_line(tmp_path: Path, environment: dict[str, str]) -> None:
    checked("container")
    spec = "container:image=localhost/vtax-no-such-image"
    done = run(environment, "compare", "--in", spec, "--out", str(tmp_path), "--", "true")
    assert "podman pull localhost/vtax-no-such-image" in one_line(done, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_container_is_left_when_vtax_is_ended(
    tmp_path: Path, environment: dict[str, str], number: int
) -> None:
    checked("container")
    seconds = f"0.0{70000 + number}"
    argv = ("compare", "--in", "container", "--reps", "1000", "--out", str(tmp_path))
    with ended_while_it_saves(
        command(*argv, "--", "sleep", seconds), tmp_path, environment, number
    ) as process:
        assert containers_of(process.pid)
    # Where podman loses the end of its input, the agent ends with its lease.
    assert eventually(lambda: not containers_of(process.pid), within_s=60)
    assert eventually(lambda: not processes_naming(str(tmp_path)))
    assert not processes_naming(f"sleep {seconds}")


def test_crun_on_mixed_control_groups_is_explained(start: Start) -> None:
    if not Path("/sys/fs/cgroup/unified").exists() or not shutil.which("crun"):
        pytest.skip("crun runs here: control groups are of one version, or there is no crun")
    with pytest.raises(MachineLostError, match="cgroups in hybrid mode not supported"):
        start("container:runtime=crun")


@pytest.mark.parametrize(
    "spec",
    [
        "container:engine=lxc",
        "container:engine=docker",
        "container:runtime=runsc",
        "container:network=maybe",
        "container:image=--privileged",
        "container:mem=1k",
        "container:cpus=0",
        "container:debian",
    ],
)
def test_specs_that_are_refused(spec: str) -> None:
    with pytest.raises(MisuseError):
        build(spec)
