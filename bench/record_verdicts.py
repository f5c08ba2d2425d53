"""Ratios, verdicts and tables from runs with and without a contender; pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from interleaved import Interval, around, estimate, interval


@dataclass(frozen=True, slots=True)
class Trial:
    """A run under a contender between two bare ones of the same amount of work."""

    before: float
    during: float
    after: float

    @property
    def log_ratio(self) -> float:
        """The ratio to the mean of both neighbours, which removes what changes evenly with time."""
        return math.log(self.during / ((self.before + self.after) / 2.0))

    @property
    def added(self) -> float:
        """The difference in the runs' unit."""
        return self.during - (self.before + self.after) / 2.0


def overhead(trials: Sequence[Trial], name: str) -> Interval:
    """Percent that the contender adds."""
    return percent([trial.log_ratio for trial in trials], name)


def percent(logs: Sequence[float], name: str) -> Interval:
    """Logarithms of ratios as percent above 1; the interval is made where errors are symmetric."""
    plain = interval(logs, name)
    ends = [None if end is None else math.expm1(end) * 100.0 for end in (plain.low, plain.high)]
    return Interval(plain.n, math.expm1(plain.median) * 100.0, *ends)


def lead(ours: Sequence[Trial], theirs: Sequence[Trial], name: str) -> Interval:
    """How many percent longer work takes under ours than under theirs; below 0, ours is faster."""
    pair = [estimate([t.log_ratio for t in trials], name) for trials in (ours, theirs)]
    n = min(len(ours), len(theirs))
    if pair[0] is None or pair[1] is None:
        return percent([ours[0].log_ratio - theirs[0].log_ratio], name)
    found = around(pair[0] - pair[1], n)
    assert found.low is not None and found.high is not None
    low, high = math.expm1(found.low) * 100.0, math.expm1(found.high) * 100.0
    return Interval(n, math.expm1(found.median) * 100.0, low, high)


def stands_against(ours_ns: int, theirs_ns: int | None) -> bool:
    """Whether rows of `ours_ns` are at equal or finer resolution than a peer's.

    A peer without intervals (None) writes every event: it is compared with every setting, because
    what it writes can be summed up to rows of any length.
    """
    return theirs_ns is None or ours_ns <= theirs_ns


def events_per_step(counts: dict[str, int], steps: int) -> dict[str, float]:
    """Counts of the events that a guest's step makes; rarer ones are left out."""
    return {name: count / steps for name, count in counts.items() if count > 0.5 * steps}


def agrees(per_step: dict[str, float], tolerance: float = 1e-3) -> bool:
    """Whether each event was counted a whole number of times for each step.

    The instructions of a step are the same every time, so anything else is miscounted. The
    tolerance is for steps that an interrupt makes KVM begin again, and the guest's way to its loop.
    """
    return bool(per_step) and all(
        abs(value - round(value)) <= tolerance * value for value in per_step.values()
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest cell."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    shown = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join(shown)
