"""What one event and one row cost, how many events are counted without loss, and the memory."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interleaved import Interval, interval
from record_contenders import Recording, record_json, vtax_ready
from record_verdicts import Trial, agrees, events_per_step
from record_work import SPIN, Worker, WorkError

from vtax.core import binaries

GUESTS = ("guest-port", "guest-cpuid", "guest-count")
OVERFLOW = "on_overflow"
ENOUGH_RUNS = 1000
"""A program with fewer runs says little about the time of one run."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Events of a guest, counted with rows of 1 ms; without eBPF's own statistics."""

    guest: str
    per_second: Interval
    """Counted events per second of wall time, on the one CPU that the guest has."""
    per_cpu_second: Interval
    """The same per second of that CPU's time, which other work on the CPU changes less."""
    per_step: dict[str, float]
    """Counts per step of the guest's loop: each a whole number if all events were counted."""
    agrees: bool
    rows: int
    lost: int
    missed: int
    """Events that an eBPF program missed because it was already running."""
    added_ns: Interval
    """How much more CPU time the guest's process takes per event, rows included."""


@dataclass(frozen=True, slots=True)
class ProgramCost:
    """The cost of one eBPF program, by the kernel's statistics."""

    name: str
    runs: int
    ns: float
    """Nanoseconds of one run, including the statistics."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a recording of the whole machine with rows of 1 ms."""

    seconds: int
    rows: int
    lost: int
    max_rss_bytes: int
    bytes_per_row: float | None


def recorder(*arguments: str) -> list[str]:
    return [str(binaries.find("vtax-host")), "record", "--every", "1ms", *arguments]


def counts(out: Path) -> dict[str, int]:
    """Counts of KVM's events, with those after the last row; `kvm.exit.*` are in `kvm.exits`."""
    columns = json.loads((out / "events.json").read_text())["columns"]
    return {
        column["name"]: column["sum"] + (column["after_last_row"] or 0)
        for column in columns
        if column["unit"] == "count"
        and column["name"].startswith("kvm.")
        and not column["name"].startswith("kvm.exit.")
    }


def rate(program: Path, cpu: int, guest: str, rounds: int, seconds: float) -> Rate:
    """The rate with a guest. Raises WorkError where there is no KVM, Absent where nothing can be
    recorded."""
    per_second: list[float] = []
    per_cpu_second: list[float] = []
    added: list[float] = []
    per_step: dict[str, float] = {}
    rows = lost = missed = 0
    whole = True
    with Worker(program, guest, cpu) as worker, tempfile.TemporaryDirectory() as folder:
        amount = worker.amount(guest, seconds)
        before = worker.run(amount)
        for number in range(rounds):
            out = Path(folder, str(number))
            argv = recorder("--vm", str(worker.pid), "--events", "kvm", "--out", str(out))
            with Recording(argv, vtax_ready, out, tracing=False):
                during = worker.run(amount)
            after = worker.run(amount)
            counted = counts(out)
            events = sum(counted.values())
            trial = Trial(before.cpu_ns, during.cpu_ns, after.cpu_ns)
            per_second.append(events * 1e9 / during.wall_ns)
            per_cpu_second.append(events * 1e9 / during.cpu_ns)
            added.append(trial.added / max(events, 1))
            found = events_per_step(counted, during.done)
            # The first wrong value is the one to show.
            if whole:
                per_step, whole = found, agrees(found)
            record = record_json(out)
            rows, lost = rows + record["rows"], lost + record["lost"]
            missed += sum(each["missed"] for each in record["programs"])
            before = after
    return Rate(
        guest,
        interval(per_second, f"rate {guest}"),
        interval(per_cpu_second, f"CPU rate {guest}"),
        per_step,
        whole,
        rows,
        lost,
        missed,
        interval(added, f"added {guest}"),
    )


def program_costs(
    program: Path, cpu: int, work: str, events: str, seconds: float
) -> list[ProgramCost]:
    """The costs of programs that ran often, by `vtax-host record --overhead` with rows of 100
    us."""
    with Worker(program, work, cpu) as worker, tempfile.TemporaryDirectory() as folder:
        amount = worker.amount(work, seconds)
        out = Path(folder, "out")
        target = ["--vm" if work in GUESTS else "--pid", str(worker.pid)]
        argv = recorder("--overhead", "--events", events, *target, "--out", str(out))
        argv[argv.index("1ms")] = "100us"
        with Recording(argv, vtax_ready, out, tracing=False):
            worker.run(amount)
        found = record_json(out)["programs"]
    return [
        ProgramCost(each["name"], each["runs"], each["run_ns"] / each["runs"])
        for each in found
        if (each["runs"] or 0) >= ENOUGH_RUNS
    ]


def clock_ns(program: Path, cpu: int) -> float:
    """The time of one reading of the clock, which is in each run that eBPF's statistics measure.

    The statistics read the clock before and after a run; between the two moments of reading lie the
    program and one reading.
    """
    with Worker(program, SPIN, cpu) as worker:
        return worker.run(200).gaps["step_ns"]


def memory(seconds: int) -> Memory:
    """The memory of a recording with the default events."""
    with tempfile.TemporaryDirectory() as folder:
        argv = recorder("--for", f"{seconds}s", "--out", folder)
        subprocess.run(
            argv, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds + 120
        )
        record = record_json(Path(folder))
    return Memory(
        seconds,
        record["rows"],
        record["lost"],
        record["max_rss_bytes"],
        record["file_bytes_per_row"],
    )


def rates(
    program: Path, cpu: int, rounds: int, seconds: float
) -> tuple[list[Rate], dict[str, str]]:
    """The rates of every guest, and why a guest has none."""
    found: list[Rate] = []
    absent: dict[str, str] = {}
    for guest in GUESTS:
        try:
            found.append(rate(program, cpu, guest, rounds, seconds))
        except WorkError as error:
            absent[guest] = str(error)
    return found, absent


def best(found: Sequence[Rate]) -> Rate | None:
    """The highest rate without any loss."""
    sound = [each for each in found if not each.lost and not each.missed and each.agrees]
    return max(sound, key=lambda each: each.per_second.median, default=None)
