"""Reading what the recorder left, whole or torn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recording_data
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.recorder.arrow_stream import END, whole_messages
from vtax.core.recorder.intervals import CPI, axis_of, load, load_all, merged, rates, select, series
from vtax.core.recorder.ways import By, Per


def written(folder: Path, **changes: pl.Expr) -> Path:
    frame = recording_data.rows(1, n=40).with_columns(**changes)
    return recording_data.write(folder, frame)


def test_a_finished_recording(tmp_path: Path) -> None:
    recording = load(recording_data.write(tmp_path / "run", recording_data.rows(1)))
    assert recording.notes == ()
    assert recording.label == "run"
    assert recording.frame.height == 600
    assert [event.name for event in recording.events][-1] == CPI
    expected = recording.frame["length_cycles"] / recording.frame["length_instructions"]
    assert recording.frame[CPI].equals(expected.alias(CPI))


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[int]]:
    """A stream of four batches of 10 rows, and where each batch ends.

    It is put together from streams of one batch: a schema message has no body, so its end is known.
    """
    frame = recording_data.rows(1, n=20)
    path = tmp_path_factory.mktemp("stream") / "intervals.arrows"
    content, ends = b"", []
    for start in range(0, 40, 10):
        frame[start : start + 10].write_ipc_stream(path)
        one = path.read_bytes().removesuffix(END)
        schema = 8 + int.from_bytes(one[4:8], "little")
        content += one[schema:] if content else one
        ends.append(len(content))
    return content + END, ends


@given(share=st.floats(0.0, 1.0))
@settings(max_examples=100, deadline=None)
def test_a_stream_cut_anywhere_gives_its_whole_batches(
    stream: tuple[bytes, list[int]], share: float
) -> None:
    content, ends = stream
    cut = int(share * len(content))
    batches = sum(end <= cut for end in ends)
    try:
        whole = whole_messages(content[:cut])
    except ValueError:
        assert batches == 0
        return
    assert pl.read_ipc_stream(whole.stream).height == whole.rows == 10 * batches
    if batches:
        assert whole.torn_bytes == (0 if cut == len(content) else cut - ends[batches - 1])


@given(content=st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_refused_or_read(content: bytes) -> None:
    try:
        whole = whole_messages(b"\xff\xff\xff\xff" + content)
    except ValueError:
        return
    assert 0 <= whole.torn_bytes <= len(content) + 4 and whole.rows >= 0
    assert whole.stream.read()


def test_a_killed_recorder_is_said(tmp_path: Path) -> None:
    folder = recording_data.write(tmp_path / "run", recording_data.rows(1, n=50), stream=True)
    path = folder / "intervals.arrows"
    path.write_bytes(path.read_bytes()[:-8] + b"\xff\xff\xff\xff\x10\0\0\0torn")
    recording = load(folder)
    assert recording.frame.height == 100
    assert "did not finish" in recording.notes[0]
    assert "12 bytes" in recording.notes[0]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "intervals.parquet").unlink(), "neither intervals.parquet"),
        (lambda f: (f / "intervals.parquet").write_bytes(b"PAR1"), "is damaged: "),
        (
            lambda f: (f / "events.json").write_text('{"columns": [{"unit": "x"}]}'),
            r"events.json: columns\.0\.name",
        ),
        (lambda f: (f / "record.json").write_text("[]"), "record.json cannot be understood"),
        (lambda f: (f / "record.json").write_text('{"format": 9}'), "format 9, this vtax reads 1"),
        (
            lambda f: pl.DataFrame({"cpu": [1], "kvm.exits": [1]}).write_parquet(
                f / "intervals.parquet"
            ),
            "no column seq, time_ns, length_ns",
        ),
    ],
)
def test_what_is_broken_is_named(tmp_path: Path, spoil: object, message: str) -> None:
    folder = written(tmp_path / "run")
    assert callable(spoil)
    spoil(folder)
    with pytest.raises(VtaxError, match=message):
        load(folder)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="is not a run folder"):
        load(tmp_path / "absent")


def test_lost_rows_and_rows_of_no_length_are_said(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "run",
        lost=pl.when(pl.col("seq") == 5).then(3).otherwise(0),
        length_ns=pl.when(pl.col("seq") == 7).then(0).otherwise(pl.col("length_ns")),
    )
    (folder / "record.json").unlink()  # as after a kill; it has the recorder's own words
    notes = load(folder).notes
    assert notes == ("2 rows without a length in time left out", "6 rows lost while recording")


def test_the_recorders_warnings_are_passed_on(tmp_path: Path) -> None:
    folder = written(tmp_path / "run")
    (folder / "record.json").write_text('{"format": 1, "warnings": ["a vPMU counts nothing"]}')
    assert load(folder).notes == ("a vPMU counts nothing",)


def test_rates_are_per_true_length(tmp_path: Path) -> None:
    recording = load(written(tmp_path / "run"))
    events = select(recording.events, "kvm.exits")
    row = recording.frame.row(0, named=True)
    for per in Per:
        rate = rates(recording.frame, events, per)["kvm.exits"][0]
        assert rate == pytest.approx(row["kvm.exits"] / row[per.column] * 1e9)


def test_without_a_pmu_rates_are_per_second(tmp_path: Path) -> None:
    frame = recording_data.rows(1, n=40, pmu=False)
    recording = load(recording_data.write(tmp_path / "run", frame))
    assert axis_of([recording], None) is Per.SECOND
    assert CPI not in [event.name for event in recording.events]
    with pytest.raises(MisuseError, match="counted no instructions; use --per s"):
        axis_of([recording], Per.GIGA_INSTRUCTION)


def test_unknown_events_are_answered_with_the_nearest(tmp_path: Path) -> None:
    recording = load(written(tmp_path / "run"))
    assert [e.name for e in select(recording.events, "kvm.*")] == ["kvm.exits", "kvm.exit.npf"]
    with pytest.raises(MisuseError, match=r"did you mean 'kvm\.exits'"):
        select(recording.events, "kvm.exts")
    with pytest.raises(MisuseError, match="no event is named"):
        select(recording.events, " , ")


def test_series_leave_out_what_belongs_to_none(tmp_path: Path) -> None:
    host = pl.when(pl.col("cpu") == 0)
    folder = written(
        tmp_path / "run",
        vm=host.then(0).otherwise(pl.col("vm")),
        tid=host.then(0).otherwise(pl.col("tid")),
    )
    recording = load(folder)
    assert [name for name, _ in series(recording, By.CPU)] == ["CPU 0", "CPU 1"]
    assert [name for name, _ in series(recording, By.VM)] == ["VM 4000 vCPU 1"]
    assert [name for name, _ in series(recording, By.TASK)] == ["task 4002"]


def test_merged_rows_bring_rotated_counters_together(tmp_path: Path) -> None:
    turn = pl.col("seq") % 2 == 0
    folder = written(
        tmp_path / "run",
        **{
            "hw.branch_misses": pl.when(turn).then(pl.col("length_instructions")),
            "hw.dtlb_load_misses": pl.when(~turn).then(pl.col("length_instructions") * 2),
        },
    )
    recording = load(folder)
    events = select(recording.events, "hw.branch_misses,hw.dtlb_load_misses,kvm.exits")
    rows = series(recording, By.CPU)[0][1]
    pairs = merged(rows, events, 2)
    assert pairs.height == 20
    assert pairs["kvm.exits"].sum() == rows["kvm.exits"].sum()
    assert pairs["length_ns"].sum() == rows["length_ns"].sum()
    found = rates(pairs, events, Per.GIGA_INSTRUCTION)
    assert found["hw.branch_misses"].to_list() == pytest.approx([1e9] * 20)
    assert found["hw.dtlb_load_misses"].to_list() == pytest.approx([2e9] * 20)


def test_a_part_of_a_rotation_is_not_scaled_to_a_merged_row(tmp_path: Path) -> None:
    turn = pl.col("seq") % 8 < 4
    folder = written(
        tmp_path / "run",
        **{
            "hw.branch_misses": pl.when(turn & (pl.col("seq") % 4 > 0)).then(pl.lit(3)),
            "hw.dtlb_load_misses": pl.when(~turn & (pl.col("seq") % 4 > 0)).then(pl.lit(5)),
        },
    )
    recording = load(folder)
    events = select(recording.events, "hw.branch_misses,hw.dtlb_load_misses,kvm.exits")
    rows = series(recording, By.CPU)[0][1]
    # The first of two rows may be at a turn: then the second does not speak for both.
    pairs = merged(rows, events, 2)
    assert pairs["hw.branch_misses"].to_list()[:4] == [None, 6, None, None]
    assert pairs["hw.dtlb_load_misses"].to_list()[:4] == [None, None, None, 10]
    assert pairs["kvm.exits"].null_count() == 0
    cycles = merged(rows, events, 8)
    assert cycles["hw.branch_misses"].null_count() == 0
    lengths = rows["length_instructions"].to_list()
    share = sum(lengths[:8]) / sum(lengths[1:4])
    assert cycles["hw.branch_misses"][0] == pytest.approx(9 * share)


def test_a_part_is_no_total(tmp_path: Path) -> None:
    recording = load(recording_data.write(tmp_path / "run", recording_data.rows(1)))
    exits = recording.event("kvm.exits")
    lengths = recording.frame["length_ns"].sum()
    assert recording.total(exits) == recording.frame["kvm.exits"].sum()
    assert recording.measured_ns(exits) == lengths
    part = exits.model_copy(update={"coverage": 0.25})
    halved = pl.when(pl.col("seq") % 2 == 0).then(pl.col("kvm.exits"))
    frame = recording.frame.with_columns(halved)
    turned = replace(recording, frame=frame)
    assert turned.total(part) is None
    even = frame.filter(pl.col("seq") % 2 == 0)
    assert turned.measured_ns(part) == even["length_ns"].sum() < lengths


def test_a_sample_of_a_page_is_of_all_rows_since_the_one_before(tmp_path: Path) -> None:
    frame = recording_data.rows(1, n=40).sort("time_ns").with_row_index("at")
    # There is a sample in every fifth row, and none in the last rows.
    sampled = (pl.col("at") % 5 == 4) & (pl.col("at") < 70)
    counted = pl.when(sampled).then(1000 + pl.col("at")).alias("guest.pgfault")
    frame = frame.with_columns(counted).drop("at")
    recording = load(recording_data.write(tmp_path / "run", frame))
    event = recording.event("guest.pgfault")
    assert recording.total(event) == frame["guest.pgfault"].sum()
    spread = recording.frame.sort("time_ns")
    assert spread[70:]["guest.pgfault"].null_count() == 10
    rate = rates(spread, [event], Per.SECOND)["guest.pgfault"]
    for first in range(0, 70, 5):
        value = 1000 + first + 4
        expected = value / spread[first : first + 5]["length_ns"].sum() * 1e9
        assert rate[first : first + 5].to_list() == pytest.approx([expected] * 5)


def test_labels_and_paths_with_an_equals_sign(tmp_path: Path) -> None:
    odd = written(tmp_path / "a=b")
    found = load_all([str(odd), f"native={odd}"])
    assert [one.label for one in found] == ["a=b", "native"]


def test_counted_parts_have_a_cpi_of_their_own(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "run",
        **{"hw.cycles.user": pl.lit(300), "hw.instructions.user": pl.lit(200)},
    )
    described = json.loads((folder / "events.json").read_text())["columns"]
    assert "hw.cycles.user" not in [entry["name"] for entry in described]
    recording = load(folder)
    assert recording.event("hw.cycles.user").unit == ""
    assert set(recording.frame["derived.cpi.user"]) == {1.5}
