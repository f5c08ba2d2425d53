"""The same program timed by each clock: which verdicts depend on the clock.

Inside a virtual machine the clocks themselves may be wrong (the paper on HPC Challenge in
virtualized environments, section 3), and CPU time leaves out what a program waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vtax.core.clocks import least_s
from vtax.core.formats.model import Clock, ComparisonRecord, Sample
from vtax.core.statistics.results import PROGRAM_TIMES, Flag, Result, Verdict, leading_metric

ACCURACY = 0.01
"""Wanted, as a share of the shortest duration."""
READINGS = 2
"""A duration is the difference of two readings, each off by up to a step."""

_DECIDED = frozenset({Verdict.SLOWER, Verdict.FASTER, Verdict.EQUIVALENT})
_SAID = {Verdict.EQUIVALENT: "equivalent to the baseline"}


def shortest_duration_s(step_ns: float | None, reading_ns: float | None) -> float | None:
    """The shortest duration that a clock times to 1 %; None: its step is not known.

    `reading_ns`: what a reading takes; None: the clock is too coarse to say, and then a reading is
    too short to count.
    """
    if step_ns is None:
        return None
    return (READINGS * step_ns + (reading_ns or 0.0)) / 1e9 / ACCURACY


def seconds(sample: Sample, clock: Clock, tsc_hz: float | None) -> float | None:
    """A repetition's duration by a clock; None where the machine has no such clock."""
    if clock == "tsc":
        ticks = sample.tsc_ticks
        return None if ticks is None or tsc_hz is None else _bounded(ticks / tsc_hz, sample)
    return {"wall": sample.wall_s, "cpu": sample.cpu_s, "host": sample.host_wall_s}[clock]


def _bounded(told_s: float, sample: Sample) -> float:
    """A time by a counter that the machine read, bounded by the host's time as its clock's time is.

    The clock and the counter of an emulator are not bounded: their times are the emulator's.
    """
    least = least_s(sample.host_wall_s)
    return sample.host_wall_s if told_s < least <= sample.wall_s else told_s


def program_times(record: ComparisonRecord, samples: Sequence[Sample]) -> list[Sample]:
    """Each repetition's time by every clock, as samples of the metrics in `PROGRAM_TIMES`."""
    rates = {each.label: each.tsc_hz for each in record.environments}
    runs = {(sample.environment, sample.repetition): sample for sample in samples}
    return [
        replace(run, metric=metric, unit="s", better="lower", value=value, ran_s=None)
        for run in runs.values()
        for clock, metric in PROGRAM_TIMES.items()
        if (value := seconds(run, clock, rates.get(run.environment))) is not None
    ]


def clock_flags(record: ComparisonRecord, times: Sequence[Result]) -> Iterator[Flag]:
    """Flags where another clock than the leading one would turn a verdict.

    `times`: the results of `program_times`.
    """
    lead = PROGRAM_TIMES[record.clock]
    if leading_metric(record) != lead:
        return
    for environment in record.environments:
        own = {each.metric: each for each in times if each.environment == environment.label}
        if environment.role == "measured" and lead in own:
            yield from _turned(own.pop(lead), own)


def _turned(lead: Result, others: Mapping[str, Result]) -> Iterator[Flag]:
    found = [
        each
        for each in others.values()
        if {each.verdict, lead.verdict} <= _DECIDED and each.verdict is not lead.verdict
    ]
    if found:
        said = " and ".join(f"by {each.metric} {_described(each)}" for each in found)
        yield Flag(
            lead.environment,
            lead.metric,
            "clock-verdict",
            f"By {lead.metric} this environment is {_described(lead)}, but {said}. Decide whose "
            "time you mean (--clock), or find out which clock is wrong: vtax audit.",
        )


def _described(result: Result) -> str:
    said = _SAID.get(result.verdict, result.verdict.value)
    return f"{said} ({result.percent_of_baseline:.1f} %)"


def fact(facts: Mapping[str, Any], name: str) -> float | None:
    """A number about the clock in the facts of a machine; None: not known."""
    clock = facts.get("clock")
    value = clock.get(name) if isinstance(clock, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
