"""How often a program does each operation: the recorder counts in native runs of their own.

It counts by eBPF, or by ptrace where eBPF is refused. While it counts, programs have no vDSO, so
that each reading of a clock is a system call like others; what that takes is no part of the bill.

Counting is not part of the comparison: the runs that are compared are not disturbed, and what
counting cost the program is said. A program makes the same calls in every environment, so one
place is enough; where a guest's kernel would make a program choose others, the bill's residual
shows it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vtax.compare.request import ComparisonRequest
from vtax.core import foreign_json
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.files import read_bounded
from vtax.core.formats.folder import RAW, RunFolder
from vtax.core.formats.scratch import scratch
from vtax.core.recorder.intervals import EVENTS, MAX_JSON_BYTES, RECORD
from vtax.core.recorder.options import RecordOptions, Target
from vtax.core.recorder.recorder import command, failure
from vtax.core.runner.instruments.record import Recording
from vtax.core.runner.matching import ComparedVariant
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Done, Keeper, Listener, Plan, Runner, Step, Variant
from vtax.workloads.outcomes import require_success

RUNS = 2
"""One says nothing about how steady a count is."""
LABEL = "counting"
READINGS = "calls.clock"
"""The column of clock readings; absent where programs had to keep their vDSO."""


@dataclass(frozen=True, slots=True)
class Means:
    """How operations are counted."""

    by: str
    options: RecordOptions
    warnings: tuple[str, ...] = ()
    """What a reader must know before believing the counts."""


EBPF = Means(
    "eBPF at the entry of each system call and page fault, in a native run",
    RecordOptions.of(every="1s", events="calls,faults,sched.execs", **{"without-vdso": ""}),
)
PTRACE = Means(
    "ptrace at each system call, and getrusage, in a native run",
    RecordOptions.of(**{"by-ptrace": ""}),
    (
        "counted by ptrace, which disturbs the program: it stops twice at each system call, so "
        "what it does by time, or between its threads, may differ; kinds of page faults are not "
        "known",
    ),
)


@dataclass(frozen=True, slots=True)
class Counting:
    """What the counting runs found."""

    by: str
    """How operations were counted."""
    counts: Mapping[str, tuple[float, ...]]
    """Each column's count in each run."""
    wall_s: tuple[float, ...]
    """How long each run took."""
    warnings: tuple[str, ...] = ()
    """What a reader must know before believing the counts."""


def choose() -> Means:
    """eBPF, or ptrace where the recorder refuses. Raises VtaxError, in the recorder's own words,
    where neither can count.

    Both are tried for a moment, so that nobody waits for a comparison first.
    """
    try:
        _try(EBPF)
    except MisuseError:
        raise
    except VtaxError as refused:
        _try(PTRACE)
        return replace(PTRACE, warnings=(*PTRACE.warnings, f"no eBPF: {refused}"))
    return EBPF


def _try(means: Means) -> None:
    with scratch("counting") as folder:
        arguments = [*means.options.arguments(), *Target(command=["true"]).arguments()]
        line = command(arguments, folder / "recording")
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise failure(done.returncode, done.stderr)


def count(means: Means, request: ComparisonRequest, native: ComparedVariant, folder: RunFolder,
          listener: Listener) -> Counting:  # fmt: skip
    """Run the program natively with the recorder around it.

    Raises VtaxError when it cannot be recorded, or fails.
    """
    keeper = _Keeper(request)
    # What an earlier bill of the same run has left.
    shutil.rmtree(folder.path / RAW / LABEL, ignore_errors=True)
    recording = Recording(means.options, by_guest=True, rows=False)
    variant = Variant(LABEL, native.environment, folder.raw(LABEL), (recording,))
    out = folder.instruments(LABEL)
    steps = [
        Step(LABEL, number, request.command, f"r{number:03d}", out / str(number))
        for number in range(RUNS)
    ]
    plan = Plan(
        (variant,),
        steps,
        request.variables,
        warm_up=request.warm_up,
        max_output_bytes=request.max_output_bytes,
        workdir=request.workdir,
        matched=True,
    )
    listener.extended(len(steps))
    try:
        Runner(plan, keeper, listener).run()
    finally:
        # The sums are in the bill; rows of a second each say nothing more.
        shutil.rmtree(out, ignore_errors=True)
    warnings = list(means.warnings)
    if not all(READINGS in each for each in keeper.found):
        warnings.append(
            "clock readings through the vDSO are not counted: it could not be taken away"
        )
    return Counting(means.by, _by_column(keeper.found), tuple(keeper.wall_s), tuple(warnings))


@dataclass(slots=True)
class _Keeper(Keeper):
    request: ComparisonRequest
    found: list[Mapping[str, float]] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    def read(self, this: Repetition) -> None:
        require_success(self.request.workload.label(), this.finished[0].outcome, this.exchange)

    def done(self, done: Done) -> None:
        self.found.append(sums(done.step.out))
        self.wall_s.append(duration_s(done.step.out))


def sums(recording: Path) -> Mapping[str, float]:
    """The whole count of each column of a recording.

    Raises VtaxError for a file that is not the recorder's, and for a column that was not counted
    all the time.
    """
    try:
        told = foreign_json.parse(read_bounded(recording / EVENTS, MAX_JSON_BYTES))
        return {each["name"]: _whole(each) for each in told["columns"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VtaxError(f"{recording / EVENTS} cannot be used: {error}") from None


def duration_s(recording: Path) -> float:
    """How long the command of a recording ran. Raises VtaxError for a file that is not the
    recorder's."""
    try:
        told = foreign_json.parse(read_bounded(recording / RECORD, MAX_JSON_BYTES))
        return float(told["end"]["monotonic_ns"] - told["clocks"][0]["monotonic_ns"]) / 1e9
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise VtaxError(f"{recording / RECORD} cannot be used: {error}") from None


def _whole(column: Mapping[str, Any]) -> float:
    return float(column["sum"]) + float(column["after_last_row"])


def _by_column(runs: Sequence[Mapping[str, float]]) -> Mapping[str, tuple[float, ...]]:
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: tuple(run.get(name, 0.0) for run in runs) for name in names}
