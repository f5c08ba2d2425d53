"""The run folder: nothing finished is lost, nothing damaged is believed."""

import dataclasses
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from record_data import RECORD_OF_ONE, RECORDING
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.folder import JOURNAL, RECORD, SAMPLES, RunFolder, load, read_record, slug
from vtax.core.formats.model import (
    MachineRecord,
    RecordingRecord,
    Sample,
)
from vtax.core.formats.samples import columns, frame

SAMPLE = Sample(
    environment="native",
    workload="hpcc",
    metric="HPL_Tflops",
    unit="TFLOP/s",
    better="higher",
    value=0.05,
    repetition=0,
    boot=0,
    position=0,
    wall_s=1.5,
    cpu_s=1.4,
    steal_s=None,
    host_wall_s=1.51,
    max_rss_bytes=1 << 20,
    minor_faults=5,
    major_faults=0,
    voluntary_switches=2,
    involuntary_switches=1,
)


NOBODY = 65534


def some(count: int) -> list[Sample]:
    return [dataclasses.replace(SAMPLE, repetition=n, position=n) for n in range(count)]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path, "hpcc small")
    made.write_record(RECORD_OF_ONE)
    return made


def test_samples_come_back_before_and_after_finishing(folder: RunFolder) -> None:
    folder.append(some(2))
    folder.append([dataclasses.replace(SAMPLE, metric="other", steal_s=0.25)])
    before = load(folder.path)
    folder.finish(before[1])
    assert load(folder.path) == before
    assert (folder.path / SAMPLES).exists() and not (folder.path / JOURNAL).exists()
    assert before[1][0].steal_s is None and before[1][2].steal_s == 0.25


def test_samples_of_an_older_vtax_have_no_run_id(folder: RunFolder) -> None:
    folder.finish(some(2))
    table = pl.read_parquet(folder.path / SAMPLES).drop("run_id")
    table.write_parquet(folder.path / SAMPLES)
    assert load(folder.path)[1] == some(2)


def test_two_runs_in_one_second_get_two_folders(tmp_path: Path) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    first, second = (RunFolder.create(tmp_path, "a b", now) for _ in range(2))
    assert first.path.name == "20260102T030405Z-a-b"
    assert second.path.name == "20260102T030405Z-a-b-2"
    assert first.path.stat().st_mode & 0o777 == 0o700


def test_only_one_process_writes(folder: RunFolder) -> None:
    other = RunFolder(folder.path)
    assert not other.claim()
    folder.release()
    assert other.claim()


@pytest.fixture
def raw_of_a_user() -> Iterator[Path]:
    """The raw folder of a user who is not root, whom permissions stop."""
    run = Path(tempfile.mkdtemp(prefix="vtax-test-"))
    (run / "raw").mkdir()
    if os.geteuid() == 0:
        os.chown(run, NOBODY, NOBODY)
        os.chown(run / "raw", NOBODY, NOBODY)
    yield run / "raw"
    (run / "raw/closed").chmod(0o700)
    shutil.rmtree(run)


def as_user(what: Callable[[], object]) -> None:
    if os.geteuid() != 0:
        what()
        return
    child = os.fork()
    if child == 0:
        os.setuid(NOBODY)
        what()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_links_go_from_closed_folders_too_and_no_program_keeps_its_rights(
    raw_of_a_user: Path,
) -> None:
    def guest() -> None:
        closed = raw_of_a_user / "closed"
        (closed / "in").mkdir(parents=True)
        (closed / "in/link").symlink_to("/etc/passwd")
        os.mkfifo(closed / "in/pipe")
        (closed / "in/kept").write_text("kept")
        (closed / "in/program").write_text("x")
        (closed / "in/program").chmod(0o6755)
        (closed / "in").chmod(0)
        closed.chmod(0)

    as_user(guest)
    as_user(lambda: RunFolder(raw_of_a_user.parent).clean_raw())
    inside = raw_of_a_user / "closed/in"
    assert sorted(each.name for each in inside.iterdir()) == ["kept", "program"]
    assert (inside / "program").stat().st_mode & 0o7777 == 0o755
    assert (inside / "kept").read_text() == "kept"


def test_a_read_only_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VtaxError, match="--out"):
        RunFolder.create(tmp_path / "file" / "runs", "x")


@pytest.mark.parametrize("what", ["empty", "missing", "file", "folder in place of run.json"])
def test_what_is_no_run_is_a_misuse(tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    if what == "file":
        path.write_text("{}")
    elif what != "missing":
        path.mkdir()
    if what.startswith("folder"):
        (path / RECORD).mkdir()
    with pytest.raises(MisuseError, match=r"is not a run folder: run\.json"):
        load(path)


def test_records_of_every_verb_come_back(folder: RunFolder) -> None:
    for record in (RECORD_OF_ONE, RECORDING):
        folder.write_record(record)
        assert read_record(folder.path) == record
    with pytest.raises(MisuseError, match="is a recording"):
        load(folder.path)


def test_a_recording_has_nothing_of_a_comparison() -> None:
    fields = set(RecordingRecord.model_fields) | set(MachineRecord.model_fields)
    assert not fields & {"margin_percent", "seed", "order", "repetitions", "reboot", "role"}


@pytest.mark.parametrize("version", [1, 3])
def test_another_schema_version_is_refused_by_name(folder: RunFolder, version: int) -> None:
    path = folder.path / RECORD
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": version}))
    expected = rf"run.json has schema version {version}; this vtax reads 2; .*run it again"
    with pytest.raises(MisuseError, match=expected):
        load(folder.path)


def test_a_run_without_samples_is_no_empty_run(folder: RunFolder) -> None:
    with pytest.raises(VtaxError, match=r"has no samples: neither samples\.parquet nor"):
        load(folder.path)
    folder.finish([])
    assert load(folder.path)[1] == []


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"environment": "uml"}, "the run has no such environment"),
        ({"workload": "stream"}, "its workload is stream, the run's is hpcc"),
        ({"position": 4}, "another repetition at position 4"),
        ({"position": 5}, "another repetition at position 5"),
        ({"repetition": 4}, "another repetition at position 1"),
        ({"repetition": 0, "position": 0}, "it is there twice"),
        ({"value": math.nan}, "value: Input should be a finite number"),
        ({"value": math.inf}, "value: Input should be a finite number"),
        ({"steal_s": math.nan}, "steal_s: Input should be a finite number"),
        ({"minor_faults": -1}, "minor_faults: Input should be greater than or equal to 0"),
        ({"run_id": "0a"}, "its run is 0a, that of run.json is None"),
        ({"better": "sideways"}, "better: Input should be 'higher' or 'lower'"),
    ],
)
def test_samples_that_cannot_be_of_the_run_are_refused(
    folder: RunFolder, change: dict[str, Any], reason: str, finished: bool
) -> None:
    first, second = some(2)
    samples = [first, dataclasses.replace(second, **change)]
    if finished:
        folder.finish(samples)
    else:
        folder.append(samples)
    said = f"row 1.*{reason}"
    if reason.endswith("finite number") and not finished:
        said = "line 2 is not a JSON object: (NaN|Infinity) is not JSON"
    with pytest.raises(VtaxError, match=said) as caught:
        load(folder.path)
    assert str(folder.path / (SAMPLES if finished else JOURNAL)) in str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        pl.DataFrame({"value": [1.0]}),
        frame([SAMPLE]).with_columns(pl.lit("text").alias("value")),
        frame([SAMPLE]).with_columns(pl.lit(None).alias("wall_s")),
        frame([SAMPLE]).with_columns(pl.lit(1.5).alias("boot")),
    ],
)
def test_columns_of_another_type_are_refused(folder: RunFolder, table: pl.DataFrame) -> None:
    table.write_parquet(folder.path / SAMPLES)
    with pytest.raises(VtaxError, match=r"samples.parquet is damaged: row 0: \w+: "):
        load(folder.path)


@pytest.mark.parametrize(
    ("change", "where"),
    [({"seed": "x"}, "seed"), ({"surprise": 1}, "surprise"), ({"reboot": "often"}, "reboot")],
)
def test_a_damaged_record_names_the_field(
    folder: RunFolder, change: dict[str, object], where: str
) -> None:
    path = folder.path / RECORD
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(VtaxError, match=where):
        load(folder.path)


@given(st.binary(max_size=200))
@settings(max_examples=40, deadline=None)
def test_garbage_for_parquet_is_one_line(tmp_path_factory, data: bytes) -> None:  # type: ignore[no-untyped-def]
    folder = RunFolder.create(tmp_path_factory.mktemp("runs"), "x")
    folder.write_record(RECORD_OF_ONE)
    (folder.path / SAMPLES).write_bytes(data)
    with pytest.raises(VtaxError, match="is damaged"):
        load(folder.path)


def test_every_column_is_described() -> None:
    fields = [field.name for field in dataclasses.fields(Sample)]
    assert list(columns()) == fields


@given(st.text(max_size=200))
def test_a_slug_is_a_plain_file_name(text: str) -> None:
    made = slug(text)
    assert made not in ("", ".", "..") and "/" not in made and len(made) <= 60
    assert made.isascii()


def test_names_with_one_slug_have_folders_of_their_own(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run")
    long = "ssh:" + "x" * 70
    names = ("ssh:a_b", "ssh:a-b", f"{long}1", f"{long}2")
    made = [folder.raw(name) for name in names]
    assert len(set(made)) == len(names)
    assert [folder.raw(name) for name in names] == made
