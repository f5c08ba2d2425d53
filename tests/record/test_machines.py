"""`--vm all` on this machine's own KVM: guests that start and die, each with rows of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kvm_guest
from kvm_guest import Guest
from recording import described, obstacle, sums_agree
from vtax.core.recorder.arrow_stream import whole_messages
from vtax.core.recorder.intervals import STREAM
from vtax.core.recorder.options import RecordOptions, Target
from vtax.core.recorder.recorder import Recorder
from vtax.environments.base import allowed_cpus

LOOPS = 20_000
FOUND_TIMEOUT_S = 60.0


@pytest.fixture(autouse=True)
def possible() -> None:
    if reason := obstacle():
        pytest.skip(f"this machine cannot record: {reason}")
    if reason := kvm_guest.obstacle():
        pytest.skip(f"no guest of this machine's own: {reason}")


@contextmanager
def recording(out: Path, flush: str = "200ms") -> Iterator[Recorder]:
    """A recorder of all virtual machines that has begun to count."""
    target = Target(vm="all")
    line = [
        *RecordOptions.of(every="1ms", events="kvm").arguments(),
        *target.arguments(),
        "--flush",
        flush,
    ]
    with Recorder(line, out) as recorder:
        recorder.ready()
        yield recorder


def until_found(guest: Guest, out: Path) -> None:
    """Wait until there are rows of a guest's process: a guest is counted before it has a row."""
    deadline = time.monotonic() + FOUND_TIMEOUT_S
    while guest.pid not in written(out)["pid"]:
        assert time.monotonic() < deadline, "the guest is not found"
        guest.work_outside()


def written(out: Path) -> pl.DataFrame:
    """The rows that are in the stream so far."""
    try:
        content = whole_messages((out / STREAM).read_bytes()).stream
    except ValueError:
        # Not even the names of the columns have been written yet.
        return pl.DataFrame({"pid": []})
    return pl.read_ipc_stream(content)


def two_cpus() -> tuple[int, int]:
    """Two CPUs, so that no guest's row includes another's work; a skip where there is only one."""
    cpus = allowed_cpus()
    if len(cpus) < 2:
        pytest.skip("on one CPU guests share rows")
    return cpus[0], cpus[-1]


def rows(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "intervals.parquet")


def record(out: Path) -> dict[str, Any]:
    content = json.loads((out / "record.json").read_text())
    assert isinstance(content, dict)
    return content


def require_alone(out: Path, *guests: Guest) -> None:
    """Skip when other virtual machines ran: one of their rows may have counts of these guests."""
    pids = {guest.pid for guest in guests}
    found = set(record(out)["vms"])
    if found > pids:
        pytest.skip(f"other virtual machines ran meanwhile: {found - pids}")
    assert found == pids


def total(out: Path, name: str) -> int:
    """The sum of the rows, and what came after the last row."""
    column = next(each for each in described(out) if each["name"] == name)
    return int(column["sum"]) + int(column["after_last_row"])


def test_a_guest_that_starts_later_is_found_and_each_access_counted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Guest() as guest, recording(out) as recorder:
        guest.create()
        until_found(guest, out)
        guest.loops(LOOPS)
        recorder.finish()
        require_alone(out, guest)
        sums_agree(out)
        assert total(out, "kvm.pio") == LOOPS
        found = rows(out)
        assert set(found["pid"].to_list()) == {guest.pid}
        running = found.filter(pl.col("kvm.pio") > 0)
        assert set(running["vm"].to_list()) == {guest.pid}


def test_a_guest_that_is_killed_keeps_what_was_counted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, last = two_cpus()
    with Guest(first) as dies, Guest(last) as lives, recording(out) as recorder:
        dies.create()
        until_found(dies, out)
        dies.loops(LOOPS)
        dies.forever()
        time.sleep(0.3)
        dies.kill()
        died_ns = time.monotonic_ns()
        lives.create()
        until_found(lives, out)
        lives.loops(LOOPS)
        # A row after the work has what the work's last row had not.
        lives.work_outside()
        recorder.finish()
    require_alone(out, dies, lives)
    sums_agree(out)
    found = rows(out)
    of_dead = found.filter(pl.col("pid") == dies.pid)
    of_living = found.filter(pl.col("pid") == lives.pid)
    assert of_dead["kvm.pio"].sum() > LOOPS
    assert of_dead.select(pl.col("time_ns").max()).item() <= died_ns
    assert of_living.select(pl.col("time_ns").min()).item() > died_ns
    assert of_living["kvm.pio"].sum() == LOOPS
    assert of_dead.height + of_living.height == found.height
    said = record(out)
    assert (said["end"]["reason"], said["lost"]) == ("signal", 0)


def test_two_guests_at_once_are_told_apart(tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = (LOOPS, 3 * LOOPS)
    first, last = two_cpus()
    with Guest(first) as one, Guest(last) as other, recording(out) as recorder:
        guests = (one, other)
        for guest in guests:
            guest.create()
            until_found(guest, out)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(Guest.loops, guests, asked))
        # A row after the work has what the work's last row had not.
        for guest in guests:
            guest.work_outside()
        recorder.finish()
    require_alone(out, one, other)
    sums_agree(out)
    found = rows(out)
    assert set(found["vm"].drop_nulls().to_list()) == {one.pid, other.pid}
    for guest, loops in zip(guests, asked, strict=True):
        own = found.filter(pl.col("pid") == guest.pid)
        assert set(own.filter(pl.col("kvm.pio") > 0)["vm"].to_list()) == {guest.pid}
        assert own["kvm.pio"].sum() == loops


def test_a_guest_that_is_gone_before_the_next_flush_is_counted(tmp_path: Path) -> None:
    """It is counted from its first return to its program, whose access comes just before."""
    out = tmp_path / "out"
    with recording(out, flush="60s") as recorder:
        with Guest() as guest:
            guest.create()
            guest.loops(LOOPS)
        recorder.finish()
    require_alone(out, guest)
    assert total(out, "kvm.pio") in (LOOPS - 1, LOOPS)


def test_each_access_is_counted_of_the_whole_machine(tmp_path: Path) -> None:
    """A second recorder tells whether other virtual machines ran."""
    out = tmp_path / "out"
    whole = tmp_path / "whole"
    with Guest() as guest, recording(out) as recorder:
        guest.create()
        with Recorder(RecordOptions.of(every="1ms", events="kvm").arguments(), whole) as everything:
            everything.ready()
            guest.loops(LOOPS)
            everything.finish()
        recorder.finish()
    require_alone(out, guest)
    sums_agree(whole)
    assert total(whole, "kvm.pio") == LOOPS
    assert total(whole, "kvm.userspace_exits") == LOOPS
    # KVM emulates the access and the jump, before the first access two instructions more.
    assert total(whole, "kvm.emulations") in (0, 2 * LOOPS + 1)
