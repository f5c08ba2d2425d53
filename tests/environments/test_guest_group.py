"""`guests=N`: like guests that run side by side on this machine, as one machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from process_watch import eventually
from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.environments import build, guest_group
from vtax.environments.agent import Finished
from vtax.environments.base import MachineLike, host_memory_bytes
from vtax.environments.capabilities import (
    Files,
    GuestPage,
    Guests,
    Link,
    Pause,
    RecordInside,
    RecordOutside,
)
from vtax.environments.guest_group import GuestGroup
from vtax.environments.machine_command import MachineCommand
from vtax.workloads.loads import ports

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make network namespaces")
TRIPLE = "uml:guests=3,mem=128M"
PYTHON = "/usr/bin/python3"
ANSWER = (
    "import socket,sys; s=socket.create_server(('', int(sys.argv[1]))); print('up', flush=True)"
)
ANSWER += "\nwhile 1: s.accept()[0].sendall(sys.argv[2].encode())"
ASK = "import socket,sys; s=socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)"
ASK += "\nprint(s.recv(99).decode())"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("uml:guests=0", "guests=0 must be a whole number from 1 to 8"),
        ("uml:guests=9", "from 1 to 8"),
        ("qemu:guests=two", "from 1 to 8"),
        ("qemu:guests=2,net=slirp", "net=slirp is for one guest"),
        (f"uml:guests=2,mem={host_memory_bytes() * 2 // 3}", "need more memory than the host's"),
        ("container:guests=2", "unknown key"),
    ],
)
def test_what_cannot_be_is_refused(spec: str, said: str) -> None:
    with pytest.raises(MisuseError, match=said):
        build(spec)


def test_one_guest_offers_what_several_do_not() -> None:
    for spec in ("uml", "qemu"):
        alone, several = build(spec).offered(), build(f"{spec}:guests=2").offered()
        assert Guests not in alone and RecordInside in alone
        assert several == {Files, GuestPage, Guests, Pause, RecordOutside}
    assert Link in build("uml:guests=2,net=vde").offered()


def test_a_description_says_how_many() -> None:
    assert build("uml:guests=3").description({}).endswith(", 3 guests")
    assert "guests" not in build("uml:guests=1").description({})


@given(
    st.lists(st.integers(0, 63), min_size=1, unique=True),
    st.integers(1, guest_group.MOST),
    st.integers(1, 8),
)
def test_guests_have_cpus_of_their_own_where_there_are_enough(
    cpus: Sequence[int], guests: int, smp: int
) -> None:
    shares = [guest_group._share(cpus, number, smp) for number in range(guests)]
    assert all(0 < len(each) <= smp and set(each) <= set(cpus) for each in shares)
    if guests * smp <= len(cpus):
        used = [cpu for each in shares for cpu in each]
        assert len(used) == len(set(used)) == guests * smp


@contextmanager
def started(spec: str, work: Path) -> Iterator[GuestGroup]:
    work.mkdir()
    environment = checked(spec)
    machine: MachineLike = environment.start(work, sorted(os.sched_getaffinity(0)))
    try:
        assert isinstance(machine, GuestGroup)
        yield machine
    finally:
        machine.close()


def everywhere(
    machine: GuestGroup, work: Path, folder: str, argv: Sequence[str], *, leave: bool = False
) -> Sequence[Finished]:
    """Run a command in all guests, which have a file `given` beside it."""
    Exchange(work, folder).create({"given": b"the same"})
    found = machine.offer(Guests)
    assert found is not None
    return found.run(MachineCommand(argv, GUEST_ENVIRONMENT, folder, 60.0, leave=leave))


@pytest.mark.slow
def test_a_command_runs_in_each_with_its_files_and_its_swap(tmp_path: Path) -> None:
    work = tmp_path / "work"
    with started(f"{TRIPLE},swap=64M", work) as machine:
        script = "cat given; basename $PWD; ls ..; tail -n +2 /proc/swaps | wc -l"
        done = everywhere(machine, work, "a", ["/bin/sh", "-c", script])
        assert [each.outcome.exit_code for each in done] == [0, 0, 0]
        for number in range(3):
            said = Exchange(work, f"a-{number}").read_text("stdout").removeprefix("the same")
            own, *seen, swaps = said.split()
            assert (own, swaps) == (f"a-{number}", "1")
            # A guest sees no other guest's folder.
            assert not {f"a-{other}" for other in range(3) if other != number} & set(seen)
        alone = machine.run(["/bin/sh", "-c", "exit 3"], GUEST_ENVIRONMENT, "a")
        assert alone.outcome.exit_code == 3
        pids = [guest.pid for guest in machine.guests]
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


@pytest.mark.slow
def test_a_guest_that_replaces_its_folder_gives_nothing_away(tmp_path: Path) -> None:
    work = tmp_path / "work"
    with started("uml:guests=2,mem=128M", work) as machine:
        script = 'here=$(basename "$PWD"); cd ..; mv "$here" away; ln -s /etc "$here"'
        everywhere(machine, work, "a", ["/bin/sh", "-c", script])
        for number in range(2):
            with pytest.raises(VtaxError, match="removed or replaced"):
                Exchange(work, f"a-{number}").read_text("hostname")


@pytest.mark.slow
@needs_root
@pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"no {PYTHON}")
@pytest.mark.parametrize(
    "spec", ["uml:guests=3,mem=128M,net=vde", "qemu:accel=tcg,guests=2,mem=256M,net=tap"]
)
def test_guests_with_one_link_each_have_an_address(spec: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    with started(spec, work) as machine:
        found = machine.offer(Link)
        assert found is not None and len(found.others) == len(machine.guests) - 1
        script = f'{PYTHON} -c "{ANSWER}" {ports.HTTP} "$(basename "$PWD")" >up & '
        script += "while ! test -s up; do sleep 0.1; done"
        done = everywhere(machine, work, "server", ["/bin/bash", "-c", script], leave=True)
        assert [each.outcome.exit_code for each in done] == [0] * len(machine.guests)
        for number, address in enumerate((found.address, *found.others)):
            argv = [PYTHON, "-c", ASK, address, str(ports.HTTP)]
            answer = subprocess.run(found.client(argv), check=True, capture_output=True, timeout=60)
            assert answer.stdout.decode().strip() == f"server-{number}"
        # The guests' processes, and the switch's, if there is one.
        assert len(found.pids) == len(machine.guests) + ("vde" in spec)
        assert all(Path(f"/proc/{pid}").exists() for pid in found.pids)
    assert not any(Path(f"/proc/{pid}").exists() for pid in found.pids)


@pytest.mark.slow
def test_one_that_does_not_boot_ends_all(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    # A file is where the last guest's folder would be.
    work.with_name("work-2").touch()
    environment = checked(TRIPLE)
    with pytest.raises(OSError, match="exists"):
        environment.start(work, sorted(os.sched_getaffinity(0)))
    held = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True)
    assert held.stdout == ""
