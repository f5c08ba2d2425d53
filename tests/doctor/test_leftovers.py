"""`vtax doctor --clean` removes what a verb left in TMPDIR when it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command_line import SOURCE, vtax
from process_watch import processes_naming
from vtax.core.errors import VtaxError
from vtax.core.formats.scratch import LOCK
from vtax.environments import traced_qemu
from vtax.environments.lab.environment import Lab

PATIENCE_S = 300.0
"""Time for an emulated guest to begin, on a busy machine."""
VERBS = {
    "lab": ("lab", "--", "sleep", "600"),
    "paging lab": ("paging", "lab", "random-touch", "--mem", "64M"),
    "paging trace": ("paging", "trace", "--out", "out.vtrace", "--", "sleep", "600"),
}


def require(verb: str) -> None:
    try:
        if verb == "paging trace":
            traced_qemu.find()
        else:
            Lab.from_options({"guest": "builtin"}).check()
    except VtaxError as error:
        pytest.skip(f"{verb}: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_killed_verb_leaves_nothing_that_is_not_removed(verb: str, tmp_path: Path) -> None:
    require(verb)
    place = tmp_path / "tmp"
    place.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(place)}
    process = subprocess.Popen(
        [sys.executable, "-m", "vtax.main", *VERBS[verb]],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + PATIENCE_S
    while not list(place.glob(f"vtax-*/{LOCK}")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.kill()
    process.communicate()
    # A guest that was just starting looks for vtax before it ends.
    while running := processes_naming(str(tmp_path)):
        assert time.monotonic() < deadline, running
        time.sleep(0.1)
    assert list(place.iterdir())
    done = vtax("doctor", "--clean", cwd=tmp_path, environment={"TMPDIR": str(place)})
    assert done.returncode == 0, done.stderr
    assert "removed 0" not in done.stdout
    assert list(place.iterdir()) == []
