"""Real recordings: whether this machine can make them, starting them, reading them."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from command_line import SOURCE
from vtax.core.errors import VtaxError
from vtax.core.recorder.options import RecordOptions
from vtax.core.recorder.recorder import Recorder


@functools.cache
def obstacle() -> str | None:
    """Why this machine cannot record, found by trying a recording."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        try:
            with Recorder(
                RecordOptions.of(every="10ms").arguments(), Path(folder) / "out"
            ) as recorder:
                recorder.ready()
                recorder.finish()
        except VtaxError as error:
            return str(error)
    return None


def environment() -> Mapping[str, str]:
    return {
        **os.environ,
        "COLUMNS": "100",
        "TERM": "dumb",
        "PYTHONPATH": str(SOURCE),
    }


def line(verb: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "vtax.main", verb, *arguments]


def started(arguments: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        line("record", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=folder,
        start_new_session=True,
        # A shell's background job ignores SIGINT, and so would the processes that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def await_bytes(path: Path, size: int, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not path.exists() or path.stat().st_size < size:
        assert time.monotonic() < deadline, f"{path} does not grow"
        time.sleep(0.02)


def described(run: Path) -> list[dict[str, Any]]:
    columns = json.loads((run / "events.json").read_text())["columns"]
    assert isinstance(columns, list)
    return columns


def sums_agree(run: Path) -> None:
    """Check that the rows hold what events.json says was counted."""
    rows = pl.read_parquet(run / "intervals.parquet")
    for column in described(run):
        assert rows[column["name"]].sum() == column["sum"], column["name"]
