"""One way of showing progress: a bar on a terminal, lines in a log, nothing when quiet."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import SOURCE
from vtax.core.page.progress import Lines, Progress, progress

SHOWN = """
from vtax.core.page.progress import progress

with progress(quiet=False) as shown:
    shown.begin(3, text="3 [pieces]")
    shown.step("first")
    shown.failed("second failed: [red]no[/red]")
    shown.flow(5e6, 1e7, "simulating swim", "5 M instructions")
    shown.reach(3, 3, "third")
    shown.say("over")
"""


def on_a_terminal(code: str) -> tuple[str, str]:
    """Standard output, and what a terminal on standard error got."""
    terminal, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=theirs, env=environment
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(terminal, 4096):
            seen += chunk
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(terminal)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, seen.decode()
    return out.decode(), seen.decode()


def test_a_terminal_gets_a_bar_and_keeps_failures() -> None:
    out, seen = on_a_terminal(SHOWN)
    assert out == ""
    assert "third" in seen and "3/3" in seen
    assert "second failed: [red]no[/red]" in seen, "nothing is read as markup"
    assert "over" in seen


def test_quiet_and_results_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for shown in (progress(quiet=True), progress(quiet=False)):
        with shown:
            shown.begin(1, text="one piece")
            shown.step("done")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == ["one piece", "[1/1] done"], "quiet says nothing"
    assert type(progress(quiet=True)) is Progress


def test_a_log_gets_a_line_now_and_then_and_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(every_s=60)
    for done in range(1, 6):
        lines.reach(done, 5, f"piece {done}")
    assert capsys.readouterr().err.splitlines() == ["[1/5] piece 1", "[5/5] piece 5"]
    often = Lines(every_s=0)
    for amount in ("1 M", "2 M"):
        often.flow(1.0, None, "simulating", amount)
    assert capsys.readouterr().err == "simulating: 2 M\n", "what is over at once says nothing"


def test_only_one_module_draws_progress() -> None:
    package = Path(SOURCE, "vtax")
    drawing = [path for path in package.rglob("*.py") if "rich.progress" in path.read_text()]
    assert drawing == [package / "core/page/progress.py"]
