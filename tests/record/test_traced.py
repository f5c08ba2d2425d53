"""Counting by ptrace, as an ordinary user and of programs that make trouble."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from process_watch import ended, eventually, processes_naming
from recording import described
from vtax.core import binaries

NOBODY = 65534
ORDINARY: Mapping[str, Any] = (
    {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
)
"""The user whose processes a limit counts; it does not count root's."""
TIMEOUT_S = 60.0
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may use, with the recorder in it."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        shutil.copy(binaries.find("vtax-host"), made)
        yield Path(made)


def line(folder: Path, *command: str, pids: int = 100) -> list[str]:
    recorder = [str(folder / "vtax-host"), "record", "--child", "--by-ptrace"]
    return [*recorder, f"--pids={pids}", "--out", str(folder / "run"), "--", *command]


def by_nobody(folder: Path, *command: str) -> CompletedProcess[str]:
    return subprocess.run(
        line(folder, *command), **ORDINARY, cwd=folder,
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip


def counts(folder: Path) -> Mapping[str, int]:
    return {each["name"]: each["sum"] for each in described(folder / "run")}


def end(folder: Path) -> Any:
    return json.loads((folder / "run/record.json").read_text())["end"]["command"]


@needs_root
def test_an_ordinary_user_counts(folder: Path) -> None:
    loop = "i=0; while [ $i -lt 200 ]; do [ -e /nowhere ]; i=$((i+1)); done; exit 3"
    done = by_nobody(folder, "/bin/sh", "-c", loop)
    assert (done.returncode, done.stderr) == (0, "")
    found = counts(folder)
    assert 200 <= found["calls.stat"] < 220
    assert found["sched.execs"] == found["calls.exec"] == 1
    assert found["faults.minor"] > 0
    assert end(folder) == {"exit_code": 3}


@needs_root
@pytest.mark.parametrize("mode", [0o4755, 0o2755])
def test_a_setuid_program_is_refused(mode: int, folder: Path) -> None:
    shutil.copy("/bin/true", folder / "program")
    (folder / "program").chmod(mode)
    done = by_nobody(folder, "/bin/sh", "-c", f"{folder}/program; :")
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert str(folder / "program") in said and "setuid" in said and "root" in said


@needs_root
def test_the_vdso_of_a_program_that_cannot_be_read_stays(folder: Path) -> None:
    shutil.copy("/bin/true", folder / "program")
    (folder / "program").chmod(0o711)
    assert by_nobody(folder, str(folder / "program")).returncode == 0
    found = counts(folder)
    assert "calls.clock" not in found and found["calls.mmap"] > 0
    (absent,) = json.loads((folder / "run/events.json").read_text())["unavailable"]
    assert absent["name"] == "calls.clock"


def test_a_static_program_is_counted(folder: Path) -> None:
    program = str(binaries.find("vtax-agent"))
    subprocess.run(line(folder, program, "--version"), check=True, timeout=TIMEOUT_S)
    found = counts(folder)
    assert found["calls.write"] > 0 and found["sched.execs"] == 1 and "calls.clock" in found


def test_signals_and_stops_reach_the_program(folder: Path) -> None:
    script = (
        "trap 'echo got' RTMIN; kill -RTMIN $$; sh -c 'kill -STOP $$; echo on' & sleep 0.5; "
        "echo before; while [ -e /proc/$!/exe ]; do kill -CONT $!; sleep 0.05; done; kill -9 $$"
    )
    command = line(folder, "/bin/bash", "-c", script)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.stdout == "got\nbefore\non\n"
    assert end(folder) == {"signal": signal.SIGKILL}


def test_a_program_that_forks_for_ever_ends_with_the_counter(folder: Path) -> None:
    bomb = folder / "bomb"
    bomb.write_text("exec 2>/dev/null; while :; do bash $0 & done")
    process = subprocess.Popen(line(folder, "/bin/bash", str(bomb), pids=20), **ORDINARY)
    with ended(process):
        assert eventually(lambda: len(processes_naming(str(bomb))) > 5, TIMEOUT_S)
        process.kill()
        process.wait()
        assert eventually(lambda: not processes_naming(str(bomb)), TIMEOUT_S)


def test_a_program_that_is_not_there_is_named(folder: Path) -> None:
    done = subprocess.run(line(folder, "/no/such"), capture_output=True, text=True)
    assert done.returncode == 1 and "/no/such" in done.stderr
