"""Root in a guest tries to answer instead of the agent: each attempt, by a real program in the
guest.

docs/security.md, "Root in a guest", says the same line by line.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import forging
from command_line import vtax
from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.core.formats.exchange import Exchange
from vtax.environments import Environment
from vtax.environments.agent import MachineLostError
from vtax.environments.machine import Machine

Start = Callable[[str | Environment], Machine]
SPECS = ("uml:mem=256M", "qemu:accel=tcg,mem=512M")
WITHHELD = (2, 16, 17, 19, 22, 27)
"""DAC_READ_SEARCH, SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_BOOT, MKNOD (linux/capability.h)."""
KEPT = (1, 12, 21, 24, 38, 39)
"""DAC_OVERRIDE, NET_ADMIN, SYS_ADMIN, SYS_RESOURCE, PERFMON, BPF."""
FOLDER = "forged"
NO_CAPABILITY = {"CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"}
PATIENCE_S = 120.0


def shell(machine: Machine, tmp_path: Path, name: str, script: str) -> Exchange:
    """Run a script as root of the guest."""
    folder = Exchange(tmp_path / "work0", name)
    folder.create({})
    machine.run(["sh", "-c", script], GUEST_ENVIRONMENT, name, 30.0)
    return folder


def tried(machine: Machine, tmp_path: Path) -> Exchange:
    """All attempts have been made; their outcomes lie in the folder."""
    folder = Exchange(tmp_path / "work0", FOLDER)
    folder.create({"forging.py": Path(forging.__file__).read_bytes()})
    inside = str(machine.launch.work_inside / FOLDER)
    argv = ["python3", "forging.py", inside]
    finished = machine.run(argv, GUEST_ENVIRONMENT, FOLDER, PATIENCE_S)
    assert finished.outcome.exit_code == 0, folder.read_text("stderr")
    assert finished.doubt() is None
    return folder


def outcomes(folder: Exchange, name: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(folder.read_text(name))["attempts"]
    return found


def capabilities(folder: Exchange, name: str) -> dict[str, int]:
    found = json.loads(folder.read_text(name))["capabilities"]
    return {kind: int(value, 16) for kind, value in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_nothing_that_a_guests_root_tries_reaches_the_agent_or_the_kernel(
    spec: str, start: Start, tmp_path: Path
) -> None:
    machine = start(spec)
    folder = tried(machine, tmp_path)
    own = outcomes(folder, "attempts")
    assert len(own) == 17
    assert not [name for name, found in own.items() if found.startswith("done")], own
    assert not [name for name, found in own.items() if found.endswith("kept False")], own
    effective = capabilities(folder, "attempts")["CapEff:"]
    assert not [each for each in WITHHELD if effective >> each & 1]
    assert [each for each in KEPT if effective >> each & 1] == list(KEPT)
    # Nor do programs that the kernel starts, which would be outside of all that holds workloads.
    # Not every kernel has a helper for events; all have the other two.
    started = [
        name for name in ("core", "module", "event") if (folder.path / f"by-{name}").exists()
    ]
    assert started[:2] == ["core", "module"]
    for name in started:
        assert capabilities(folder, f"by-{name}") == dict.fromkeys(NO_CAPABILITY, 0)
        found = outcomes(folder, f"by-{name}")
        assert "done" not in found.values(), found
    found = outcomes(folder, "in-a-user-namespace")
    assert "done" not in found.values(), found
    # The agent neither ended nor stopped, and answers the next command as usual.
    assert shell(machine, tmp_path, "after", "echo alive").read_text("stdout") == "alive\n"


ENDS = "kill -TERM 1; sleep 60"
UNBINDS = """
mount -o remount,rw /sys
for driver in /sys/bus/virtio/drivers/virtio_console; do
    for device in $driver/virtio*; do basename $device >$driver/unbind; done
done
sleep 60
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "script"), [(SPECS[0], ENDS), (SPECS[1], ENDS), (SPECS[1], UNBINDS)]
)
def test_a_guests_root_can_end_its_machine_and_no_more(
    spec: str, script: str, start: Start, tmp_path: Path
) -> None:
    """Root asks the agent to end, or takes its channel: the result is a repetition without a
    result."""
    with pytest.raises(MachineLostError, match="died"):
        shell(start(spec), tmp_path, "ended", script)


@pytest.mark.slow
def test_what_is_mounted_stays_for_the_next_command_and_the_agent_keeps_its_view(
    start: Start, tmp_path: Path
) -> None:
    machine = start(SPECS[0])
    # The agent would not find the processes of that namespace in its own.
    cover = (
        "mount -t tmpfs none /mnt && echo kept >/mnt/x && mount -t tmpfs none /proc; sleep 300 &"
    )
    shell(machine, tmp_path, "mounts", cover)
    look = "cat /mnt/x; umount /proc; grep -l sleep /proc/[0-9]*/comm"
    assert shell(machine, tmp_path, "look", look).read_text("stdout") == "kept\n"


FORGER = """#!/bin/sh
# Natively nothing is tried: this machine is no guest.
if grep -q -e 'User Mode Linux' -e QEMU /proc/cpuinfo; then
    python3 "$0.py" "$VTAX_RESULTS" >/dev/null 2>&1
fi
sleep 1
"""


@pytest.mark.slow
def test_a_comparison_of_a_forging_program_is_not_faster_than_it_ran(tmp_path: Path) -> None:
    """A comparison as a user calls it, with the attack where the program runs in the guest."""
    checked("uml")
    program = tmp_path / "forger"
    program.write_text(FORGER)
    program.chmod(0o755)
    shutil.copyfile(forging.__file__, tmp_path / "forger.py")
    done = vtax(
        *("compare", "--in", "uml:mem=256M", "--reps", "2", "--no-warm-up", "--no-control"),
        *("--json", "--out", str(tmp_path / "out"), "--", str(program)),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    found = {each["environment"]: each for each in answer["results"] if each["metric"] == "wall_s"}
    assert found["uml:mem=256M"]["best"] >= 1.0
    assert found["uml:mem=256M"]["percent_of_baseline"] <= 105.0
