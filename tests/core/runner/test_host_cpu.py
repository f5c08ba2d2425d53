"""CPU time of a machine's processes, from a folder like /proc and from real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vtax.core.runner.instruments.host_cpu import cpu_s

TICKS = os.sysconf("SC_CLK_TCK")
BURN = "import os, time\nwhile time.process_time() < 0.3: pass\n"


def process(proc: Path, pid: int, parent: int, *times: int, name: str = "x") -> None:
    folder = proc / str(pid)
    folder.mkdir()
    fields = ["S", str(parent), *["0"] * 9, *map(str, times), "0"]
    (folder / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


def test_the_whole_tree_and_what_has_ended_count(tmp_path: Path) -> None:
    process(tmp_path, 100, 1, 10, 20, 30, 40)
    process(tmp_path, 50, 100, 1, 2, 0, 0, name="a) S 1 (b")
    process(tmp_path, 40, 50, 5, 0, 0, 0)
    process(tmp_path, 60, 1, 1000, 1000, 0, 0)
    (tmp_path / "uptime").write_text("1 2\n")
    (tmp_path / "70").mkdir()
    assert cpu_s(100, tmp_path) == pytest.approx((100 + 3 + 5) / TICKS)
    assert cpu_s(999, tmp_path) == 0


def test_real_processes_that_end_are_not_forgotten() -> None:
    child = [sys.executable, "-c", BURN]
    script = f"import subprocess, time; subprocess.run({child!r}); print('x', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as parent:  # fmt: skip
        assert parent.stdout and parent.stdout.readline()
        found = cpu_s(parent.pid)
        parent.communicate(b"\n")
    assert found >= 0.3 - 2 / TICKS
