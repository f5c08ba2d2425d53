"""The run folder: nothing finished is lost, nothing damaged is believed."""

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtax.errors import MisuseError, VtaxError
from vtax.formats.folder import JOURNAL, RECORD, SAMPLES, RunFolder, columns, load, slug
from vtax.formats.model import RunRecord, Sample

SAMPLE = Sample(
    environment="native",
    workload="hpcc",
    metric="HPL_Tflops",
    unit="TFLOP/s",
    better="higher",
    value=0.05,
    repetition=0,
    boot=0,
    position=3,
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
RECORD_OF_ONE = RunRecord(
    vtax_version="0",
    verb="compare",
    command_line=("vtax",),
    name="hpcc",
    started_utc="2026-01-01T00:00:00+00:00",
    workload="hpcc",
    workload_parameters={},
    repetitions=1,
    reboot="never",
    budget_s=None,
    margin_percent=2,
    seed=1,
    order=(("native", 0),),
    environments=(),
)


def some(count: int) -> list[Sample]:
    return [dataclasses.replace(SAMPLE, repetition=number) for number in range(count)]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path, "hpcc small")
    made.write_record(RECORD_OF_ONE)
    return made


def test_samples_come_back_before_and_after_finishing(folder: RunFolder) -> None:
    folder.append(some(2))
    folder.append([dataclasses.replace(SAMPLE, steal_s=0.25)])
    before = load(folder.path)
    folder.finish(before[1])
    assert load(folder.path) == before
    assert (folder.path / SAMPLES).exists() and not (folder.path / JOURNAL).exists()
    assert before[1][0].steal_s is None and before[1][2].steal_s == 0.25


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_a_journal_cut_anywhere_keeps_every_whole_line(tmp_path_factory, cut: int) -> None:  # type: ignore[no-untyped-def]
    folder = RunFolder.create(tmp_path_factory.mktemp("runs"), "x")
    folder.write_record(RECORD_OF_ONE)
    folder.append(some(4))
    journal = folder.path / JOURNAL
    content = journal.read_bytes()[: cut % (journal.stat().st_size + 1)]
    journal.write_bytes(content)
    found = load(folder.path)[1]
    # A last line that lacks only its newline is whole.
    assert content.count(b"\n") <= len(found) <= content.count(b"\n") + 1
    assert found == some(len(found))


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


def test_a_read_only_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VtaxError, match="--out"):
        RunFolder.create(tmp_path / "file" / "runs", "x")


def test_what_is_no_run_is_a_misuse(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="no run folder"):
        load(tmp_path)


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
    assert list(columns()) == [field.name for field in dataclasses.fields(Sample)]


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
