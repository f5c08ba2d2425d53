"""What a killed run leaves in TMPDIR and beside its output is removed later, and only that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import SOURCE
from vtax.core.formats.files import replacing, write_atomic
from vtax.core.formats.scratch import LOCK, scratch, sweep

OWNER = """
import sys, time
from pathlib import Path
from vtax.core.formats.files import replacing
from vtax.core.formats.scratch import scratch
with scratch("test") as folder, replacing(Path(sys.argv[1])) as unfinished:
    (folder / "inner").mkdir()
    (folder / "inner" / "file").write_text("x")
    unfinished.write_text("half")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def owner(place: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a folder in `place` and writes to `out`."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "out")],
        env={"PYTHONPATH": str(SOURCE), "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(str(place))
    yield process
    process.kill()
    process.communicate()


def test_a_folder_goes_with_its_owner(place: Path) -> None:
    with scratch("test") as folder:
        assert folder.parent == place and (folder / LOCK).is_file()
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").write_text("x")
    assert list(place.iterdir()) == []


def test_what_runs_is_kept_and_what_was_killed_is_removed(
    place: Path, tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    out = tmp_path / "out"
    assert sweep() == 0 and len(list(place.iterdir())) == 1
    write_atomic(out, b"mine")
    assert len(list(tmp_path.glob(".out.*.tmp"))) == 1
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert len(list(place.iterdir())) == 1 and len(list(tmp_path.glob(".out.*.tmp"))) == 1
    with scratch("other") as folder:
        assert list(place.iterdir()) == [folder]
    with replacing(out) as unfinished:
        unfinished.write_text("whole")
        assert list(tmp_path.glob(".out.*.tmp")) == [unfinished]
    assert out.read_text() == "whole" and sweep() == 0


def test_what_is_not_ours_is_left_alone(place: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / LOCK).touch()
    (place / "vtax-link").symlink_to(secret)
    (place / "vtax-no-lock").mkdir()
    (place / "vtax-pipe").mkdir()
    os.mkfifo(place / "vtax-pipe" / LOCK)
    (place / "other").mkdir()
    (place / "other" / LOCK).touch()
    (place / "vtax-linked-lock").mkdir()
    (place / "vtax-linked-lock" / LOCK).symlink_to(secret / LOCK)
    before = sorted(place.iterdir())
    assert sweep() == 0
    assert sorted(place.iterdir()) == before and (secret / LOCK).exists()
