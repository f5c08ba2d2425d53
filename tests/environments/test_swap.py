"""Swap space that vtax makes: only the machine uses it, and it is gone whatever ends vtax."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from command_line import command, one_line, run
from process_watch import ended, eventually
from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.core.matching import matching
from vtax.environments import build, gvisor, host_swap, kvm_probe, swap
from vtax.environments.base import Allocation, Environment
from vtax.environments.process_environment import ProcessEnvironment
from vtax.environments.qemu import Qemu

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may turn swap on")
GUESTS = (
    "uml:mem=128M,swap=64M",
    "qemu:accel=tcg,mem=224M,swap=64M",
    pytest.param("xen:swap=64M", marks=pytest.mark.long),
)
DOUBLED = "native:mem=64M,swap=64M"
CONTAINED = "container:cpus=1,mem=64M,swap=64M"
SANDBOXED = "gvisor:mem=96M,swap=128M"
COMPRESSED = f"{DOUBLED},swap-in=zram"
ON_THIS_KERNEL = (DOUBLED, CONTAINED, COMPRESSED)
HELD = (*ON_THIS_KERNEL, SANDBOXED)
FILL = """
import sys
x = bytearray(int(sys.argv[1]) << 20)
for at in range(0, len(x), 4096):
    x[at] = 1
print(*(line for line in open("/proc/self/status") if line.startswith("VmSwap")))
"""


@dataclass(frozen=True)
class Device:
    """One of this machine's swap devices that is in the tests' cache."""

    path: Path
    used_kib: int
    owner: str
    """The name that the agent gave it: that of the file or record, and of its groups."""


def devices() -> list[Device]:
    made = {}
    for file in host_swap.folder().iterdir():
        text = file.read_text(errors="replace") if file.suffix == ".zram" else ""
        made[f"/dev/zram{text.split()[0]}" if text else str(file)] = file.stem
    lines = [line.split() for line in Path("/proc/swaps").read_text().splitlines()[1:]]
    return [Device(Path(name), int(used), made[name])
            for name, _, _, used, *_ in lines if name in made]  # fmt: skip


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
        ("native:mem=64M,swap-in=zram", "swap-in= without swap="),
        ("native:mem=64M,swap=64M,swap-in=ram", "is not file or zram"),
        ("uml:swap=much", "is not a size"),
        ("container:swap=1G", "swap= without mem="),
        ("qemu-arm64:swap=1G", "unknown key"),
    ],
)
def test_what_cannot_be_is_refused(spec: str, said: str) -> None:
    with pytest.raises(MisuseError, match=said):
        build(spec)


def test_the_agent_makes_the_file_of_this_machine(tmp_path: Path) -> None:
    argv = launched(DOUBLED, tmp_path)
    assert argv[argv.index("--swap") + 1] == str(64 << 20)
    assert argv[argv.index("--swap-folder") + 1] == str(host_swap.folder())
    assert "--swap" not in launched("native:mem=64M", tmp_path)


@pytest.mark.parametrize(("options", "both"), [("mem=64M", 64), ("mem=64M,swap=32M", 96)])
def test_a_container_may_swap_what_is_asked_for_and_no_more(
    options: str, both: int, tmp_path: Path
) -> None:
    argv = launched(f"{checked('container').name}:{options}", tmp_path)
    assert argv[argv.index("--memory") + 1] == str(64 << 20)
    assert argv[argv.index("--memory-swap") + 1] == str(both << 20)
    assert ("with-swap" in argv[:2]) == (both > 64)


@pytest.mark.parametrize("spec", (DOUBLED, CONTAINED))
def test_no_permission_is_said_before_anything_starts(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(VtaxError, match=r"needs root.*run vtax as root"):
        build(spec).check()


@needs_root
def test_no_room_is_said_before_anything_starts() -> None:
    with pytest.raises(VtaxError, match=r"free; free space there, or set XDG_CACHE_HOME"):
        build("native:mem=64M,swap=512G").check()
    checked(COMPRESSED)
    with pytest.raises(VtaxError, match=r"this machine's memory has .* free; use a smaller one"):
        build("native:mem=64M,swap=512G,swap-in=zram").check()


@pytest.mark.slow
@needs_root
def test_a_device_that_has_taken_the_number_of_one_that_is_gone_is_left_alone() -> None:
    """As after a restart: the record's UUID is not that of the device."""
    checked(COMPRESSED)
    number = (host_swap.ZRAM / "hot_add").read_text().strip()
    device = Path(f"/dev/zram{number}")
    record = host_swap.folder() / f"vtax-4194304-1-{Path('/proc/self/ns/pid').stat().st_ino}.zram"
    try:
        Path(f"/sys/block/{device.name}/disksize").write_text(str(16 << 20))
        subprocess.run(["mkswap", device], check=True, capture_output=True)
        subprocess.run(["swapon", device], check=True)
        record.write_text(f"{number} {1:032x}\n")
        assert host_swap.sweep() > 0
        assert not record.exists()
        assert f"{device} " in Path("/proc/swaps").read_text()
    finally:
        subprocess.run(["swapoff", device], check=False)
        (host_swap.ZRAM / "hot_remove").write_text(number)


def test_a_guest_needs_the_hosts_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name, path=None: None)
    with pytest.raises(VtaxError, match="mkswap is missing"):
        swap.check_guest()


def test_the_probe_of_kvm_has_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe boots in a folder of its own, in which no disk was made."""
    probed: list[Qemu] = []
    monkeypatch.setattr(kvm_probe, "obstacle", lambda: None)
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
        shutil.rmtree(work / "r")


@pytest.mark.slow
@pytest.mark.parametrize("spec", GUESTS)
@pytest.mark.usefixtures("swap_alone")
def test_a_guest_swaps_to_a_disk_without_a_name(spec: str, tmp_path: Path) -> None:
    (line,) = inside(checked(spec), tmp_path, "cat", "/proc/swaps").splitlines()[1:]
    name, kind, size, *_ = line.split()
    assert name in ("/dev/ubda", "/dev/vda", "/dev/xvda") and kind == "partition"
    assert int(size) == (64 << 10) - 4
    assert devices() == []


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("spec", ON_THIS_KERNEL)
@pytest.mark.usefixtures("swap_alone")
def test_a_program_swaps_to_a_file_that_is_there_as_long_as_its_machine(
    tmp_path: Path, spec: str
) -> None:
    environment = checked(spec)
    swaps = inside(environment, tmp_path, "cat", "/proc/swaps")
    assert ("/dev/zram" if spec == COMPRESSED else str(host_swap.folder())) in swaps
    status = inside(environment, tmp_path, "python3", "-c", FILL, "96").splitlines()[0]
    name, kibibytes, _ = status.split()
    assert name == "VmSwap:" and 16 << 10 < int(kibibytes) < 64 << 10
    assert eventually(lambda: devices() == [])
    assert list(host_swap.folder().iterdir()) == []


@pytest.mark.slow
@needs_root
@pytest.mark.usefixtures("swap_alone")
def test_gvisor_goes_past_its_memory_limit_and_knows_nothing_of_it(tmp_path: Path) -> None:
    """Beyond both limits the whole sandbox is killed; test_gvisor.py tests that for memory
    alone."""
    machine = checked(SANDBOXED).start(tmp_path, [max(os.sched_getaffinity(0))])
    try:
        exchange = Exchange(tmp_path, "r")
        exchange.create({})
        fill = ["python3", "-c", FILL, "160"]
        argv = [str(gvisor.AGENT_INSIDE), "memory", "--out", "seen", "--", *fill]
        assert machine.run(argv, GUEST_ENVIRONMENT, "r", 100).outcome.exit_code == 0
        seen = json.loads((tmp_path / "r" / "seen").read_text())["seen"]
        assert seen["looks"] > 0 and seen["swap_bytes"] is None
    finally:
        machine.close()
    assert eventually(lambda: devices() == [])


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
        sizes = ("--sizes", "100,200", "--reps", "1", "--quiet", "--out", str(tmp_path))
        done = run(own, "memory", "--in", DOUBLED, *sizes)
        said = one_line(done, 1)
        assert "cannot hold one" in said and "XDG_CACHE_HOME" in said
        assert list((folder / "vtax" / "swap").iterdir()) == []
    finally:
        shutil.rmtree(folder)
    assert list(tmp_path.iterdir()) == []


def begun(environment: dict[str, str], out: Path, spec: str) -> subprocess.Popen[bytes]:
    """A `vtax memory` whose program is being swapped out."""
    argv = command(
        "memory", "--in", spec, "--sizes", "1700,1800", "--reps", "500", "--quiet",
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
    if not eventually(lambda: any(device.used_kib > 500 for device in devices()), 30):
        process.kill()
        raise AssertionError("nothing was swapped out")
    return process


def groups(name: str) -> list[Path]:
    return list(matching(Path("/sys/fs/cgroup"), f"**/{name}"))


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize(
    ("number", "spec"),
    [(signal.SIGINT, DOUBLED), *((signal.SIGKILL, each) for each in HELD)],
)
@pytest.mark.usefixtures("swap_alone")
def test_nothing_is_left_when_vtax_is_ended(
    environment: dict[str, str],
    tmp_path: Path,
    number: signal.Signals,
    spec: str,
) -> None:
    checked(spec)
    process = begun(environment, tmp_path, spec)
    with ended(process):
        (device,) = devices()
        name = device.owner
        assert groups(name) or spec in (CONTAINED, SANDBOXED)
        process.send_signal(number)
        code = process.wait(30)
    assert code == (130 if number is signal.SIGINT else -signal.SIGKILL)
    assert eventually(lambda: not device.path.exists() and not groups(name))
    assert device not in devices()
    # The record of a zram device is removed after the device.
    assert eventually(lambda: not list(host_swap.folder().iterdir()))


def is_dead(pid: int) -> bool:
    """Whether the process is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("spec", ON_THIS_KERNEL)
@pytest.mark.usefixtures("swap_alone")
def test_what_a_killed_agent_left_is_found(
    environment: dict[str, str], tmp_path: Path, spec: str
) -> None:
    """vtax and its agent die at once, as by the OOM killer: nothing could clean up."""
    checked(spec)
    foreign = host_swap.folder() / "vtax-1-1-1.swap"
    foreign.write_bytes(b"of another PID namespace")
    process = begun(environment, tmp_path, spec)
    with ended(process):
        (device,) = devices()
        name = device.owner
        agent = int(name.split("-")[1])
        os.kill(agent, signal.SIGSTOP)
        process.kill()
        process.wait()
        os.kill(agent, signal.SIGKILL)
    assert eventually(lambda: is_dead(agent))
    assert [each.path for each in devices()] == [device.path]
    done = run(environment, "doctor", "--clean")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("removed ") and not done.stdout.startswith("removed 0")
    assert not device.path.exists() and not groups(name)
    assert list(host_swap.folder().iterdir()) == [foreign]
    foreign.unlink()
