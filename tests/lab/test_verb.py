"""`vtax lab`: a command of this machine beside a real KVM."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import command, one_line, vtax
from tested_machines import checked
from vtax.core.formats.model import ComparisonRecord
from vtax.core.formats.records import read

SEEN = """
id -u; cat /sys/module/kvm_amd/parameters/npt; test -c /dev/kvm && echo kvm; pwd
cat beside; touch /etc/written && echo written; echo kept > "$1/kept"; echo complaint >&2; exit 7
"""


def test_help(snapshot: SnapshotAssertion) -> None:
    done = vtax("lab", "--help")
    assert done.returncode == 0 and done.stdout == snapshot


def test_no_command_is_one_line() -> None:
    assert one_line(vtax("lab"), 2) == (
        "vtax: no command; name one after --, e.g. vtax lab -- ls -l /dev/kvm"
    )


def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    assert "it does not exist" in one_line(vtax("lab", "--share", missing, "--", "true"), 2)
    assert "it is not on the PATH; check its name" in one_line(vtax("lab", "--", "no-such"), 1)
    assert one_line(vtax("lab", "--", "true", cwd=Path("/run")), 2) == (
        "vtax: /run: the emulated host has its own; work in another folder"
    )
    assert "is too small to boot" in one_line(vtax("lab", "--mem", "100M", "--", "true"), 2)


@pytest.mark.slow
def test_the_mode_is_switched_with_the_labs_own_modules(tmp_path: Path) -> None:
    """This machine's kernel is another one, so its /lib/modules has no KVM for the lab's. vtax's
    Python may lie in a home that is not on the PATH."""
    checked("lab")
    program = f"{shlex.quote(sys.executable)} -m vtax.main paging"
    script = f"{program} switch --to shadow && cat /sys/module/kvm_amd/parameters/npt"
    done = vtax(
        "lab", "--", "sh", "-c", script, cwd=tmp_path, environment={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "N"


@pytest.mark.slow
@pytest.mark.parametrize("npt", ["1", "0"])
def test_a_command_runs_beside_a_real_kvm(tmp_path: Path, npt: str) -> None:
    checked(f"lab:npt={npt}")
    (tmp_path / "beside").write_text("this machine's file\n")
    out = tmp_path / "results"
    # One case uses a snapshot, the other a boot.
    saved = "--snapshot" if npt == "1" else "--no-snapshot"
    line = ("lab", "--npt", npt, saved, "--out", str(out), "--", "sh", "-c", SEEN, "sh", str(out))
    done = vtax(*line, cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    parameter = "Y" if npt == "1" else "N"
    expected = ["0", parameter, "kvm", str(tmp_path), "this machine's file", "written"]
    assert done.stdout.splitlines() == expected
    assert done.stderr.splitlines()[-1] == "complaint"
    assert (out / "kept").read_text() == "kept\n"
    assert not Path("/etc/written").exists()


@pytest.mark.slow
def test_a_signal_ends_it_and_leaves_nothing(tmp_path: Path) -> None:
    checked("lab")
    line = command("lab", "--", "sh", "-c", "echo up; sleep 600")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    running = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    assert running.stdout is not None
    assert running.stdout.readline() == b"up\n"
    begin = time.monotonic()
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 130
    assert time.monotonic() - begin < 20
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.long
def test_a_guest_is_compared_under_its_kvm(tmp_path: Path) -> None:
    """vtax itself runs in the emulated host, with a guest under the host's real /dev/kvm."""
    checked("lab")
    runs = str(tmp_path / "runs")
    inner = ["compare", "--in", "qemu:accel=kvm,mem=256M", "--reps", "2", "--no-control"]
    program = [sys.executable, "-m", "vtax.main", *inner, "--out", runs, "--", "true"]
    shared = ("--share", sys.base_prefix) if sys.base_prefix != "/usr" else ()
    done = vtax("lab", *shared, "--out", runs, "--", *program)
    assert done.returncode == 0, done.stderr
    (run,) = Path(runs).iterdir()
    record = read(run / "run.json")
    assert isinstance(record, ComparisonRecord) and record.state == "complete"
    (guest,) = (each for each in record.environments if each.role == "measured")
    assert guest.facts["virtualization"]["kind"] == "kvm"
