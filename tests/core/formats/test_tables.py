"""Forged tables and files of run folders: the answer is one line, soon, in little memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recording_data
from command_line import SOURCE, one_line, run, vtax
from vtax.core.errors import VtaxError
from vtax.core.formats import tables
from vtax.core.formats.files import open_regular, read_bounded
from vtax.core.recorder.intervals import FIXED, load

MADE_UP = st.sampled_from(
    [
        ["text", "y"],
        [[1, 2], [3]],
        [1.5, 2.5],
        [None, None],
        [1, None],
        [b"x", b"y"],
        [True, False],
        [{"a": 1}, {"a": 2}],
        [(1 << 63) - 1] * 2,
        [-(1 << 63), 5],
        [float("nan"), 1.0],
        [1e308, 1e308],
        [1e-320, -1e308],
        [0, 0],
    ]
)
"""Two values of a column."""


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from([*FIXED, "kvm.exits", "hw.cycles.user"]), MADE_UP, max_size=4),
    st.booleans(),
)
def test_a_recording_of_any_columns_is_read_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, list[Any]], stream: bool
) -> None:
    frame = recording_data.rows(1, n=2, cpus=1)
    frame = frame.with_columns(
        pl.Series(name, values, strict=False) for name, values in changes.items()
    )
    folder = recording_data.write(tmp_path_factory.mktemp("run") / "run", frame, stream=stream)
    try:
        found = load(folder)
    except VtaxError as error:
        assert "\n" not in str(error)
        return
    for event in found.events:
        if not event.is_level:
            assert found.total(event) is None or abs(found.total(event) or 0) < 1 << 63


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("cpu", ["0", "1"], "its column cpu is String, no whole number"),
        ("time_ns", [[1], [2]], "its column time_ns has List(Int64), not values"),
        ("length_ns", [0.5, 1.5], "its column length_ns is Float64, no whole number"),
        ("comm", [["a"], ["b"]], "its column comm has List(String), not values"),
        ("kvm.exits", [1e308, 1e308], "its column kvm.exits has values that no counter has"),
        ("seq", [1, None], "its column seq lacks values"),
    ],
)
def test_vtax_says_which_column_it_is(
    tmp_path: Path, environment: dict[str, str], name: str, values: list[Any], said: str
) -> None:
    frame = recording_data.rows(1, n=2, cpus=1).with_columns(pl.Series(name, values, strict=False))
    folder = recording_data.write(tmp_path / "run", frame)
    for verb in (("timeline", "--event", "kvm.exits"), ("correlate",)):
        assert said in one_line(run(environment, *verb, str(folder)), 1)


@pytest.mark.parametrize(
    ("rows", "columns", "file_bytes", "refused"),
    [
        (60_000_000, 4, 275_204, True),
        (1_000_000, 30, 5_000_000, False),
        (10_000_000, 13, 200_000_000, False),
        (1 << 40, 1, 1 << 32, True),
        (20_000, 23, 100_000, False),
    ],
)
def test_a_table_is_bounded_by_its_file(
    rows: int, columns: int, file_bytes: int, refused: bool
) -> None:
    try:
        tables.require_size(Path("x"), file_bytes, rows, columns)
    except VtaxError:
        assert refused
    else:
        assert not refused


PEAK = r"""
import re, sys
from pathlib import Path
from vtax.core.recorder.intervals import load
from vtax.core.errors import VtaxError
try:
    load(Path(sys.argv[1]))
except VtaxError as error:
    print(error)
# Not ru_maxrss, which begins with that of the process that started this one.
print(re.search(r'VmHWM:\s+([0-9]+)', Path('/proc/self/status').read_text())[1])
"""


@pytest.mark.parametrize("stream", [False, True])
def test_sixty_million_rows_are_refused_before_they_are_read(
    tmp_path: Path, environment: dict[str, str], stream: bool
) -> None:
    folder = recording_data.write(tmp_path / "run", recording_data.rows(1, n=2), stream=stream)
    (path,) = folder.glob("intervals.*")
    _write_zeros(path, 60_000_000 if not stream else 15_000_000)
    assert path.stat().st_size < 5 << 20
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(folder)],
        env=environment | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    said, peak = done.stdout.splitlines()
    assert "claims" in said and "refused" in said
    assert int(peak) < 300_000


def _write_zeros(path: Path, rows: int) -> None:
    """Write in a process of its own, so that its memory is not the test's."""
    script = "import polars as pl, sys\n"
    script += "names = ['seq', 'cpu', 'time_ns', 'length_ns']\n"
    script += f"one = pl.repeat(1, {rows}, dtype=pl.Int64, eager=True)\n"
    script += "table = pl.DataFrame({name: one for name in names})\n"
    script += (
        "table.write_parquet(sys.argv[1])\n"
        if path.suffix == ".parquet"
        else "table.write_ipc_stream(sys.argv[1], compression='zstd')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)


def _pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def _terminal(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/ptmx")


def _folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


UNUSUAL = [_pipe, _device, _terminal, _folder]


@pytest.mark.parametrize("make", UNUSUAL)
def test_only_regular_files_are_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "file"
    make(path)
    with pytest.raises((VtaxError, OSError), match=r"regular file|Is a directory"):
        read_bounded(path, 100)
    path = tmp_path / "real"
    path.write_bytes(b"content")
    with open_regular(path) as file:
        assert file.read() == b"content"


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("runs")
    quick = ("--baseline", "none", "--no-control", "--no-warm-up", "--reps", "1", "--quiet")
    done = vtax("compare", "--in", "native", *quick, "--out", str(parent), "--", "true")
    assert done.returncode == 0, done.stderr
    return next(parent.iterdir())


@pytest.mark.parametrize("make", [_pipe, _device])
@pytest.mark.parametrize("name", ["run.json", "samples.parquet", "samples.jsonl"])
def test_a_run_folder_with_a_pipe_or_a_device_is_one_line(
    tmp_path: Path,
    environment: dict[str, str],
    finished_run: Path,
    make: Callable[[Path], None],
    name: str,
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished_run, folder)
    if name == "samples.jsonl":
        (folder / "samples.parquet").unlink()
    make(folder / name)
    done = run(environment, "report", str(folder), timeout=300)
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("make", [_pipe, _device])
@pytest.mark.parametrize(
    "name", ["run.json", "intervals.parquet", "intervals.arrows", "events.json", "record.json"]
)
def test_a_recording_with_a_pipe_or_a_device_is_no_hang(
    tmp_path: Path, environment: dict[str, str], make: Callable[[Path], None], name: str
) -> None:
    stream = name.endswith("arrows")
    folder = recording_data.write(tmp_path / "run", recording_data.rows(1), stream=stream)
    make(folder / name)
    for verb in (("timeline", "--event", "kvm.exits"), ("report",)):
        done = run(environment, *verb, str(folder), timeout=300)
        assert "Traceback" not in done.stderr and done.stderr.count("\n") <= 1, done.stderr


def test_a_sweep_with_a_pipe_is_one_line(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "sweep"
    for name in ("sweep.json", "points.jsonl", "sweep.parquet"):
        folder.mkdir()
        _pipe(folder / name)
        done = run(environment, "report", str(folder), timeout=300)
        assert "run folder" in one_line(done, 2) or "regular file" in one_line(done, 2)
        shutil.rmtree(folder)
