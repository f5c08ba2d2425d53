"""Rows that events end (`--every EVENT:N`), of programs and guests that make known numbers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

import kvm_guest
from kvm_guest import Guest
from process_watch import descendants, ended
from recording import await_bytes, described, environment, line, obstacle, started, sums_agree
from vtax.core.recorder.intervals import load
from vtax.core.recorder.options import RecordOptions, Target
from vtax.core.recorder.recorder import Recorder, command
from vtax.environments.base import allowed_cpus

TIMEOUT_S = 120.0
PYTHON = (sys.executable, "-B", "-s", "-S", "-c")
CALLS = 50_000
LOOPS = 5000
PAIRS = f"""
import os, sys
children = []
for cpu in sys.argv[1:]:
    child = os.fork()
    if not child:
        os.sched_setaffinity(0, [int(cpu)])
        for _ in range({CALLS}):
            os.getppid()
            os.stat("/")
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""
"""A process on each CPU of the command line, which makes two kinds of calls in turn."""
INTERRUPTED = """
import ctypes, os, sys, time
os.sched_setaffinity(0, [int(sys.argv[1])])
end = time.monotonic() + 2
PR_SET_TIMERSLACK = 29
for _ in range(3):
    if not os.fork():
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
        while time.monotonic() < end:
            time.sleep(2e-5)
        os._exit(0)
while time.monotonic() < end:
    for _ in range(1000):
        os.getppid()
"""
"""Calls on one CPU, which timers interrupt tens of thousands of times a second."""


@pytest.fixture(autouse=True)
def possible() -> None:
    if reason := obstacle():
        pytest.skip(f"this machine cannot record: {reason}")


def recorded(run: Path, every: str, cpus: Sequence[int], *more: str) -> pl.DataFrame:
    """The rows of PAIRS, whose sums are those that were said."""
    options = RecordOptions.of(every=every, events="sched,calls")
    target = Target(command=(*PYTHON, PAIRS, *map(str, cpus)))
    words = [*options.arguments(), *more, *target.arguments()]
    subprocess.run(command(words, run), timeout=TIMEOUT_S, check=True)
    sums_agree(run)
    return pl.read_parquet(run / "intervals.parquet")


def total(run: Path, name: str) -> int:
    """The sum of the rows, and what came after the last row of each CPU."""
    column = next(each for each in described(run) if each["name"] == name)
    return int(column["sum"]) + int(column["after_last_row"])


def by_interval(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    """The count of all CPUs together in each interval."""
    return rows.group_by("interval").agg(pl.col(name).sum(), pl.col("lost").sum()).sort("interval")


def test_each_interval_has_just_its_number_of_events(tmp_path: Path) -> None:
    run = tmp_path / "run"
    rows = recorded(run, "calls.null:1000", allowed_cpus()[:1])
    calls = total(run, "calls.null")
    assert CALLS <= calls < CALLS + 2000
    whole = by_interval(rows, "calls.null")
    assert whole["interval"].to_list() == list(range(1, calls // 1000 + 1))
    assert set(whole["calls.null"]) == {1000}
    assert set(rows["mode"]) <= {"host kernel", "idle"}
    assert set(rows["time_enabled"]) == set(rows["throttled_ns"]) == {0}
    record = json.loads((run / "record.json").read_text())
    assert (record["reference"], record["interval"]) == ("calls.null", 1000)
    assert record["reference_running"] is None
    assert record["lost"] == 0 and record["rows"] == rows.height
    recording = load(run)
    assert recording.total(recording.event("calls.null")) == whole["calls.null"].sum()


def test_events_of_all_cpus_end_an_interval_together(tmp_path: Path) -> None:
    """What a CPU counted in an interval is in the row of that interval, also where another CPU
    ended it: calls in turn differ by the one that is under way."""
    cpus = allowed_cpus()
    if len(cpus) < 2:
        pytest.skip("there is only one CPU")
    run = tmp_path / "run"
    rows = recorded(run, "calls.null:500", (cpus[0], cpus[-1]))
    calls = total(run, "calls.null")
    assert 2 * CALLS <= calls < 2 * CALLS + 2000
    whole = by_interval(rows, "calls.null")
    assert whole["interval"].to_list() == list(range(1, calls // 500 + 1))
    # At the end, a CPU that counts no more makes its row of the last one, too.
    assert set(whole["calls.null"]) == {500}
    shared = rows.filter(pl.col("calls.null").is_between(1, 499))
    assert shared.height > 10, "the CPUs counted in turn"
    assert rows.group_by("cpu").agg(pl.col("interval").diff().min()).min()["interval"][0] > 0
    # While Python starts, other calls are made.
    loops = rows.filter(pl.col("interval").is_between(10, whole.height - 10))
    apart = zip(loops["calls.null"], loops["calls.stat"], strict=True)
    assert max(abs(null - stat) for null, stat in apart) <= 1


def test_a_call_of_any_class_may_end_an_interval(tmp_path: Path) -> None:
    """A row has each call in the column of its class, too."""
    run = tmp_path / "run"
    rows = recorded(run, "calls.all:1000", allowed_cpus()[:1])
    calls = total(run, "calls.all")
    assert 2 * CALLS <= calls < 2 * CALLS + 4000
    whole = by_interval(rows, "calls.all")
    assert whole["interval"].to_list() == list(range(1, calls // 1000 + 1))
    assert set(whole["calls.all"]) == {1000}
    classes = [
        name
        for name in rows.columns
        if name.startswith("calls.") and name != "calls.all" and not name.endswith("_bytes")
    ]
    assert (rows.select(classes).sum_horizontal() == rows["calls.all"]).all()


def test_an_interrupt_makes_no_second_row_of_an_interval(tmp_path: Path) -> None:
    """Its program counts, too, and may come just where a row is due."""
    run = tmp_path / "run"
    options = RecordOptions.of(every="calls.null:2", events="sched,calls", ring="65536")
    target = Target(command=(*PYTHON, INTERRUPTED, str(allowed_cpus()[0])))
    words = [*options.arguments(), *target.arguments()]
    subprocess.run(command(words, run), timeout=TIMEOUT_S, check=True)
    sums_agree(run)
    rows = pl.read_parquet(run / "intervals.parquet")
    assert rows["sched.wakeups"].sum() > 1000
    again = rows.filter(pl.col("interval").diff().over("cpu") <= 0)
    assert again.height == 0, f"{again.height} of {rows.height} rows"


def test_rows_that_are_lost_are_counted(tmp_path: Path) -> None:
    run = tmp_path / "run"
    rows = recorded(run, "calls.null:2", allowed_cpus()[:2], "--ring", "4")
    record = json.loads((run / "record.json").read_text())
    assert 0 < record["lost"] == record["lost_ring_full"]
    assert 2 * CALLS <= total(run, "calls.null") < 2 * CALLS + 2000
    first = rows.group_by("cpu").agg(pl.col("seq").max(), pl.len(), pl.col("lost").sum())
    assert (first["seq"] + 1).to_list() == (first["len"] + first["lost"]).to_list()


def test_the_whole_machine_switches(tmp_path: Path) -> None:
    """The event need not be among --events."""
    run = tmp_path / "run"
    options = RecordOptions.of(every="sched.switches:10", events="irq", **{"for": "1s"})
    subprocess.run(command(options.arguments(), run), timeout=TIMEOUT_S, check=True)
    sums_agree(run)
    rows = pl.read_parquet(run / "intervals.parquet")
    whole = by_interval(rows, "sched.switches")
    assert whole["interval"].to_list() == list(range(1, whole.height + 1))
    assert set(whole["sched.switches"]) == {10}
    # What happens while the recording ends is counted, without a row.
    assert whole.height <= total(run, "sched.switches") // 10 <= whole.height + 20


def test_rows_of_a_killed_recorder_are_kept(tmp_path: Path) -> None:
    words = ("--every", "sched.switches:5", "--events", "sched", "--out", "run", "--for", "60s")
    with ended(started(words, tmp_path)) as process:
        await_bytes(tmp_path / "run/intervals.arrows", 20_000)
        (recorder,) = descendants(process.pid)
        os.kill(recorder, signal.SIGKILL)
        process.wait(TIMEOUT_S)
    recording = load(tmp_path / "run")
    assert any("did not finish" in note for note in recording.notes)
    # Each CPU's ring was emptied at its own time: later intervals lack a CPU's rows.
    last = recording.frame.group_by("cpu").agg(pl.col("interval").max())["interval"].min()
    whole = by_interval(recording.frame, "sched.switches").filter(pl.col("interval") < last)
    assert whole.height > 10 and set(whole["sched.switches"]) == {5}


@pytest.mark.parametrize(
    ("every", "said"),
    [
        ("kvm.exit:1000", "the nearest: kvm.exits"),
        ("hw.cycles:1000", "give a number of instructions, such as 50Mi, or a time"),
        ("kvm.exits:0", "0 is no number of events"),
        ("calls.clock:10", "their vDSO is not taken away"),
    ],
)
def test_what_cannot_end_intervals_is_said(every: str, said: str, tmp_path: Path) -> None:
    words = line("record", "--every", every, "--out", "run", "--", "true")
    done = subprocess.run(
        words, capture_output=True, text=True, env=environment(), cwd=tmp_path, check=False
    )
    assert done.returncode != 0 and said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_exits_of_a_guest_end_intervals(tmp_path: Path) -> None:
    """A row has KVM's other events of the same exits, but for those of the exit under way."""
    if reason := kvm_guest.obstacle():
        pytest.skip(f"no guest of this machine's own: {reason}")
    run = tmp_path / "run"
    options = RecordOptions.of(every="kvm.userspace_exits:100", events="kvm")
    target = Target(vm="all")
    with Guest() as guest:
        guest.create()
        with Recorder([*options.arguments(), *target.arguments()], run) as recorder:
            recorder.ready()
            guest.loops(LOOPS)
            recorder.finish()
    sums_agree(run)
    rows = pl.read_parquet(run / "intervals.parquet")
    whole = by_interval(rows, "kvm.userspace_exits")
    exits = total(run, "kvm.userspace_exits")
    assert exits >= LOOPS and whole.height == exits // 100
    assert set(whole["kvm.userspace_exits"].head(-1)) == {100}
    assert rows.filter(pl.col("vm") == guest.pid).height >= LOOPS // 100
    apart = zip(rows["kvm.pio"], rows["kvm.userspace_exits"], strict=True)
    assert sum(abs(port - exit) > 1 for port, exit in apart) <= 2
