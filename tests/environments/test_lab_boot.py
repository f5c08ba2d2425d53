"""The real lab: an emulated host boots, nested guests run commands in it, nothing is left."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from process_watch import processes_naming
from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.environments.base import allowed_cpus
from vtax.environments.emulated_host import emulator
from vtax.environments.initramfs import newc
from vtax.environments.kernel_image import ModuleTree
from vtax.environments.kvm_counters import metrics
from vtax.environments.lab import host_initramfs, nested, recipe
from vtax.environments.lab.environment import Lab
from vtax.environments.lab.machine import LabMachine

pytestmark = pytest.mark.slow

Start = Callable[[str], LabMachine]
SHELL = {"PATH": "/bin:/usr/bin"}


@pytest.fixture
def start_lab(tmp_path: Path) -> Iterator[Start]:
    """Starts labs and ends them when the test does; afterwards none of their processes is left."""
    with contextlib.ExitStack() as stack:

        def one(spec: str) -> LabMachine:
            lab = checked(spec)
            assert isinstance(lab, Lab)
            work = tmp_path / "work"
            work.mkdir(mode=0o700, exist_ok=True)
            return stack.enter_context(LabMachine(lab, work, allowed_cpus()))

        yield one
    assert processes_naming(str(tmp_path)) == []


def shell(machine: LabMachine, work: Path, script: str, name: str = "r0") -> str:
    exchange = Exchange(work, name)
    exchange.create({})
    environment = GUEST_ENVIRONMENT | {"PATH": GUEST_ENVIRONMENT["PATH"] + ":/bin:/usr/bin"}
    machine.run(["sh", "-c", script], environment, name, timeout_s=120)
    return exchange.read_text("stdout") + exchange.read_text("stderr")


def test_a_guest_on_the_hosts_files_is_restored_and_let_in(
    start_lab: Start, tmp_path: Path
) -> None:
    expected = hashlib.sha256(Path("/bin/sh").read_bytes()).hexdigest()
    # The first start makes the snapshot, the second finds it; both start from it.
    for number in range(2):
        machine = start_lab("lab")
        script = "sha256sum /bin/sh; date +%s.%N; echo inside > made; echo evil > /etc/vtax-evil"
        said = shell(machine, tmp_path / "work", script, f"r{number}")
        assert said.startswith(expected)
        assert abs(time.time() - float(said.split()[2])) < 30
        assert (tmp_path / f"work/r{number}/made").read_text() == "inside\n"
        assert machine.facts["virtualization"]["kind"] == "kvm"
        machine.close()
    assert not Path("/etc/vtax-evil").exists()


def test_the_builtin_guest_runs_under_shadow_paging_and_is_counted(
    start_lab: Start, tmp_path: Path
) -> None:
    machine = start_lab("lab:guest=builtin,npt=0")
    Exchange(tmp_path / "work", "r0").create({"input": b"given"})
    script = "cat input; for i in 1 2 3 4 5; do busybox true; done; echo warned >&2"
    before = machine.counters()
    finished = machine.run(["sh", "-c", script], SHELL, "r0", timeout_s=120)
    after = machine.counters()
    assert finished.outcome.exit_code == 0
    assert (tmp_path / "work/r0/stdout").read_text() == "given"
    assert (tmp_path / "work/r0/stderr").read_text() == "warned\n"
    counted = {metric.name: metric.value for metric in metrics(before, after)}
    # Five processes come and go: shadow page tables are made, written to and zapped.
    for name in ("kvm.exits", "kvm.pf_taken", "kvm.pf_fixed", "kvm.pf_guest", "kvm.guest_s"):
        assert counted[name] > 0, counted
    assert machine.host.counters()["mode"] == "shadow"


def test_a_program_that_is_not_in_the_guest_is_named(start_lab: Start, tmp_path: Path) -> None:
    machine = start_lab("lab:guest=builtin,npt=0")
    with pytest.raises(VtaxError, match="no-such-program"):
        machine.run(["no-such-program"], SHELL, "r0", timeout_s=20)
    assert "alive" in shell(machine, tmp_path / "work", "echo alive", "r1")


def test_files_go_to_the_emulated_host_and_come_back(start_lab: Start) -> None:
    machine = start_lab("lab:guest=builtin,npt=0")
    content = bytes(range(256)) * 4096
    machine.host.push("/tmp/x", content, 0o640)
    assert machine.host.pull("/tmp/x") == content
    assert machine.host.tail("/tmp/x", 3) == content[-3:]
    done = machine.host.run(["busybox", "stat", "-c", "%a", "/tmp/x"])
    assert (done.stdout, done.outcome.exit_code) == ("640\n", 0)


@pytest.mark.long
def test_a_users_initramfs_boots(start_lab: Start, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(newc({"etc/mine": b"it is mine"}, ("etc",)))
    machine = start_lab(f"lab:guest={tmp_path / 'image'},snapshot=off")
    assert _cat(machine, tmp_path) == "it is mine"


def _cat(machine: LabMachine, tmp_path: Path) -> str:
    exchange = Exchange(tmp_path / "work", "r0")
    exchange.create({})
    machine.run(["/bin/busybox-vtax", "cat", "/etc/mine"], SHELL, "r0", timeout_s=60)
    return exchange.read_text("stdout")


def test_a_disk_image_boots(start_lab: Start, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    for name in ("sh", "busybox"):
        (root / "bin" / name).write_bytes(Path("/bin/busybox").read_bytes())
        (root / "bin" / name).chmod(0o755)
    (root / "mine").write_text("it is mine")
    image = tmp_path / "disk.img"
    if not Path("/usr/sbin/mkfs.ext4").exists() and not Path("/sbin/mkfs.ext4").exists():
        pytest.skip("mkfs.ext4 is not installed (e2fsprogs)")
    mkfs = ["mkfs.ext4", "-q", "-d", str(root), str(image), "32M"]
    environment = {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
    subprocess.run(mkfs, check=True, timeout=60, env=environment)
    machine = start_lab(f"lab:guest={image},snapshot=off")
    assert (
        shell(machine, tmp_path / "work", "cat /mine; echo x > /new; cat /new") == "it is minex\n"
    )


@pytest.mark.long
def test_an_image_that_does_not_boot_is_an_error_with_its_console(
    start_lab: Start, tmp_path: Path
) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(1 << 20))
    with pytest.raises(VtaxError, match=r"nested guest ended while booting.*no ext4 file system"):
        start_lab(f"lab:guest={image}")


def test_too_little_memory_ends_in_an_error(
    start_lab: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "STATE_TIMEOUT_S", 10.0)
    monkeypatch.setattr(recipe, "HOST_TIMEOUT_S", 40.0)
    lab = Lab(memory_bytes=128 << 20, guest="builtin", snapshot=False)
    with (
        pytest.raises(VtaxError, match=r"emulated host (ended while booting|did not boot)"),
        LabMachine(lab, Path("/tmp"), allowed_cpus()),
    ):
        pass


def test_killing_the_emulator_is_a_lost_machine(start_lab: Start) -> None:
    machine = start_lab("lab:guest=builtin,npt=0")
    running = machine._started.emulator
    running._process.kill()
    # A signal is sent but not yet obeyed: until the process is gone it may answer.
    running._process.wait()
    running.console.join()
    with pytest.raises(VtaxError, match="the lab's emulated host died"):
        machine.counters()


@pytest.mark.parametrize("beyond_a_page", [0, 1, 2048, 4092, 4095])
def test_an_initramfs_of_any_size_leaves_the_nested_guest_its_acpi_tables(
    tmp_path: Path, beyond_a_page: int
) -> None:
    """The command line of a nested guest with an initramfs of its own, without KVM and the lab."""
    parts = host_initramfs.find_parts(None)
    tree = ModuleTree(parts.kernel.tree)
    modules = tree.closure(("virtio_mmio", "virtio_console"))
    load = "".join(f"$b insmod /modules/{name}.ko\n" for name, _ in modules)
    init = f"#!/bin/busybox sh\nb=/bin/busybox\n{load}$b mount -t sysfs s /sys\n"
    # Devices are found by the ACPI tables, a moment after their driver is there.
    init += "i=0; while [ $i -lt 100 ] && ! [ -e /sys/class/virtio-ports/vport0p1 ]; do\n"
    init += "i=$((i+1)); $b usleep 20000; done\n"
    init += "$b ls /sys/class/virtio-ports > /dev/console\n$b poweroff -f\n"
    files = {f"modules/{name}.ko": content for name, content in modules}
    files |= {"bin/busybox": parts.busybox.read_bytes(), "init": init.encode()}
    archive = newc(files, ("bin", "dev", "modules", "proc", "sys"))
    archive += bytes((beyond_a_page - len(archive)) % 4096)
    assert len(archive) % 4096 == beyond_a_page
    (tmp_path / "initramfs").write_bytes(archive)
    console = subprocess.run(
        _nested_alone(parts, tmp_path / "initramfs"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stdout
    assert "vport0p1" in console, console[-1000:]


def _nested_alone(parts: host_initramfs.Parts, initramfs: Path) -> list[str]:
    """The machine, firmware and kernel of a nested guest, emulated on this machine."""
    whole = nested.command(nested.Nested("builtin", 128 << 20, 1, ()), 0)
    machine = whole[whole.index("-machine") + 1].replace(",memory-backend=ram", "")
    firmware = whole[whole.index("-bios") + 1]
    path = next(each for each in parts.firmware if each.name == firmware)
    line = [str(parts.qemu), "-accel", "tcg", "-cpu", "EPYC", "-machine", machine]
    line += ["-bios", str(path), "-m", "128M", "-nodefaults", "-no-user-config", "-no-reboot"]
    line += ["-display", "none", "-chardev", "stdio,id=console,signal=off"]
    line += ["-serial", "chardev:console", "-kernel", str(parts.kernel.kernel)]
    # KVM tells its guests the frequency of their clock; under load, calibration fails.
    parameters = "console=ttyS0 quiet panic=-1 tsc_early_khz=1000000"
    line += ["-initrd", str(initramfs), "-append", parameters]
    line += ["-device", "virtio-serial-device", "-chardev", "null,id=agent"]
    return [*line, "-device", "virtserialport,chardev=agent,nr=1"]
