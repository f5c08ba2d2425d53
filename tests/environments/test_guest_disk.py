"""`disk=` and `iops=`: a disk of its own for a guest's programs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.environments import build, guest_disk
from vtax.environments.base import Allocation, MachineLike, allowed_cpus
from vtax.environments.guest_disk import DataDisk
from vtax.environments.guest_group import Grouped
from vtax.environments.machine import Machine
from vtax.environments.process_environment import ProcessEnvironment
from vtax.environments.qemu import Qemu
from vtax.workloads.loads.base import Load
from vtax.workloads.loads.disk import disk_loads
from vtax.workloads.loads.registry import check
from vtax.workloads.variables import DISK

Begin = Callable[[str], MachineLike]
LIMITED = 100
"""Operations per second."""
WRITES = 150
BURST_S = 0.1
"""QEMU lets as many operations pass at once as its limit allows in this time."""


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("qemu:disk=8M", "disk=8M is not from 16 MiB to 1 TiB"),
        ("qemu:disk=much", "is not a size"),
        ("qemu:iops=100", "iops= without disk=; add disk=1G"),
        ("qemu:disk=1G,iops=0", "iops=0 must be a whole number from 1"),
        ("qemu:disk=1G,iops=fast", "iops=fast must be a whole number"),
        ("uml:disk=1G,iops=100", "unknown key"),
        ("native:disk=1G", "unknown key"),
    ],
)
def test_what_cannot_be_is_refused(spec: str, said: str) -> None:
    with pytest.raises(MisuseError, match=said):
        build(spec)


@given(st.text(max_size=12), st.none() | st.text(max_size=12))
def test_any_values_are_a_disk_or_one_error(size: str, iops: str | None) -> None:
    options = {"disk": size} | ({} if iops is None else {"iops": iops})
    try:
        found = guest_disk.wanted("qemu", options)
    except MisuseError as error:
        assert "\n" not in str(error)
    else:
        assert found.size_bytes >= guest_disk.SMALLEST_FILE_SYSTEM_BYTES
        assert (found.iops is None) == (iops is None)


def qemu_line(spec: str, tmp_path: Path) -> str:
    environment = build(spec)
    assert isinstance(environment, ProcessEnvironment)
    return " ".join(environment.launch(Allocation(tmp_path, [0], 9)).argv)


def test_the_limit_is_qemus(tmp_path: Path) -> None:
    line = qemu_line("qemu:accel=tcg,disk=1G,iops=150", tmp_path)
    assert re.search(r"-drive file=\S*/data\.disk,\S*,throttling\.iops-total=150 ", line)
    assert "throttling" not in qemu_line("qemu:accel=tcg,disk=1G", tmp_path)
    assert "data.disk" not in qemu_line("qemu:accel=tcg", tmp_path)


def test_swap_is_the_first_disk(tmp_path: Path) -> None:
    line = qemu_line("qemu:accel=tcg,disk=1G,swap=64M", tmp_path)
    assert line.index("swap.disk") < line.index("data.disk")
    assert DataDisk(1 << 30).disk("/dev/vdb")[0].use[-2:] == ("/dev/vdb", DISK)


def test_only_a_guest_with_a_disk_loads_a_file_system(tmp_path: Path) -> None:
    assert "ext4.ko" in qemu_line("qemu:accel=tcg,disk=1G", tmp_path)
    without = qemu_line("qemu:accel=tcg,swap=64M", tmp_path)
    assert "virtio_blk.ko" in without and "ext4.ko" not in without and "jbd2.ko" not in without


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def which(name: str, path: str) -> str | None:
        return None if name == "mkfs.ext4" else f"/sbin/{name}"

    monkeypatch.setattr(shutil, "which", which)
    with pytest.raises(VtaxError, match=r"mkfs\.ext4 is missing: .*; install e2fsprogs"):
        DataDisk(1 << 30).check()
    DataDisk().check()


def test_a_disk_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    def start() -> Machine:
        raise AssertionError("it must not start")

    disks = DataDisk(16 << 20).disk("/dev/vda")
    with pytest.raises(VtaxError, match=r"cannot make the disk .*No such file"):
        guest_disk.started(start, "qemu", tmp_path / "gone", disks)
    (tmp_path / guest_disk.FILE).touch()
    with pytest.raises(VtaxError, match=r"cannot make the disk .*File exists"):
        guest_disk.started(start, "qemu", tmp_path, disks)


def test_it_is_in_the_description() -> None:
    limited = build("qemu:accel=tcg,disk=1G,iops=150")
    assert isinstance(limited, Qemu)
    assert ", a disk of 1 GiB of at most 150 operations/s" in limited.description({})
    assert ", a disk of 32 MiB" in build("uml:disk=32M").description({})


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts a machine of an environment, which has `work` as its folder."""
    with ExitStack() as held:

        def one(spec: str) -> MachineLike:
            environment = checked(spec)
            assert isinstance(environment, Grouped)
            (tmp_path / "work").mkdir(mode=0o700)
            cpus = allowed_cpus()[-1:]
            return held.enter_context(environment.start(tmp_path / "work", cpus))

        yield one


def said(machine: MachineLike, work: Path, script: str) -> str:
    Exchange(work, "said").create({})
    machine.run(["sh", "-c", script], GUEST_ENVIRONMENT, "said", 120)
    text = (work / "said/stdout").read_text()
    shutil.rmtree(work / "said")
    return text


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["uml:disk=64M,swap=16M", "qemu:accel=tcg,mem=512M,disk=64M"])
def test_a_guest_has_a_file_system_that_no_other_sees(
    spec: str, begin: Begin, tmp_path: Path
) -> None:
    machine = begin(spec)
    work = tmp_path / "work"
    assert not list(work.glob("*.disk"))
    kind, size = said(machine, work, f"stat -f -c '%T %s*%b' {DISK}").split()
    blocks, count = size.split("*")
    assert kind == "ext2/ext3" and 0.8 < int(blocks) * int(count) / (64 << 20) <= 1
    assert said(machine, work, f"echo kept > {DISK}/file; sync; cat {DISK}/file") == "kept\n"
    assert not Path(DISK).exists()


@pytest.mark.slow
def test_a_limit_holds(begin: Begin, tmp_path: Path) -> None:
    """However fast the host is, the operations take the time that the limit gives them."""
    machine = begin(f"qemu:accel=tcg,mem=512M,disk=64M,iops={LIMITED}")
    write = f"dd if=/dev/zero of={DISK}/file bs=4k count={WRITES} oflag=direct 2>&1"
    found = re.search(r"copied, ([0-9.]+) s", said(machine, tmp_path / "work", write))
    assert found and float(found[1]) > 0.95 * (WRITES / LIMITED - BURST_S)


@pytest.mark.slow
@pytest.mark.parametrize("load", disk_loads(), ids=lambda each: each.name)
def test_loads_work_on_the_disk(load: Load, begin: Begin, tmp_path: Path) -> None:
    try:
        check(load)
    except VtaxError as error:
        pytest.skip(str(error))
    machine = begin("uml:mem=256M,disk=128M")
    command = load.command(2)
    exchange = Exchange(tmp_path / "work", "load")
    exchange.create(command.files)
    done = machine.run(command.argv, GUEST_ENVIRONMENT, "load", command.timeout_s)
    assert done.outcome.exit_code == 0, exchange.read_text("stderr")
    assert load.read(exchange.read_text("stdout")).throughput > 0
    assert {each.name for each in exchange.path.iterdir()} <= {"stdout", "stderr"}
    written = said(machine, tmp_path / "work", "sync; grep ubdb /proc/diskstats").split()[9]
    assert int(written) > 0
