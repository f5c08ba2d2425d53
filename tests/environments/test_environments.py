"""Real machines: each boots, sees the host's tree, cannot change it, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from process_watch import descendants, processes_naming
from tested_machines import CONTAINED, GUEST_ENVIRONMENT, LOCAL, REAL, checked
from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.environments import Environment
from vtax.environments import agent as agent_module
from vtax.environments import machine as machine_module
from vtax.environments.base import Allocation
from vtax.environments.machine import Machine, MachineLostError
from vtax.environments.qemu import Qemu
from vtax.environments.uml import UserModeLinux, overlay_module

pytestmark = pytest.mark.slow

GUESTS = REAL[1:]
Start = Callable[[str | Environment], Machine]


def shell(machine: Machine, tmp_path: Path, script: str, name: str = "r0") -> str:
    """Run a script in the machine and return what it printed."""
    exchange = Exchange(tmp_path / "work0", name)
    exchange.create({})
    machine.run(["/bin/sh", "-c", script], GUEST_ENVIRONMENT, name, timeout_s=60)
    return exchange.read_text("stdout") + exchange.read_text("stderr")


@pytest.mark.parametrize("spec", LOCAL)
def test_a_machine_runs_the_hosts_own_binaries(start: Start, tmp_path: Path, spec: str) -> None:
    machine = start(spec)
    expected = hashlib.sha256(Path("/bin/sh").read_bytes()).hexdigest()
    assert expected in shell(machine, tmp_path, "sha256sum /bin/sh")
    assert machine.boot_s > 0
    assert machine.facts["cpu"]["online"] >= 1


@pytest.mark.parametrize("spec", LOCAL)
def test_what_ran_is_accounted_for(start: Start, tmp_path: Path, spec: str) -> None:
    machine = start(spec)
    Exchange(tmp_path / "work0", "r0").create({})
    argv = ["/bin/sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; sleep 0.2; exit 3"]
    finished = machine.run(argv, GUEST_ENVIRONMENT, "r0", timeout_s=60)
    outcome = finished.outcome
    assert outcome.exit_code == 3 and not outcome.timed_out
    assert 0 < outcome.cpu_s < outcome.wall_s
    assert finished.host_wall_s > 0.2 <= outcome.wall_s
    assert outcome.max_rss_bytes > 100_000


@pytest.mark.parametrize("spec", LOCAL)
def test_a_time_out_kills_all_that_was_started(start: Start, tmp_path: Path, spec: str) -> None:
    machine = start(spec)
    Exchange(tmp_path / "work0", "r0").create({})
    argv = ["/bin/sh", "-c", "setsid sleep 86399 & sleep 86399"]
    finished = machine.run(argv, GUEST_ENVIRONMENT, "r0", timeout_s=0.5)
    assert finished.outcome.timed_out
    listing = shell(machine, tmp_path, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '", "r1")
    assert "sleep 86399" not in listing.replace("cat /proc", "")


@pytest.mark.parametrize("spec", LOCAL)
def test_a_program_that_is_not_there_is_named(start: Start, tmp_path: Path, spec: str) -> None:
    machine = start(spec)
    with pytest.raises(VtaxError, match="no-such-program"):
        machine.run(["no-such-program"], GUEST_ENVIRONMENT, "r0")
    assert "alive" in shell(machine, tmp_path, "echo alive", "r1")


ATTACK = """
echo evil > {target}
mount -o remount,rw / ; echo evil > {target}
mkdir -p /tmp/m
export LIBMOUNT_FORCE_MOUNT2=always  # the newer calls of util-linux 2.39 refuse hostfs's options
mount -t hostfs none -o / /tmp/m && echo evil > /tmp/m{target}
mount -t hostfs none -o /,rw /tmp/m && mount -o remount,rw /tmp/m && echo evil > /tmp/m{target}
mount -t 9p -o trans=virtio,version=9p2000.L,rw host /tmp/m && echo evil > /tmp/m{target}
mount -t 9p -o trans=virtio,version=9p2000.L,rw work /tmp/m && echo evil > /tmp/m/../../..{target}
ln -s {target} /run/vtax/work/link ; echo evil > /run/vtax/work/link
echo done
"""


@pytest.mark.parametrize("spec", LOCAL)
def test_a_long_command_line_arrives_whole(start: Start, tmp_path: Path, spec: str) -> None:
    machine = start(spec)
    Exchange(tmp_path / "work0", "r0").create({})
    environment = GUEST_ENVIRONMENT | {"LONG": '\\"\u00e9' * 10_000}
    machine.run(["/bin/sh", "-c", 'printf %s "$LONG" | wc -c'], environment, "r0", timeout_s=60)
    assert int(Exchange(tmp_path / "work0", "r0").read_text("stdout")) == 40_000


@pytest.mark.parametrize("spec", GUESTS)
def test_vector_registers_survive_context_switches(start: Start, tmp_path: Path, spec: str) -> None:
    """In user-mode Linux, libvtax_umlfix.so makes this work (on hosts with AMX)."""
    machine = start(spec)
    Exchange(tmp_path / "work0", "r0").create({})
    argv = ["/run/vtax/vtax-agent", "check-fp"]
    finished = machine.run(argv, GUEST_ENVIRONMENT, "r0", timeout_s=120)
    assert finished.outcome.exit_code == 0, shell(machine, tmp_path, "cat ../r0/std*", "r1")


@pytest.mark.parametrize("spec", (*GUESTS, *CONTAINED))
def test_a_guest_cannot_write_outside_its_folder(start: Start, tmp_path: Path, spec: str) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    machine = start(spec)
    printed = shell(machine, tmp_path, ATTACK.format(target=target))
    assert "done" in printed
    if machine.facts["virtualization"]["kind"] == "uml":
        # The guest got its own writable mount of the host's tree; the box refuses the write.
        assert f"cannot create /tmp/m{target}: Read-only file system" in printed
    assert target.read_text() == "precious"
    # The overlay takes the first write, so the guest itself sees its own copy.
    written = shell(machine, tmp_path, "echo mine > /run/vtax/work/r1/mine; id -u", "r1")
    assert written.startswith("0")
    assert (tmp_path / "work0/r1/mine").read_text() == "mine\n"


@pytest.mark.parametrize("spec", (*GUESTS, *CONTAINED))
def test_a_guest_has_no_network(start: Start, tmp_path: Path, spec: str) -> None:
    lines = shell(start(spec), tmp_path, "cat /proc/net/dev").splitlines()
    names = {line.partition(":")[0].strip() for line in lines if ":" in line}
    assert names - {"lo", "sit0", "tunl0"} == set()


@pytest.mark.parametrize("spec", LOCAL)
def test_nothing_is_left_of_a_closed_machine(start: Start, tmp_path: Path, spec: str) -> None:
    machine = start(spec)
    machine.close()
    assert not Path(f"/proc/{machine.pid}").exists()
    assert processes_naming(str(tmp_path)) == []
    machine.close()


@pytest.mark.parametrize("spec", LOCAL)
def test_a_machine_in_the_middle_of_a_command_is_closed_without_asking(
    start: Start, tmp_path: Path, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = start(spec)
    # If the agent were asked, closing would wait this long for the answer.
    monkeypatch.setattr(machine_module, "HALT_TIMEOUT_S", 60.0)
    alarm = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            machine.run(["sleep", "86388"], GUEST_ENVIRONMENT, "r0")
    finally:
        signal.signal(signal.SIGALRM, alarm)
    begin = time.monotonic()
    machine.close()
    assert time.monotonic() - begin < 30
    assert processes_naming("sleep 86388") == []


@pytest.mark.parametrize("spec", GUESTS)
def test_a_guest_that_powers_off_is_lost_with_its_console(
    start: Start, tmp_path: Path, spec: str
) -> None:
    machine = start(spec)
    Exchange(tmp_path / "work0", "r0").create({})
    # Both files are read-only for a workload, but root may change that (docs/security.md).
    script = "for each in sys sysrq-trigger; do mount -o remount,bind,rw /proc/$each; done; "
    script += "echo the-last-words > /dev/console; echo 1 > /proc/sys/kernel/sysrq; "
    script += "echo o > /proc/sysrq-trigger; sleep 30"
    with pytest.raises(MachineLostError, match="its console ends: "):
        machine.run(["/bin/sh", "-c", script], GUEST_ENVIRONMENT, "r0", timeout_s=20)
    assert processes_naming(str(tmp_path)) == []


@pytest.mark.parametrize("spec", GUESTS)
def test_a_guest_that_hangs_is_given_up(
    start: Start, tmp_path: Path, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "REQUEST_TIMEOUT_S", 1.0)
    machine = start(spec)
    for pid in descendants(machine.pid):
        # User-mode Linux ends a process of its own for each program that ends in the guest.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    begin = time.monotonic()
    with pytest.raises(MachineLostError, match="hung"):
        machine.run(["/bin/true"], GUEST_ENVIRONMENT, "r0", timeout_s=0.1)
    assert time.monotonic() - begin < 20
    assert processes_naming(str(tmp_path)) == []


@pytest.mark.parametrize(
    "environment",
    [
        UserModeLinux(memory_bytes=8 << 20),
        Qemu("tcg", memory_bytes=48 << 20, boot_timeout_s=20.0),
    ],
)
def test_too_little_memory_to_boot_shows_the_console(
    tmp_path: Path, environment: Environment
) -> None:
    checked(environment.name)
    with pytest.raises(MachineLostError) as caught:
        Machine(environment, tmp_path, [0])
    assert "its console ends:" in str(caught.value)
    assert processes_naming(str(tmp_path)) == []


@pytest.mark.parametrize("spec", GUESTS)
def test_a_guest_ends_whose_vtax_was_killed_while_it_started(tmp_path: Path, spec: str) -> None:
    """bubblewrap's --die-with-parent misses a parent that died before it was set."""
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        launch = checked(spec).launch(Allocation(tmp_path, [0], theirs.fileno()))
        process = machine_module.spawn(launch.argv, [theirs.fileno()], launch.environment)
    try:
        process.communicate(timeout=launch.boot_timeout_s)
    finally:
        process.kill()
    assert processes_naming(str(tmp_path)) == []


def test_the_memory_cap_of_the_baseline_holds(start: Start, tmp_path: Path) -> None:
    machine = start("native:cpus=1,mem=64M")
    if reason := machine.hello.get("memory_limit_error"):
        pytest.skip(f"no memory cap here: {reason}")
    Exchange(tmp_path / "work0", "r0").create({})
    argv = ["/bin/sh", "-c", "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}"]
    finished = machine.run(argv, GUEST_ENVIRONMENT, "r0", timeout_s=60)
    assert finished.outcome.exit_code != 0 or finished.outcome.signal
    small = machine.run(["/bin/true"], GUEST_ENVIRONMENT, "r1", timeout_s=60)
    assert small.outcome.exit_code == 0


def test_command_lines_keep_guests_in_the_box(tmp_path: Path) -> None:
    overlay_module()
    allocation = Allocation(work=tmp_path, cpus=[1], channel_fd=7)
    for spec in GUESTS:
        line = list(checked(spec).launch(allocation).argv)
        assert line[:3] == ["taskset", "--cpu-list", "1"]
        box = line[: line.index("--")]
        for part in ("--unshare-net", "--unshare-pid", "--die-with-parent", "--cap-drop"):
            assert part in box
        assert box[box.index("--ro-bind") :][:3] == ["--ro-bind", "/", "/"]
        assert ("readonly=on" in " ".join(line)) == spec.startswith("qemu")
        writable = [box[i + 1] for i, part in enumerate(box) if part == "--bind"]
        assert writable == [str(tmp_path)]
