"""Swap that vtax makes: it is used, only by the machine, and gone whatever ends vtax."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from command_line import command, one_line, run
from process_watch import ended, eventually
from tested_machines import GUEST_ENVIRONMENT, checked
from vtax import cache
from vtax.environments import build, kvm_probe, qemu, swap
from vtax.environments.base import Allocation, Environment, ProcessEnvironment
from vtax.environments.qemu import Qemu
from vtax.errors import MisuseError, VtaxError
from vtax.formats.exchange import Exchange

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may turn swap on")
GUESTS = ("uml:mem=128M,swap=64M", "qemu:accel=tcg,mem=224M,swap=64M")
DOUBLED = "native:mem=64M,swap=64M"


def devices() -> list[str]:
    """The swap devices of this machine that are in the tests' cache."""
    lines = Path("/proc/swaps").read_text().splitlines()[1:]
    own = str(cache.folder("swap"))
    return [line for line in lines if line.startswith(own)]


def launched(spec: str, work: Path) -> list[str]:
    environment = build(spec)
    assert isinstance(environment, ProcessEnvironment)
    return list(environment.launch(Allocation(work, [0], 9)).argv)


def test_sizes_are_whole_mebibytes() -> None:
    assert swap.size("native", {"swap": "1G"}) == 1 << 30
    assert swap.size("native", {"swap": "1500k"}) == 1 << 20
    assert swap.size("native", {}) == 0


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("native:mem=64M,swap=0", "not between"),
        ("native:mem=64M,swap=1k", "is not from 1 MiB"),
        ("native:swap=1G", "swap= without mem="),
        ("uml:swap=much", "is not a size"),
        ("container:swap=1G", "unknown key"),
    ],
)
def test_what_cannot_be_is_refused(spec: str, said: str) -> None:
    with pytest.raises(MisuseError, match=said):
        build(spec)


def test_the_agent_makes_the_file_of_this_machine(tmp_path: Path) -> None:
    argv = launched(DOUBLED, tmp_path)
    assert argv[argv.index("--swap") + 1] == str(64 << 20)
    assert argv[argv.index("--swap-folder") + 1] == str(swap.folder())
    assert "--swap" not in launched("native:mem=64M", tmp_path)


def test_no_permission_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(VtaxError, match=r"needs root.*run vtax as root"):
        build(DOUBLED).check()


@needs_root
def test_no_room_is_said_before_anything_starts() -> None:
    with pytest.raises(VtaxError, match=r"free; free space there, or set XDG_CACHE_HOME"):
        build("native:mem=64M,swap=512G").check()


def test_a_guest_needs_the_hosts_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name, path=None: None)
    with pytest.raises(VtaxError, match="mkswap is missing"):
        swap.check_guest()


def test_the_probe_of_kvm_has_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """It boots in a folder of its own, in which no disk was made."""
    probed: list[Qemu] = []
    monkeypatch.setattr(qemu, "kvm_obstacle", lambda: None)
    monkeypatch.setattr(
        kvm_probe, "probe", lambda environment, _cpus, _key: probed.append(environment)
    )
    environment = build("qemu:swap=64M")
    assert isinstance(environment, Qemu)
    assert environment._choose()[0] == "kvm"
    assert [each.swap_bytes for each in probed] == [0]


def inside(environment: Environment, work: Path, *argv: str) -> str:
    """What a program prints in a machine of this environment."""
    machine = environment.start(work, [max(os.sched_getaffinity(0))])
    try:
        assert list(work.iterdir()) == []
        exchange = Exchange(work, "r")
        exchange.create({})
        machine.run(argv, GUEST_ENVIRONMENT, "r", 60)
        return exchange.read_text("stdout")
    finally:
        machine.close()


@pytest.mark.slow
@pytest.mark.parametrize("spec", GUESTS)
@pytest.mark.usefixtures("swap_alone")
def test_a_guest_swaps_to_a_disk_without_a_name(spec: str, tmp_path: Path) -> None:
    before = Path("/proc/swaps").read_text()
    (line,) = inside(checked(spec), tmp_path, "cat", "/proc/swaps").splitlines()[1:]
    name, kind, size, *_ = line.split()
    assert name in ("/dev/ubda", "/dev/vda") and kind == "partition"
    assert int(size) == (64 << 10) - 4
    assert Path("/proc/swaps").read_text() == before


@pytest.mark.slow
@needs_root
@pytest.mark.usefixtures("swap_alone")
def test_this_machines_file_is_there_as_long_as_its_machine(tmp_path: Path) -> None:
    text = inside(checked(DOUBLED), tmp_path, "cat", "/proc/swaps")
    assert str(swap.folder()) in text
    assert eventually(lambda: devices() == [])
    assert list(swap.folder().iterdir()) == []


@pytest.mark.slow
@needs_root
@pytest.mark.skipif(not Path("/dev/shm").is_mount(), reason="no tmpfs there")
@pytest.mark.usefixtures("swap_alone")
def test_a_file_system_that_holds_no_swap_file_is_named(
    environment: dict[str, str], tmp_path: Path
) -> None:
    folder = Path("/dev/shm") / f"vtax-test-{os.getpid()}"
    folder.mkdir()
    try:
        own = environment | {"XDG_CACHE_HOME": str(folder)}
        sizes = ("--sizes", "100,200", "--runs", "1", "--quiet", "--out", str(tmp_path))
        done = run(own, "memory", "--in", DOUBLED, *sizes)
        said = one_line(done, 1)
        assert "cannot hold one" in said and "XDG_CACHE_HOME" in said
        assert list((folder / "vtax" / "swap").iterdir()) == []
    finally:
        shutil.rmtree(folder)
    assert list(tmp_path.iterdir()) == []


def begun(environment: dict[str, str], out: Path) -> subprocess.Popen[bytes]:
    """A `vtax memory` whose program is being swapped out."""
    argv = command(
        "memory", "--in", DOUBLED, "--sizes", "1700,1800", "--runs", "500", "--quiet",
        "--out", str(out),
    )  # fmt: skip
    process = subprocess.Popen(
        argv,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A shell that starts the tests with `&` has them ignore Ctrl-C, and vtax would inherit it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    if not eventually(lambda: any(int(line.split()[3]) > 1000 for line in devices()), 30):
        process.kill()
        raise AssertionError("nothing was swapped out")
    return process


def owner() -> str:
    """The name of what the agent has that made the swap file: the file's, and its groups'."""
    (name,) = (Path(line.split()[0]).stem for line in devices())
    return name


def groups(name: str) -> list[Path]:
    return list(Path("/sys/fs/cgroup").rglob(name))


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.usefixtures("swap_alone")
def test_nothing_is_left_when_vtax_is_ended(
    environment: dict[str, str],
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    process = begun(environment, tmp_path)
    with ended(process):
        name = owner()
        assert groups(name)
        process.send_signal(number)
        code = process.wait(30)
    assert code == (130 if number is signal.SIGINT else -signal.SIGKILL)
    assert eventually(lambda: devices() == [] and not groups(name))
    assert list(swap.folder().iterdir()) == []


def is_dead(pid: int) -> bool:
    """Whether it is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.slow
@needs_root
@pytest.mark.usefixtures("swap_alone")
def test_what_a_killed_agent_left_is_found(environment: dict[str, str], tmp_path: Path) -> None:
    """vtax and its agent die at once, as by the OOM killer: nothing could clean up."""
    foreign = swap.folder() / "vtax-1-1-1.swap"
    foreign.write_bytes(b"of another PID namespace")
    process = begun(environment, tmp_path)
    with ended(process):
        name = owner()
        agent = int(name.split("-")[1])
        os.kill(agent, signal.SIGSTOP)
        process.kill()
        process.wait()
        os.kill(agent, signal.SIGKILL)
    assert eventually(lambda: is_dead(agent))
    assert len(devices()) == 1
    done = run(environment, "doctor", "--clean")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("removed ") and not done.stdout.startswith("removed 0")
    assert devices() == [] and not groups(name)
    assert list(swap.folder().iterdir()) == [foreign]
    foreign.unlink()
