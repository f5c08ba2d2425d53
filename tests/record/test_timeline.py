"""Counts are shared out to bins exactly; the verb around it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

import recording_data
from command_line import vtax
from vtax.core.errors import MisuseError
from vtax.core.recorder.intervals import CPI, Event, Recording, load, select
from vtax.core.recorder.ways import Axis, By, Per
from vtax.record.timeline.analysis import apportioned, timeline
from vtax.record.timeline.cpi import cpi_per_layer
from vtax.record.timeline.page import sketch

counts = st.lists(
    st.tuples(st.floats(1e-3, 1e9), st.floats(0.0, 1e9), st.floats(0.0, 1e6)),
    min_size=1,
    max_size=60,
)


@given(rows=counts, bins=st.integers(1, 50))
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_or_counted_twice(
    rows: list[tuple[float, float, float]], bins: int
) -> None:
    length, value, gap = (np.array(column) for column in zip(*rows, strict=True))
    end = np.cumsum(length + gap)
    start = end - length
    kept = end > start  # a length can vanish beside a large sum
    edges = np.linspace(0.0, end[-1], bins + 1)
    shared = apportioned(start[kept], end[kept], value[kept], edges)
    assert shared.sum() == pytest.approx(value[kept].sum(), rel=1e-9)
    assert (shared >= 0).all()


@given(rows=counts, bins=st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_each_bin_gets_its_overlap(rows: list[tuple[float, float, float]], bins: int) -> None:
    length, value, _ = (np.array(column) for column in zip(*rows, strict=True))
    end = np.cumsum(np.maximum(length, 1.0))
    start = np.concatenate([[0.0], end[:-1]])
    edges = np.linspace(0.0, end[-1], bins + 1)
    shared = apportioned(start, end, value, edges)
    for place in range(bins):
        overlap = np.minimum(end, edges[place + 1]) - np.maximum(start, edges[place])
        plain = (value * np.maximum(overlap, 0.0) / (end - start)).sum()
        assert shared[place] == pytest.approx(plain, rel=1e-6, abs=1e-6 * value.sum())


def test_an_interval_over_many_bins_is_spread_evenly() -> None:
    shared = apportioned(
        np.array([0.0, 10.0]), np.array([10.0, 11.0]), np.array([20.0, 5.0]), np.arange(12.0)
    )
    assert shared == pytest.approx([2.0] * 10 + [5.0])


def made(**columns: list[float | None]) -> Recording:
    """A recording of one CPU whose rows each last a second."""
    n = len(next(iter(columns.values())))
    fixed = {
        "seq": range(n),
        "cpu": [0] * n,
        "time_ns": [recording_data.STARTED_NS + (i + 1) * 10**9 for i in range(n)],
        "length_ns": [10**9] * n,
        "length_cycles": [2 * 10**9] * n,
    }
    lengths = {"length_instructions": [10**9] * n} | columns
    events = tuple(Event(name=name) for name in columns if "." in name)
    return Recording(Path("made"), "made", pl.DataFrame(fixed | lengths), events, ())


def test_rates_leave_out_what_was_not_measured() -> None:
    run = made(**{"a.b": [10, None, 30, None]})
    found = timeline([run], run.events, per=Per.SECOND, axis=Axis.TIME, bins=2).lines[0]
    assert found.values.tolist() == [10.0, 30.0]
    assert (found.coverage, found.mean) == (0.5, 20.0)
    empty = timeline([run], run.events, per=Per.SECOND, axis=Axis.TIME, bins=4).lines[0]
    assert [math.isnan(value) for value in empty.values] == [False, True, False, True]


def test_rates_are_per_the_unit_asked_for() -> None:
    run = made(**{"a.b": [10, 10], "length_instructions": [4 * 10**9, 10**9]})
    per = {
        unit: timeline([run], run.events, per=unit, axis=Axis.TIME, bins=1).lines[0].values[0]
        for unit in Per
    }
    assert per == {Per.SECOND: 10.0, Per.GIGA_INSTRUCTION: 4.0, Per.GIGA_CYCLE: 5.0}


def test_the_instructions_axis_puts_the_same_work_at_the_same_place() -> None:
    slow = made(**{"a.b": [1, 1, 9, 9], "length_instructions": [10**9] * 4})
    fast = made(**{"a.b": [2, 18], "length_instructions": [2 * 10**9] * 2})
    lines = [
        timeline([one], one.events, per=Per.GIGA_INSTRUCTION, axis=Axis.INSTRUCTIONS, bins=2)
        for one in (slow, fast)
    ]
    assert lines[0].lines[0].values.tolist() == lines[1].lines[0].values.tolist() == [1.0, 9.0]
    assert lines[0].edges.tolist() == lines[1].edges.tolist()


def test_repetitions_of_a_label_are_one_line_with_a_range() -> None:
    both = [made(**{"a.b": [1, 1]}), made(**{"a.b": [3, 5]})]
    found = timeline(both, both[0].events, per=Per.SECOND, axis=Axis.TIME, bins=2).lines
    assert len(found) == 1
    assert (found[0].values.tolist(), found[0].runs) == ([2.0, 3.0], 2)
    assert (found[0].low.tolist(), found[0].high.tolist()) == ([1.0, 1.0], [3.0, 5.0])


def test_cpi_is_a_ratio_of_sums(tmp_path: Path) -> None:
    frame = recording_data.rows(1, n=40, cpus=1).with_columns(
        length_instructions=pl.when(pl.col("seq") < 20).then(100).otherwise(300),
        length_cycles=pl.when(pl.col("seq") < 20).then(400).otherwise(300),
    )
    run = load(recording_data.write(tmp_path / "run", frame))
    for per in Per:
        made_line = timeline(
            [run], select(run.events, CPI), per=per, axis=Axis.INSTRUCTIONS, bins=1
        )
        assert made_line.lines[0].values[0] == pytest.approx((400 + 300) / (100 + 300))


def test_counts_in_bins_sum_to_the_recording(tmp_path: Path) -> None:
    run = load(recording_data.write(tmp_path / "run", recording_data.rows(3)))
    events = select(run.events, "kvm.exits")
    for axis in Axis:
        for by in By:
            found = timeline([run], events, per=Per.SECOND, axis=axis, bins=17, by=by).lines[0]
            total = run.frame["kvm.exits"].sum() / run.frame["length_ns"].sum() * 1e9
            assert found.mean == pytest.approx(total)


def test_no_instructions_is_misuse(tmp_path: Path) -> None:
    run = load(recording_data.write(tmp_path / "run", recording_data.rows(3, pmu=False)))
    with pytest.raises(MisuseError, match="counted no instructions; use --axis time --per s"):
        timeline([run], run.events, per=Per.SECOND, axis=Axis.INSTRUCTIONS, bins=4)


def test_cpi_per_layer_is_counted_and_sampled_or_absent(tmp_path: Path) -> None:
    frame = recording_data.rows(4).with_columns(
        **{"hw.cycles.guest": pl.lit(600), "hw.instructions.guest": pl.lit(400)}
    )
    run = load(recording_data.write(tmp_path / "run", frame))
    layers = {layer.name: layer for layer in cpi_per_layer([run]).layers}
    assert list(layers) == ["guest", "guest kernel", "guest user", "vmm kernel"]
    assert (layers["guest"].method, layers["guest"].cpi) == ("counted", 1.5)
    sampled = [layer for layer in layers.values() if layer.method == "sampled"]
    assert sum(layer.cycles for layer in sampled) == run.frame["length_cycles"].sum()
    rows = run.frame.filter(pl.col("mode") == "vmm kernel")
    assert layers["vmm kernel"].cpi == pytest.approx(
        rows["length_cycles"].sum() / rows["length_instructions"].sum()
    )
    bare = load(recording_data.write(tmp_path / "bare", recording_data.rows(4, pmu=False)))
    none = cpi_per_layer([bare])
    assert none.layers == ()
    assert none.absent == ("bare: instructions and cycles were not counted",)


def test_sketch() -> None:
    assert sketch([0.0, 4.0, 8.0]) == "▁▅█"
    assert sketch([math.nan, 1.0]) == "·█"
    assert sketch([0.0, 0.0]) == "▁▁"
    assert len(sketch(np.arange(1000.0))) == 40


def test_printed_tables(runs: Path, snapshot: SnapshotAssertion) -> None:
    words = ("lab=lab-1", "lab=lab-2", "native=native-1", "--bins", "8", "--out", "out")
    done = vtax("timeline", *words, "--event", "kvm.exits,hw.dtlb_load_misses", cwd=runs)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == snapshot


def test_json(runs: Path) -> None:
    words = ("timeline", "lab-1", "--event", "kvm.exits", "--axis", "time", "--per", "s")
    done = vtax(*words, "--bins", "5", "--json", cwd=runs)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert (content["axis"], content["per"], len(content["edges"])) == ("time", "s", 6)
    assert len(content["lines"][0]["values"]) == 5
    assert len(content["phases"]["lab-1"]) == 2
    assert {layer["layer"] for layer in content["cpi"]} == {
        "guest kernel",
        "guest user",
        "vmm kernel",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lab-1", "--event", "kvm.exts"), "did you mean 'kvm.exits'?"),
        (("lab-1=", "--event", "kvm.exits"), "'lab-1=' is not a LABEL=RUN"),
    ],
)
def test_misuse_is_one_line(runs: Path, words: tuple[str, ...], message: str) -> None:
    done = vtax("timeline", *words, cwd=runs)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_one_error(runs: Path) -> None:
    (runs / "file").write_text("")
    done = vtax("timeline", "lab-1", "--event", "kvm.exits", "--out", "file/below", cwd=runs)
    assert done.returncode == 1
    assert "choose another --out" in done.stderr
    assert done.stderr.count("\n") == 1


def test_help(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    assert vtax("timeline", "--help", cwd=tmp_path).stdout == snapshot
