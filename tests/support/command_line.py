"""vtax as a user calls it, on no terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "python"
HUNG_S = 1800.0
"""Time after which a command counts as hung. Work has no bound: it may take long on a busy
machine."""


def vtax(
    *argv: str,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = HUNG_S,
) -> subprocess.CompletedProcess[str]:
    """The command as a user calls it, on no terminal."""
    settings = {"PYTHONPATH": str(SOURCE), "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        command(*argv),
        env={**os.environ, **settings, **(environment or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "vtax.main", *argv]


def without_root(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command of a user who is not root.

    What root may read stays readable: a checkout may lie below a folder that is root's alone.
    """
    line = command(*argv)
    if os.geteuid() == 0:
        may = ("--inh-caps", "+dac_override", "--ambient-caps", "+dac_override")
        line = ["setpriv", "--euid=65534", "--egid=65534", "--clear-groups", *may, *line]
    own = {**os.environ, "PYTHONPATH": str(SOURCE), "HOME": str(cwd)}
    return subprocess.run(line, cwd=cwd, env=own, capture_output=True, text=True, check=False)


def run(
    environment: dict[str, str], *argv: str, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*argv),
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The error: one line on standard error besides progress, and no traceback."""
    assert done.returncode == code, done.stderr
    errors = [line for line in done.stderr.splitlines() if re.match(r"vtax[ a-z]*: ", line)]
    assert len(errors) == 1 and "Traceback" not in done.stderr
    return errors[0]
