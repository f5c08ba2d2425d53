"""Recordings in the emulated arm64 machine: held counters, targets, and perf's throttling.

Its clock counts instructions, so what is measured here is the same on every host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from arm64_machine import Arm64, program_for_tests

pytestmark = pytest.mark.slow

WORK = "vtax-agent workload dgemm --size 64 --count 20"
"""23 million instructions, 22 of them in user space: 48 ms."""
LONGER_WORK = "vtax-agent workload dgemm --size 64 --count 60"
"""Work in which turns take 8 rows."""
RECORD = "vtax-host record --out recording"
HOLD = "/run/vtax/hold_counters"
ALL_GENERAL, ALL = "6 0", "6 1"
"""Counts of instruction and cycle events: cycles have their own counter, and may use the others."""
OTHERS_HOLD = "others (perf, the NMI watchdog, guests)"
ABSENT = "not recorded: others"
KERNEL_PER_ROW = 7_551
"""Instructions of the kernel in a row with five counters to read, as in test_qemu_arm64.py."""
RATE = "/proc/sys/kernel/perf_event_max_sample_rate"
PERCENT = "/proc/sys/kernel/perf_cpu_time_max_percent"
LOW_RATE = 2_000
TICKS = 250
"""Ticks per second of this kernel."""
FINE_NS = 100_000


@pytest.fixture(scope="module")
def holding(arm64: Arm64) -> Arm64:
    """A program in the machine holds counters while a command runs."""
    program = program_for_tests("hold_counters")
    arm64.machine.push(HOLD, program.read_bytes(), 0o700)
    return arm64


@pytest.fixture
def limits(arm64: Arm64) -> Iterator[Arm64]:
    """What the kernel allows perf; restored afterwards."""
    # Read-only for a workload, but root may change that (docs/security.md).
    arm64.shell("mount -o remount,bind,rw none /proc/sys")
    before = arm64.shell(f"cat {RATE} {PERCENT}").split()
    yield arm64
    # The percentage comes first, because changing it sets the rate.
    arm64.shell(f"echo {before[1]} > {PERCENT}; echo {before[0]} > {RATE}")


def one(warnings: list[str], text: str) -> str:
    """The warning that has this text."""
    (found,) = (warning for warning in warnings if text in warning)
    return found


def test_held_counters_are_held(holding: Arm64) -> None:
    # Without this, the tests below would prove nothing.
    holding.shell(f"{HOLD} {ALL} true")
    for more in ("7 0", "6 2"):
        assert "no counter is left" in holding.refused("sh", "-c", f"{HOLD} {more} true")


def test_instructions_asked_for_fail_when_others_hold_the_counters(holding: Arm64) -> None:
    for asked in ("--every 4Mi --events sched", "--every 1ms --events hw.instructions"):
        why = holding.refused("sh", "-c", f"{HOLD} {ALL_GENERAL} {RECORD} {asked} -- {WORK}")
        assert OTHERS_HOLD in why, why
        assert "; give a time" in why or "; leave it out" in why, why
        # The recording failed before anything was written.
        assert not (holding.folder / "recording").exists()


def test_a_clock_is_the_reference_when_others_hold_the_counters(holding: Arm64) -> None:
    holding.shell(f"{HOLD} {ALL_GENERAL} {RECORD} --events hw,sched.switches -- {WORK}")
    rows, record = holding.recorded()
    assert record["reference"] == "task_clock"
    assert rows.height > 2
    assert OTHERS_HOLD in one(record["warnings"], "intervals are times")
    assert "hw.instructions and 4 more are" in one(record["warnings"], ABSENT)
    # The counter of cycles is free, for one event at a time.
    cycles = [name for name in rows.columns if name.startswith("hw.")]
    assert {name.split(".")[1] for name in cycles} == {"cycles"}
    assert record["rotation"]["groups"] == [[name] for name in cycles]
    assert "5 groups took turns" in one(record["warnings"], "took turns")


def test_no_hardware_event_is_recorded_when_others_hold_all_counters(holding: Arm64) -> None:
    holding.shell(f"{HOLD} {ALL} {RECORD} --every 1ms --events hw,sched.switches -- {WORK}")
    rows, record = holding.recorded()
    assert not [name for name in rows.columns if name.startswith("hw.")]
    assert rows["length_ns"].sum() > 40_000_000
    assert "hw.instructions and 9 more are" in one(record["warnings"], ABSENT)
    reasons = {each["name"]: each["reason"] for each in holding.events()["unavailable"]}
    assert reasons["hw.cycles.user"].startswith(OTHERS_HOLD)
    assert "no such counter" in reasons["hw.cache_misses"]


def test_groups_are_smaller_when_others_hold_some_counters(holding: Arm64) -> None:
    events = [f"hw.{event}.{part}" for event in ("instructions", "cycles")
              for part in ("user", "kernel")]  # fmt: skip
    words = f"{RECORD} --every 2Mi --events {','.join(events)} -- {LONGER_WORK}"
    holding.shell(words)
    _, record = holding.recorded()
    assert record["rotation"] is None
    # Three general counters are left, one of them for the reference, and the counter of cycles.
    holding.shell(f"{HOLD} 3 0 {words}")
    rows, record = holding.recorded()
    assert record["reference_running"] == 1.0
    assert record["rotation"]["groups"] == [events[:3], events[3:]]
    assert "2 groups took turns" in one(record["warnings"], "took turns")
    known = rows.filter(pl.col(events[0]).is_not_null())
    assert 2 < known.height < rows.height - 2
    assert known[events[3]].null_count() == known.height
    assert known[events[2]].sum() == pytest.approx(2 * known[events[0]].sum(), rel=1e-3)


def test_a_reference_that_others_take_is_said(holding: Arm64) -> None:
    script = f"{WORK}; {HOLD} {ALL} {WORK}; {WORK}"
    rows, record = holding.record("2Mi", "hw.cycles.user", "sh", "-c", script)
    # The last third is like the first.
    assert record["reference_running"] == pytest.approx(2 / 3, abs=0.03)
    warning = one(record["warnings"], "the reference event had its counter")
    assert f"in {100 * record['reference_running']:.1f} % of the time" in warning
    (gap,) = rows.filter(pl.col("length_ns") > 40_000_000).rows(named=True)
    assert gap["hw.cycles.user"] is None
    stood = pl.col("time_enabled") - pl.col("time_running")
    assert rows.select(stood.max()).item() == pytest.approx(gap["length_ns"], rel=0.1)
    assert "hw.cycles.user had its counter" in one(record["warnings"], "that it needed")
    assert rows[1:]["hw.cycles.user"].null_count() == 1


def counted(arm64: Arm64) -> int:
    """Instructions of the work alone, by the agent's counter of the program and nothing else."""
    found: dict[str, Any] = json.loads(arm64.shell(f"vtax-agent run --count -- {WORK}"))
    return int(found["instructions"])


def off(rows: pl.DataFrame, expected: int) -> float:
    """How far a recording's number of instructions is off, in units of its longest row.

    Rows of 1 ms are 2 % of the work. What it executes after its last row is in no row. The kernel's
    work for rows is not included, nor that for the first, which has the time from fork to exec.
    """
    start = rows["hw.instructions.kernel"][0]
    found = rows["hw.instructions"].sum() - start - (rows.height - 1) * KERNEL_PER_ROW
    return float((found - expected) / rows["hw.instructions"].max())


def test_rows_of_a_command_have_what_its_program_executes(arm64: Arm64) -> None:
    alone = counted(arm64)
    rows, record = arm64.record("1ms", "hw.instructions", *WORK.split())
    assert rows["pid"].n_unique() == 1
    assert record["targets_only"]
    assert rows.height > 40
    assert abs(off(rows, alone)) < 1, (rows["hw.instructions"].sum(), alone)


def test_rows_of_a_command_have_all_that_it_starts(arm64: Arm64) -> None:
    alone = counted(arm64)
    rows, _ = arm64.record("1ms", "hw.instructions", "sh", "-c", f"{WORK} & {WORK}; wait")
    works = rows.filter(pl.col("comm") == "vtax-agent")
    assert works["pid"].n_unique() == 2
    # Two forks and exits, and those of the shell.
    assert abs(off(rows, 2 * alone)) < 5, (rows["hw.instructions"].sum(), alone)


def test_rows_of_a_process_have_nothing_of_others(arm64: Arm64) -> None:
    alone = counted(arm64)
    arm64.shell(
        # The target has a child before the recording begins; the child waits for a word.
        f"mkfifo go; sh -c '(read word < go; exec {WORK}) & wait' & target=$!; "
        f"{RECORD} --pid $target --every 1ms --events hw.instructions & "
        # The recorder's start takes a quarter of a second; the other work has half of the CPU's
        # time.
        f"sleep 2; {WORK} & other=$!; echo $other > other; echo word > go; wait"
    )
    rows, record = arm64.recorded()
    assert record["end"]["reason"] == "process"
    other = int((arm64.folder / "other").read_text())
    assert other not in rows["pid"]
    assert rows.filter(pl.col("comm") == "vtax-agent")["pid"].n_unique() == 1
    # The other took turns with it.
    whole = rows["time_ns"][-1] - rows["time_ns"][0]
    assert whole > 1.5 * rows["length_ns"].sum()
    # The shell, until it becomes the work, is in a further row.
    assert abs(off(rows, alone)) < 2, (rows["hw.instructions"].sum(), alone)


def of_one_interval(lengths: pl.Series) -> None:
    # An overflow can be late while the kernel has interrupts off, and the next is sooner then.
    assert lengths.is_between(0.5 * FINE_NS, 1.5 * FINE_NS).all(), lengths.describe()
    assert lengths.median() == pytest.approx(FINE_NS, rel=0.01)


def test_the_gaps_of_throttling_are_named(limits: Arm64) -> None:
    """These are gaps in a recording of the whole machine, whose rows include all of its time."""
    limits.shell(
        # A busy CPU has ticks, at which perf lets the event go on.
        f"echo {LOW_RATE} > {RATE}; while :; do :; done & busy=$!; "
        f"{RECORD} --every 100us --events sched.switches --for 100ms; kill $busy"
    )
    rows, record = limits.recorded()
    begin, end = record["clocks"][0]["monotonic_ns"], record["end"]["monotonic_ns"]
    after = end - rows["time_ns"][-1]
    assert rows["length_ns"].sum() + after == end - begin
    # The last stop may have lasted until the end; it began just before the last row.
    rest = record["throttled_ns"] - rows["throttled_ns"].sum()
    assert 0 <= rest < after + 5_000
    stops = rows.with_row_index().filter(pl.col("throttled_ns") > 0)
    assert record["throttled"] - stops.height in (0, 1)
    assert stops.height > 15
    assert stops["index"].diff().drop_nulls().unique().to_list() == [LOW_RATE // TICKS]
    assert stops["throttled_ns"].sum() > 0.5 * rows["length_ns"].sum()
    # Without the gap, every row but the first is one interval.
    lengths = (rows["length_ns"] - rows["throttled_ns"])[1:]
    of_one_interval(lengths)
    periods = rows["interval"][-1] - rows["interval"][0]
    assert periods * FINE_NS == pytest.approx(lengths.sum(), rel=0.05)
    assert f"stopped the reference event {record['throttled']} times" in one(
        record["warnings"], "throttling"
    )


def test_the_gaps_of_throttling_are_named_for_a_command(limits: Arm64) -> None:
    limits.shell(f"echo {LOW_RATE} > {RATE}; {RECORD} --every 100us --events sched.switches "
                 f"-- {WORK}")  # fmt: skip
    rows, record = limits.recorded()
    assert record["throttled"] > 5
    rows = rows.with_columns(periods=pl.col("interval").diff())
    # In some rows the recorder and the kernel's threads have the CPU for a moment.
    undisturbed = rows.filter(pl.col("time_ns").diff() == pl.col("length_ns"))
    assert undisturbed.filter(pl.col("throttled_ns") > 0).height > 5
    lengths = undisturbed["length_ns"] - undisturbed["throttled_ns"]
    assert undisturbed["periods"].sum() * FINE_NS == pytest.approx(lengths.sum(), rel=0.05)
    of_one_interval(lengths)


def test_the_gaps_of_throttling_are_named_for_instructions(limits: Arm64) -> None:
    # There is one overflow in a tick, and each is found at a tick.
    limits.shell(f"echo {TICKS} > {RATE}")
    rows, record = limits.record("2Mi", "hw.instructions", *LONGER_WORK.split())
    assert record["reference"] == "instructions"
    assert rows.height > 20
    # An overflow before the work began stops the event too, and makes no row.
    assert record["throttled"] >= rows.height
    # The stop by a row's own overflow ends after the row, at the next tick.
    assert rows["throttled_ns"][1:].is_between(1, 4_000_000).all()
    assert "throttling" in one(record["warnings"], "stopped the reference event")


def test_a_kernel_that_lowers_its_limit_is_noticed(limits: Arm64) -> None:
    limits.shell(f"echo 1 > {PERCENT}")
    before = int(limits.shell(f"cat {RATE}"))
    _, record = limits.record("2Mi", "hw.instructions", *WORK.split())
    after = int(limits.shell(f"cat {RATE}"))
    assert after < before
    assert record["max_sample_rate"] == [before, after]
    assert f"went from {before} to {after}" in one(record["warnings"], "max_sample_rate went")


def test_raw_codes_and_the_pmus_names_are_the_portable_events(arm64: Arm64) -> None:
    """By the Arm architecture, INST_RETIRED is 0x08 and CPU_CYCLES is 0x11."""
    listed = {each["name"]: each for each in json.loads(arm64.run("vtax-host", "events", "--json"))}
    (named,) = (name for name in listed if name.endswith(".inst_retired.user"))
    assert listed[named]["available"]
    pairs = {
        "hw.raw.0x08.user": "hw.instructions.user",
        named: "hw.instructions.user",
        "hw.raw.0x11.user": "hw.cycles.user",
    }
    events = sorted({*pairs, *pairs.values()})
    rows, record = arm64.record("2Mi", ",".join(events), *LONGER_WORK.split())
    assert record["rotation"] is None
    assert rows.height > 20
    for ours, portable in pairs.items():
        assert rows[ours].sum() > 50_000_000
        # Counters are read one after the other, in the kernel, where these do not count.
        assert rows[ours].sum() == pytest.approx(rows[portable].sum(), rel=1e-4), ours
