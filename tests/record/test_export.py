"""An export contains what was recorded: it is decoded again, and read by Perfetto's own program."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from syrupy.assertion import SnapshotAssertion

import recording_data
from command_line import vtax
from vtax.core.recorder.intervals import ROWS, STACKS, STREAM, Event, Recording, load, select
from vtax.core.recorder.ways import Per
from vtax.record.export.perfetto import MONOTONIC, write_trace


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    frame = recording_data.rows(1, n=50).with_columns(
        pl.when(pl.col("seq") != 10).then(pl.col("kvm.exits")).alias("kvm.exits")
    )
    return load(recording_data.write(tmp_path / "run", frame))


def decoded(path: Path) -> Any:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    return trace


def values(trace: Any, name: str) -> list[tuple[int, float]]:
    """Times and values of the counter track of that name."""
    tracks = {
        packet.track_descriptor.name: packet.track_descriptor.uuid
        for packet in trace.packet
        if packet.HasField("track_descriptor")
    }
    return [
        (packet.timestamp, packet.track_event.double_counter_value)
        for packet in trace.packet
        if packet.track_event.track_uuid == tracks[name]
        and packet.track_event.type == packet.track_event.TYPE_COUNTER
    ]


def test_counters_hold_the_rates_at_the_start_of_each_interval(
    recording: Recording, tmp_path: Path
) -> None:
    path = tmp_path / "x.pftrace"
    write_trace(recording, select(recording.events, "kvm.exits"), Per.SECOND, path)
    rows = recording.frame.filter(pl.col("cpu") == 1)
    found = dict(values(decoded(path), "kvm.exits CPU 1"))
    for row in rows.iter_rows(named=True):
        start = row["time_ns"] - row["length_ns"]
        if row["kvm.exits"] is None:
            assert math.isnan(found[start])
        elif start in found:  # absent only when it repeats the value before
            assert found[start] == pytest.approx(row["kvm.exits"] / row["length_ns"] * 1e9)
    assert len(found) > 45
    assert math.isnan(found[rows["time_ns"].max()])  # type: ignore[index]


def test_the_clock_is_the_monotonic_one(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "x.pftrace"
    write_trace(recording, recording.events, Per.SECOND, path)
    trace = decoded(path)
    first = trace.packet[0]
    assert first.clock_snapshot.primary_trace_clock == MONOTONIC
    assert first.trace_packet_defaults.timestamp_clock_id == MONOTONIC
    assert {packet.timestamp_clock_id for packet in trace.packet} == {0}  # the default above
    assert {packet.trusted_packet_sequence_id for packet in trace.packet} == {1}


def test_slices_begin_and_end_in_turn_and_last_as_long_as_the_rows(
    recording: Recording, tmp_path: Path
) -> None:
    path = tmp_path / "x.pftrace"
    write_trace(recording, (), Per.SECOND, path)
    lasted: Counter[str] = Counter()
    open_slices: dict[int, tuple[str, int]] = {}
    names = {
        packet.track_descriptor.uuid: packet.track_descriptor.name
        for packet in decoded(path).packet
        if packet.HasField("track_descriptor")
    }
    for packet in decoded(path).packet:
        event = packet.track_event
        if event.type == event.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in open_slices
            open_slices[event.track_uuid] = (event.name, packet.timestamp)
        elif event.type == event.TYPE_SLICE_END:
            name, begin = open_slices.pop(event.track_uuid)
            if "mode" in names[event.track_uuid]:
                lasted[name] += packet.timestamp - begin
    assert open_slices == {}
    wanted = recording.frame.group_by("mode").agg(pl.col("length_ns").sum())
    assert lasted == dict(wanted.iter_rows())


STACKED = (
    "guest user;qemu;qemu`main;[guest]",
    "host kernel;make;make`main;[kernel]`do_syscall_64",
    "idle;swapper/0",
    "host user;make;make`main;libc.so.6+0x20;[no file]",
)
"""Stacks as a recorder writes them; one has no frame."""


def stacked(recording: Recording, numbers: list[int | None]) -> Recording:
    """The recording with these stacks, one after the other, in its rows."""
    text = "".join(f"{stack} {weight}\n" for weight, stack in enumerate(STACKED))
    (recording.path / STACKS).write_text(text)
    rows = recording.frame.height
    column = pl.Series("stack", [numbers[row % len(numbers)] for row in range(rows)], pl.Int64)
    return replace(recording, frame=recording.frame.with_columns(column))


def samples(trace: Any) -> Iterator[tuple[int, int, int, int, str]]:
    """Time, CPU, thread, mode and frames of each sample, by what is interned before it."""
    known: dict[str, dict[int, Any]] = {}
    for packet in trace.packet:
        for kind in ("mapping_paths", "mappings", "function_names", "frames", "callstacks"):
            own = getattr(packet.interned_data, kind)
            known.setdefault(kind, {}).update({each.iid: each for each in own})
        if not packet.HasField("perf_sample"):
            continue
        sample, frames = packet.perf_sample, []
        for number in known["callstacks"][sample.callstack_iid].frame_ids:
            frame = known["frames"][number]
            (path,) = known["mappings"][frame.mapping_id].path_string_ids
            file = known["mapping_paths"][path].str.decode()
            function = known["function_names"][frame.function_name_id].str.decode()
            frames.append(function if function.startswith(file) else f"{file}`{function}")
        at = (packet.timestamp, sample.cpu, sample.tid, sample.cpu_mode)
        yield (*at, ";".join(frames))


def test_each_row_is_a_sample_of_its_stack(recording: Recording, tmp_path: Path) -> None:
    """Rows without a stack, with one that has no frame, or with one that is not there have none."""
    made = stacked(recording, [1, 0, None, 2, 3, 4, -1])
    write_trace(made, (), Per.SECOND, tmp_path / "x.pftrace")
    found = list(samples(decoded(tmp_path / "x.pftrace")))
    modes = {"guest user": 5, "guest kernel": 4, "vmm kernel": 1}
    wanted = [
        (row["time_ns"], row["cpu"], row["tid"], modes[row["mode"]],
         STACKED[row["stack"]].split(";", 2)[2])
        for row in made.frame.sort("time_ns").iter_rows(named=True)
        if row["stack"] in (0, 1, 3)
    ]  # fmt: skip
    assert found == wanted and len(found) > 30
    tree = [
        p.process_tree for p in decoded(tmp_path / "x.pftrace").packet if p.HasField("process_tree")
    ]
    assert {(thread.tid, thread.tgid) for thread in tree[0].threads} == {(4001, 4000), (4002, 4001)}


def test_a_killed_recording_has_no_samples(recording: Recording, tmp_path: Path) -> None:
    """Its stream has numbers of stacks, and no file says what they are."""
    made = stacked(recording, [0, 1])
    made.frame.select(pl.exclude("^derived.*$")).write_ipc_stream(made.path / STREAM)
    (made.path / ROWS).unlink()
    (made.path / STACKS).unlink()
    done = vtax("export", str(made.path), "--perfetto", "x.pftrace", "--csv", "x.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "did not finish" in done.stdout
    assert not list(samples(decoded(tmp_path / "x.pftrace")))
    assert "stack" not in pl.read_csv(tmp_path / "x.csv").columns


def trace_processor() -> str:
    """Perfetto's program, on the PATH or fetched by its package; else a skip with the reason."""
    found = shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if found:
        return found
    from perfetto.prebuilts.manifests.trace_processor_shell import TRACE_PROCESSOR_SHELL_MANIFEST
    from perfetto.prebuilts.perfetto_prebuilts import get_perfetto_prebuilt

    try:
        return str(get_perfetto_prebuilt(TRACE_PROCESSOR_SHELL_MANIFEST))
    except Exception as error:  # whatever the download fails with
        pytest.skip(f"no trace_processor on PATH, and it cannot be fetched: {error}")


def test_trace_processor_answers_queries(recording: Recording, tmp_path: Path) -> None:
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    program = trace_processor()
    path = tmp_path / "x.pftrace"
    write_trace(stacked(recording, [1]), select(recording.events, "kvm.*"), Per.SECOND, path)
    with TraceProcessor(trace=str(path), config=TraceProcessorConfig(bin_path=program)) as asked:
        tracks = {row.name for row in asked.query("select name from counter_track")}
        assert {"kvm.exits CPU 0", "kvm.exit.npf CPU 1"} <= tracks
        layers = {row.name: row.d for row in asked.query(
            "select slice.name as name, sum(dur) as d from slice join track "
            "on slice.track_id = track.id where track.name like '%mode%' group by 1"
        )}  # fmt: skip
        wanted = recording.frame.group_by("mode").agg(pl.col("length_ns").sum())
        assert layers == dict(wanted.iter_rows())
        (sampled,) = asked.query("select count() as n from perf_sample where callsite_id not null")
        assert sampled.n == recording.frame.height
        (errors,) = asked.query(
            "select coalesce(sum(value), 0) as n from stats where severity = 'error'"
        )
        assert errors.n == 0


def test_files_are_written_and_said(runs: Path) -> None:
    words = ("export", "lab-1", "--perfetto", "x.pftrace", "--csv", "x.csv", "--events", "kvm.*")
    done = vtax(*words, "--json", cwd=runs)
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout)["written"]
    assert written[0]["packets"] == len(decoded(runs / "x.pftrace").packet)
    table = pl.read_csv(runs / "x.csv")
    assert table.height == written[1]["rows"] == 600
    assert table["kvm.exits"].sum() == load(runs / "lab-1").frame["kvm.exits"].sum()
    assert "hw.cycles" not in table.columns


def test_csv_leaves_empty_what_was_not_measured(recording: Recording, tmp_path: Path) -> None:
    from vtax.record.export.csv import write_csv

    write_csv(recording, select(recording.events, "kvm.exits"), tmp_path / "x.csv")
    assert pl.read_csv(tmp_path / "x.csv")["kvm.exits"].null_count() == 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("lab-1",), 2, "nothing to write; say --perfetto FILE, --csv FILE or --flame FILE"),
        (("lab-1", "--csv", "x", "--events", "kvm.exts"), 2, "did you mean 'kvm.exits'?"),
        (("lab-1", "--perfetto", "no/x"), 1, "cannot write no/x: No such file or directory"),
        (("lab-1", "--csv", "no/x"), 1, "cannot write no/x: No such file or directory"),
    ],
)
def test_misuse_and_failure_are_one_line(
    runs: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    done = vtax("export", *words, cwd=runs)
    assert done.returncode == code
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_failure_leaves_the_file_that_was_there(recording: Recording, tmp_path: Path) -> None:
    target = tmp_path / "kept.pftrace"
    target.write_text("before")
    absent = Event(name="not.recorded")
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        write_trace(recording, [absent], Per.SECOND, target)
    assert target.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.pftrace", "run"]


def test_help(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    assert vtax("export", "--help", cwd=tmp_path).stdout == snapshot
