"""What the study measured, and the numbers that claims, tables and figures share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import polars as pl

from vtax.core.recorder.intervals import Event, Recording, axis_of
from vtax.core.recorder.ways import Axis, By, Method, Per
from vtax.record.correlate.analysis import Matrix, correlate
from vtax.record.timeline.analysis import timeline
from vtax.record.timeline.phases import phase_bins, phases
from vtax_studies.model import StudyData
from vtax_studies.rule import Missing, some
from vtax_studies.vrtprof.setup import (
    DOMUS,
    EMULATED,
    HARDWARE,
    LEVELS,
    NATIVE,
    PAIR_COLUMNS,
    STAND_INS,
    PaperEvent,
)


def _none() -> pl.DataFrame:
    return pl.DataFrame()


def has(recording: Recording, name: str) -> bool:
    """Whether any row has a value of the event."""
    frame = recording.frame
    return name in frame.columns and frame[name].count() > 0


@dataclass(frozen=True, eq=False)
class Data(StudyData):
    """Recordings by environment and workload, and the runs of table IV.

    `overheads`: workload, setting (empty: not recorded), repetition, cpu_s, wall_s, rows, lost.
    `emulated`: the same in the emulated machine, with `instructions` instead of times.
    """

    recordings: Mapping[str, Mapping[str, Sequence[Recording]]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    """Events that this machine does not have, and why; by the paper's name where there is no
    other."""
    overheads: pl.DataFrame = field(default_factory=_none)
    emulated: pl.DataFrame = field(default_factory=_none)
    kvm_here: bool = False
    """Whether guests ran under this machine's KVM, not under that of an emulated host."""
    raw: Mapping[str, str] = field(default_factory=dict)
    """What the recorder calls events of table II that only this processor's codes name."""

    def frames(self) -> Mapping[str, pl.DataFrame]:
        """The counts of each recording, the overheads, and what is absent."""
        absent = [{"event": name, "reason": reason} for name, reason in self.absent.items()]
        found = {
            "counts": pl.DataFrame(list(self._counts()), infer_schema_length=None),
            "overheads": self.overheads,
            "emulated": self.emulated,
            "absent": pl.DataFrame(absent),
        }
        return {name: frame for name, frame in found.items() if not frame.is_empty()}

    def _counts(self) -> Iterator[dict[str, Any]]:
        """A row for each event of each recording."""
        for environment, workloads in self.recordings.items():
            for workload, recordings in workloads.items():
                for repetition, one in enumerate(recordings):
                    length = int(one.frame["length_ns"].sum())
                    for event in one.events:
                        if not event.is_level:
                            yield {
                                "environment": environment,
                                "workload": workload,
                                "repetition": repetition,
                                "event": event.name,
                                "count": total([one], event.name),
                                "length_ns": length,
                            }

    def of(self, environment: str) -> list[Recording]:
        """All recordings of an environment. Raises Missing without any."""
        found = [one for each in self.recordings.get(environment, {}).values() for one in each]
        return some(found, f"{environment}: {self.left_out.get(environment, 'not recorded')}")

    def guests(self) -> list[str]:
        """Recorded environments with nested guests, fewest guests first."""
        return [name for name in self.recordings if name.endswith(("guest", "guests"))]

    def domus(self) -> list[str]:
        """Recorded environments under Xen, fewest domUs first."""
        return [name for name in self.recordings if name in DOMUS.values()]

    def native(self) -> list[Recording]:
        return self.of(NATIVE)

    def workload(self, program: str, environments: Sequence[str]) -> str:
        """A real program, or where one of the environments did not record it, its stand-in."""
        ran = all(program in self.recordings.get(name, {}) for name in environments)
        return program if ran else STAND_INS[program]

    def labelled(self, workload: str, environments: Sequence[str]) -> list[Recording]:
        """Recordings of one workload; the label of each is its environment.

        Raises Missing without any recording.
        """
        found = [
            one for name in environments for one in self.recordings.get(name, {}).get(workload, ())
        ]
        return some(found, f"{workload} was not recorded")

    def measured(self, recordings: Sequence[Recording], names: Sequence[str]) -> list[str]:
        """The names of which any row of a recording has a value."""
        return [name for name in names if any(has(one, name) for one in recordings)]

    def columns(self, event: PaperEvent) -> tuple[str, ...]:
        """The columns of an event of table II, of a hardware event both parts."""
        names = event.ours or tuple(filter(None, [self.raw.get(event.name)]))
        return tuple(
            f"{name}{level}"
            for name in names
            for level in (LEVELS.values() if name.startswith("hw.") else ("",))
        )

    def column(self, paper: str) -> str:
        """The column nearest to a row of figures 2 and 3, such as K_STORES; empty without any."""
        level, _, event = paper.partition("_")
        if event in self.raw:
            return self.raw[event] + LEVELS[level]
        return PAIR_COLUMNS.get(paper, "")

    def why_absent(self, name: str) -> str:
        return self.absent.get(name, "not recorded")


FIRST_RESERVED = 0x7FF0
"""The first number that is no domain's (DOMID_FIRST_RESERVED, Xen's public/xen.h)."""


def of_domus(recording: Recording) -> Recording:
    """Only the rows of domUs: dom0 and the idle domain are never left by a VM exit."""
    own = pl.col("vm").is_between(1, FIRST_RESERVED - 1)
    return replace(recording, frame=recording.frame.filter(own))


MOST_EVENTS = 26
"""The most events of a matrix that can still be read; the paper's matrices have 21 and 24."""
_FIRST = {*HARDWARE, *PAIR_COLUMNS.values(), "derived.cpi.user"}
"""Events of the paper's matrices."""


def total(recordings: Sequence[Recording], name: str) -> int | None:
    """The sum of a column; None when no recording has it, or one recording did not count all the
    time."""
    totals = [one.total(one.event(name)) for one in recordings if has(one, name)]
    known = [one for one in totals if one is not None]
    return sum(known) if known and len(known) == len(totals) else None


def rate(recordings: Sequence[Recording], name: str) -> float | None:
    """Counts per second of the time in which the event was counted; None when no recording has
    it."""
    own = [one for one in recordings if has(one, name)]
    length = sum(one.measured_ns(one.event(name)) for one in own)
    return 1e9 * _count(own, name) / length if length else None


def _count(recordings: Sequence[Recording], name: str) -> int:
    """The count over the rows that have a value."""
    return sum(int(one.frame[name].sum()) for one in recordings if has(one, name))


def varying_events(recordings: Sequence[Recording]) -> list[Event]:
    """Events with any count, in their order: those of the paper's matrices, and of the others the
    most frequent ones, up to MOST_EVENTS in all."""
    known = {event.name: event for one in recordings for event in one.events}
    counts = {name: _count(recordings, name) for name in known}
    most = sorted((name for name in known if counts[name]), key=lambda name: -counts[name])
    # A clock that makes the rows has a timer interrupt in each row, which says nothing.
    others = [name for name in most if name != "irq.timer"]
    others.sort(key=lambda name: name not in _FIRST and not name.startswith("hw.raw."))
    kept = set(others[:MOST_EVENTS])
    return [event for name, event in known.items() if name in kept]


def matrix(recordings: Sequence[Recording]) -> Matrix:
    """The averaged correlations, Pearson's as in the paper, given the intervals' length."""
    per = axis_of(recordings, None)
    return correlate(recordings, varying_events(recordings), method=Method.PEARSON, per=per)


def pair(found: Matrix, first: str, second: str) -> tuple[float, bool]:
    """A correlation and whether it is significant. Raises Missing when the matrix lacks it."""
    for name in (first, second):
        if name not in found.events:
            raise Missing(f"{name or 'an event of the pair'} was not counted or never varied")
    i, j = found.events.index(first), found.events.index(second)
    value = float(found.r[i, j])
    if not math.isfinite(value):
        raise Missing(f"{first} and {second} were never counted together")
    return value, bool(found.significant[i, j])


Overheads = dict[str, tuple[float, float]]
"""Per workload: the median overhead in percent over pairs of neighbouring runs with and without the
recorder, and how far the pairs are from it."""


def overheads(data: Data, setting: str, column: str = "cpu_s") -> Overheads:
    """Native overheads, ± half the range between the pairs' quartiles.

    Raises Missing when the data lack what it needs.
    """
    found = _slowdowns(data.overheads, setting, column)
    return {name: (median(pairs), spread(pairs)) for name, pairs in found.items()}


def emulated_overheads(data: Data, setting: str) -> Overheads:
    """Overheads in the emulated machine, in instructions, ± half the range of the pairs.

    Raises Missing when they were not measured.
    """
    if data.emulated.is_empty():
        reason = data.left_out.get(EMULATED, "not measured")
        raise Missing(f"{EMULATED}: {reason}")
    found = _slowdowns(data.emulated, setting, "instructions")
    return {name: (median(all_), (max(all_) - min(all_)) / 2) for name, all_ in found.items()}


def _slowdowns(frame: pl.DataFrame, setting: str, column: str) -> dict[str, list[float]]:
    """The slowdowns in percent, for each repetition of each workload."""
    if frame.is_empty():
        raise Missing("overheads were not measured")
    found = {}
    for name in frame["workload"].unique(maintain_order=True).to_list():
        own = frame.filter(pl.col("workload") == name)
        bare = dict(own.filter(pl.col("setting") == "").select("repetition", column).iter_rows())
        with_it = own.filter(pl.col("setting") == setting).select("repetition", column)
        ratios = [100 * (value / bare[at] - 1) for at, value in with_it.iter_rows() if bare.get(at)]
        if ratios:
            found[name] = ratios
    return some(found, f"no run at {setting}")


def spread(values: Sequence[float]) -> float:
    """Half the distance between the quartiles."""
    series = pl.Series(values)
    low, high = series.quantile(0.25, "linear"), series.quantile(0.75, "linear")
    return 0.0 if low is None or high is None else (high - low) / 2


def mean(found: Overheads) -> float:
    """The geometric mean of the slowdowns, in percent.

    The paper takes the mean of magnitudes, which noise alone makes positive.
    """
    logs = [math.log1p(value / 100) for value, _ in found.values()]
    return 100 * math.expm1(sum(logs) / len(logs))


def noise(found: Overheads) -> float:
    """The mean distance of the workloads' pairs from their medians, in percentage points."""
    return sum(around for _, around in found.values()) / len(found)


def per_unit(recordings: Sequence[Recording]) -> Per:
    """The unit of rates: instructions where they were counted, else seconds."""
    return axis_of(recordings, None)


def phase_counts(
    recordings: Sequence[Recording], names: Sequence[str], per: Per, axis: Axis
) -> list[int]:
    """The number of phases in each recording, by the rates of these events."""
    events = [recordings[0].event(name) for name in names]
    counts = []
    for one in recordings:
        made = timeline([one], events, per=per, axis=axis, bins=phase_bins([one], By.CPU))
        counts.append(len(phases(made, made.lines)))
    return counts
