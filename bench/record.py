"""What `vtax record` costs, beside no recording and beside the other recorders, in one run.

    .venv/bin/python bench/record.py [--rounds N] [--json]    # as root; about 15 minutes
    .venv/bin/python bench/record.py --quick                  # whether it works, not what it costs
    .venv/bin/python bench/record.py --long                   # with a recording of 10 minutes

A worker does a fixed amount of work again and again on one CPU, and stays while recorders come and
go; they may use any CPU. Each run under a recorder is compared with the bare runs right before and
after it, so that what changes slowly in the machine is in both. The order of the recorders is
shuffled in every round. The spinning worker gives a second estimate: it reads the clock and adds
up the steps that took longer than a step takes, which is the time that was taken from it.
bench/RESULTS.md has the results.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any

from interleaved import SEED, Interval, interval
from record_contenders import (
    GUEST,
    US,
    Absent,
    Contender,
    Machine,
    Recording,
    contenders,
    record_json,
    versions,
)
from record_rates import (
    OVERFLOW,
    Memory,
    ProgramCost,
    Rate,
    best,
    clock_ns,
    memory,
    program_costs,
    rates,
)
from record_verdicts import (
    Trial,
    lead,
    overhead,
    stands_against,
    table,
)
from record_work import SPIN, Done, Worker, WorkError, build

from vtax.environments.base import allowed_cpus

WORKS = (SPIN, "cpu", "memory", "syscall", GUEST)
TARGETS = {1000 * US: 0.5, 100 * US: 1.2}
"""The allowed overhead in percent, by the length of a row in ns; the issue's targets."""
RATE_TARGET = 1e6
"""Events per second on one CPU without loss."""
MEMORY_TARGET = 32 << 20
"""The target for the recorder's memory, in bytes."""


@dataclass(slots=True)
class Measured:
    """All runs of one contender with one kind of work."""

    contender: Contender
    wall: list[Trial] = field(default_factory=list)
    cpu: list[Trial] = field(default_factory=list)
    stolen: list[Trial] = field(default_factory=list)
    """Short gaps of the spinning worker, in ns per second."""
    stolen_long: list[Trial] = field(default_factory=list)
    """Longer gaps, in ns per second."""
    rows: list[int] = field(default_factory=list)
    lost: int = 0
    written_bytes: int = 0

    def add(self, before: Done, during: Done, after: Done) -> None:
        runs = (before, during, after)
        self.wall.append(Trial(*(float(run.wall_ns) for run in runs)))
        self.cpu.append(Trial(*(float(run.cpu_ns) for run in runs)))
        if during.gaps:
            self.stolen.append(Trial(*(_per_second(run, "short_ns") for run in runs)))
            self.stolen_long.append(Trial(*(_per_second(run, "long_ns") for run in runs)))

    def stolen_percent(self) -> Interval:
        added = [trial.added / 1e7 for trial in self.stolen]
        return interval(added, f"stolen {self.contender.name}")

    def stolen_long_percent(self) -> Interval:
        added = [trial.added / 1e7 for trial in self.stolen_long]
        return interval(added, f"stolen long {self.contender.name}")

    def stolen_per_row(self) -> Interval | None:
        """Nanoseconds of short gaps per row, or per interrupt of a timer alone."""
        counts: list[float] = [float(rows) for rows in self.rows]
        if self.contender.role == "floor" and self.contender.interval_ns:
            counts = [trial.during / self.contender.interval_ns for trial in self.cpu]
        if not counts or not all(counts) or not self.stolen:
            return None
        walls = [trial.during / 1e9 for trial in self.wall]
        added = [
            trial.added * wall / count
            for trial, wall, count in zip(self.stolen, walls, counts, strict=True)
        ]
        return interval(added, f"row {self.contender.name}")


def _per_second(run: Done, gap: str) -> float:
    return run.gaps[gap] * 1e9 / run.wall_ns


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    works: Sequence[str]
    rounds: int
    seconds: float
    """The time of one run of the work."""
    memory_seconds: int


@dataclass(frozen=True, slots=True)
class Found:
    """All results."""

    versions: dict[str, str]
    measured: dict[str, list[Measured]]
    """Measurements by work."""
    absent: dict[str, str]
    """Work or contender, and why it is absent."""
    rates: list[Rate]
    programs: list[ProgramCost]
    clock_ns: float
    memory: Memory


def measure(
    program: Path, cpu: int, work: str, plan: Plan, machine: Machine, absent: dict[str, str]
) -> list[Measured]:
    """Every contender that works, once a round in shuffled order, with bare runs in between."""
    order = random.Random(f"{SEED} {work}")
    found = {each.name: Measured(each) for each in contenders(work)}
    for each in list(found.values()):
        try:
            each.contender.require(machine)
        except Absent as reason:
            absent[each.contender.name] = str(reason)
            del found[each.contender.name]
    with Worker(program, work, cpu) as worker, tempfile.TemporaryDirectory() as folder:
        amount = worker.amount(work, plan.seconds)
        before = worker.run(amount)
        for number in range(plan.rounds):
            for name in order.sample(sorted(found), len(found)):
                _say(f"{work}, round {number + 1} of {plan.rounds}: {name}")
                out = Path(folder, f"{number} {name}".replace("/", "-"))
                try:
                    during = _recorded(found[name], machine, worker, work, amount, out)
                except Absent as reason:
                    absent[f"{name} ({work})"] = str(reason)
                    del found[name]
                    before = worker.run(amount)
                    continue
                after = worker.run(amount)
                found[name].add(before, during, after)
                before = after
    return [each for each in found.values() if each.wall]


def _recorded(
    measured: Measured, machine: Machine, worker: Worker, work: str, amount: int, out: Path
) -> Done:
    contender = measured.contender
    argv = contender.command(machine, worker.pid, work, out)
    with Recording(argv, contender.ready, out, contender.tracing) as recording:
        during = worker.run(amount)
    measured.written_bytes += recording.written_bytes()
    if contender.ours:
        record = record_json(out)
        measured.rows.append(record["rows"])
        measured.lost += record["lost"]
    return during


def everything(plan: Plan) -> Found:
    program, cpu = build(), allowed_cpus()[-1]
    machine, said = Machine.look(), versions()
    absent: dict[str, str] = {}
    measured: dict[str, list[Measured]] = {}
    for work in plan.works:
        try:
            measured[work] = measure(program, cpu, work, plan, machine, absent)
        except WorkError as error:
            absent[work] = str(error)
    _say("rates of events")
    per_guest, no_guest = rates(program, cpu, plan.rounds, plan.seconds)
    absent |= no_guest
    programs = program_costs(program, cpu, "syscall", "default", plan.seconds)
    top = best(per_guest)
    if top is not None:
        programs += program_costs(program, cpu, top.guest, "kvm", plan.seconds)
    clock = clock_ns(program, cpu)
    _say(f"a recording of {plan.memory_seconds} s")
    needed = memory(plan.memory_seconds)
    return Found(said, measured, absent, per_guest, programs, clock, needed)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Line:
    """A target and whether it holds, by wall time (or what else decides) and by CPU time."""

    target: str
    measured: str
    verdict: str
    cpu_measured: str = ""
    cpu_verdict: str = ""


def verdicts(found: Found) -> list[Line]:
    lines: list[Line] = []
    for work, each in found.measured.items():
        for one in each:
            if (limit := TARGETS.get(one.contender.interval_ns or 0)) and one.contender.ours:
                name = f"{work}: {one.contender.name} at most {limit:g} %"
                lines.append(_line(name, [cost(one) for cost in costs(work)], limit))
        lines += leads(work, each)
    if found.rates:
        lines.append(_rate_line(best(found.rates)))
    used = found.memory.max_rss_bytes
    verdict = "met" if used < MEMORY_TARGET else "missed"
    lines.append(Line("memory below 32 MiB", f"{used / 2**20:.1f} MiB", verdict))
    return lines


def costs(work: str) -> list[Callable[[Measured], Interval]]:
    """What a contender costs: by the time stolen from the spinning worker, else by wall time and
    by CPU time."""
    if work == SPIN:
        return [Measured.stolen_percent]
    return [
        lambda one: overhead(one.wall, f"{work} {one.contender.name}"),
        lambda one: overhead(one.cpu, f"{work} cpu {one.contender.name}"),
    ]


def _line(name: str, found: Sequence[Interval], limit: float | None) -> Line:
    cells: list[str] = []
    for each in found:
        cells += [each.text("%"), "no target" if limit is None else each.verdict(limit)]
    return Line(name, *cells)


def _rate_line(top: Rate | None) -> Line:
    if top is None:
        return Line("events without loss", "loss or wrong counts with every guest", "missed")
    name = f"{top.guest}: at least {RATE_TARGET:,.0f} events/s without loss"
    cells: list[str] = []
    for each in (top.per_second, top.per_cpu_second):
        # Negated, "at least" becomes "at most", which `verdict` judges.
        ends = [None if end is None else -end for end in (each.high, each.low)]
        verdict = Interval(each.n, -each.median, *ends).verdict(-RATE_TARGET)
        cells += [each.text("/s", 0), verdict]
    return Line(name, *cells)


def leads(work: str, measured: Sequence[Measured]) -> list[Line]:
    """Each of vtax's settings with a target, against each peer whose rows are not finer.

    What vtax takes beyond the timer alone has no target: it is the part that vtax can change.
    """
    lines: list[Line] = []
    ours = [each for each in measured if each.contender.interval_ns in TARGETS]
    for own in (each for each in ours if each.contender.ours):
        for other in measured:
            role, resolution = other.contender.role, other.contender.interval_ns
            pair = f"{own.contender.name} {{}} {other.contender.name}"
            if role == "floor" and resolution == own.contender.interval_ns:
                name = f"{work}: {pair.format('beyond')}"
                lines.append(_line(name, _leads(work, own, other), None))
            elif role == "peer" and stands_against(own.contender.interval_ns or 0, resolution):
                name = f"{work}: {pair.format('below')}"
                lines.append(_line(name, _leads(work, own, other), 0.0))
    return lines


def _leads(work: str, own: Measured, other: Measured) -> list[Interval]:
    name = f"{work} {own.contender.name} {other.contender.name}"
    if work != SPIN:
        return [lead(own.wall, other.wall, name), lead(own.cpu, other.cpu, f"{name} cpu")]
    # Both were measured in the same round; their difference excludes what a round has in common.
    differences = [
        (one.added - two.added) / 1e7 for one, two in zip(own.stolen, other.stolen, strict=False)
    ]
    return [interval(differences, name)]


def text(found: Found) -> str:
    parts = ["\n".join(f"{name}: {version}" for name, version in found.versions.items())]
    parts += [f"absent: {name}: {reason}" for name, reason in found.absent.items()]
    for work, measured in found.measured.items():
        parts.append(spin_table(measured) if work == SPIN else work_table(work, measured))
    parts.append(rate_text(found.rates))
    parts.append(program_text(found))
    parts.append(memory_text(found.memory))
    header = ("target", "measured", "verdict", "by CPU time", "verdict")
    parts.append(table(header, [astuple(line) for line in verdicts(found)]))
    return "\n\n".join(part for part in parts if part)


def spin_table(measured: Sequence[Measured]) -> str:
    rows = [
        (
            each.contender.name,
            each.stolen_percent().text("%", 3),
            each.stolen_long_percent().text("%", 3),
            row.text("ns", 0) if (row := each.stolen_per_row()) else "",
        )
        for each in measured
    ]
    title = "time stolen from a spinning loop"
    return title + "\n" + table(("recorder", "gaps to 50 us", "longer gaps", "per row"), rows)


def work_table(work: str, measured: Sequence[Measured]) -> str:
    rows = [
        (
            each.contender.name,
            overhead(each.wall, f"{work} {each.contender.name}").text("%"),
            overhead(each.cpu, f"{work} cpu {each.contender.name}").text("%"),
            f"{sum(each.rows)} ({each.lost})" if each.rows else "",
            f"{each.written_bytes / 1e6:.2f} MB",
        )
        for each in measured
    ]
    header = ("recorder", "wall time", "CPU time", "rows (lost)", "files")
    return f"{work}: added by\n" + table(header, rows)


def rate_text(found: Sequence[Rate]) -> str:
    rows = [
        (
            each.guest,
            each.per_second.text("/s", 0),
            each.per_cpu_second.text("/s", 0),
            each.added_ns.text("ns", 1),
            f"{each.lost} rows, {each.missed} events of {each.rows} rows",
            " + ".join(f"{value:.4f} {name}" for name, value in each.per_step.items())
            + ("" if each.agrees else " NOT WHOLE"),
        )
        for each in found
    ]
    header = (
        "guest",
        "events counted",
        "in CPU time",
        "added CPU time per event",
        "lost",
        "per step",
    )
    return table(header, rows) if rows else ""


def program_text(found: Found) -> str:
    lines = [
        f"eBPF programs by the kernel's statistics; of each run about {found.clock_ns:.0f} ns "
        "(estimated: one reading of the clock) are the statistics' own"
    ]
    for each in found.programs:
        what = "per row" if each.name == OVERFLOW else "per event"
        lines.append(
            f"  {each.name}: {each.ns:.0f} ns {what} in {each.runs} runs, about "
            f"{max(each.ns - found.clock_ns, 0.0):.0f} without them"
        )
    return "\n".join(lines)


def memory_text(memory: Memory) -> str:
    size = "" if memory.bytes_per_row is None else f", {memory.bytes_per_row:.1f} bytes per row"
    return (
        f"whole machine, rows of 1 ms for {memory.seconds} s: {memory.rows} rows, {memory.lost} "
        f"lost, at most {memory.max_rss_bytes / 2**20:.1f} MiB in memory{size}"
    )


def as_json(found: Found) -> dict[str, Any]:
    works = {
        work: [
            {
                "recorder": each.contender.name,
                "role": each.contender.role,
                "interval_ns": each.contender.interval_ns,
                "wall_percent": asdict(overhead(each.wall, f"{work} {each.contender.name}")),
                "cpu_percent": asdict(overhead(each.cpu, f"{work} cpu {each.contender.name}")),
                "stolen_percent": asdict(each.stolen_percent()) if each.stolen else None,
                "stolen_long_percent": asdict(each.stolen_long_percent()) if each.stolen else None,
                "stolen_ns_per_row": asdict(row) if (row := each.stolen_per_row()) else None,
                "rows": each.rows,
                "lost": each.lost,
                "written_bytes": each.written_bytes,
                "wall_ns": [asdict(trial) for trial in each.wall],
                "cpu_ns": [asdict(trial) for trial in each.cpu],
                "stolen_ns_per_s": [asdict(trial) for trial in each.stolen],
            }
            for each in measured
        ]
        for work, measured in found.measured.items()
    }
    return {
        "versions": found.versions,
        "absent": found.absent,
        "works": works,
        "rates": [asdict(each) for each in found.rates],
        "programs": [asdict(each) for each in found.programs],
        "clock_ns": found.clock_ns,
        "memory": asdict(found.memory),
        "verdicts": [asdict(line) for line in verdicts(found)],
    }


def _works(text: str) -> tuple[str, ...]:
    works = tuple(text.split(","))
    if unknown := [work for work in works if work not in WORKS]:
        raise argparse.ArgumentTypeError(f"no such work: {', '.join(unknown)}")
    return works


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, help="of every recorder (7)")
    parser.add_argument(
        "--work", type=_works, default=WORKS, help=f"some of {','.join(WORKS)} (all)"
    )
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--long", action="store_true", help="record 10 minutes for the memory")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("not measured: vtax record, which needs root", file=sys.stderr)
        return
    rounds = options.rounds or (1 if options.quick else 7)
    seconds = 600 if options.long else 2 if options.quick else 60
    found = everything(Plan(options.work, rounds, 0.1 if options.quick else 1.0, seconds))
    print(json.dumps(as_json(found), indent=1) if options.json else text(found))


if __name__ == "__main__":
    main()
