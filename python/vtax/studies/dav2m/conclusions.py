"""Over which range of exit cost and TLB size each conclusion holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from vtax.studies.dav2m import measures as m
from vtax.studies.dav2m.data import Data, need
from vtax.studies.dav2m.setup import CLOSE_PERCENT, FOCUS, GROUPS, INDIFFERENT_PERCENT
from vtax.studies.model import StudyTable
from vtax.studies.rule import Missing

Place = tuple[float, float]
"""Factors of exit cost and of TLB entries."""
Runs = Mapping[str, dict[str, float]]
"""Cycles by mode of each benchmark at one place."""


def times(factor: float) -> str:
    """A factor as a reader sees it."""
    return f"\N{MULTIPLICATION SIGN}{factor:g}"


@dataclass(frozen=True, slots=True)
class Point:
    """A conclusion at one place."""

    value: float
    """Nested over shadow, or DAV2M over the better static mode, in percent."""
    holds: bool


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What the seed concludes at its one place."""

    title: str
    at: Callable[[Runs], Point]
    distance: bool = False
    """Whether the value is a distance from the best instead of a comparison of both modes."""

    def where_not(self, found: Mapping[Place, Point]) -> str:
        """Where it does not hold, in words."""
        failing: dict[float, list[float]] = {}
        for (exit_factor, tlb_factor), point in sorted(found.items()):
            if not point.holds:
                failing.setdefault(exit_factor, []).append(tlb_factor)
        if not failing:
            return "It holds everywhere."
        if all(not point.holds for point in found.values()):
            return "It holds nowhere."
        tlbs = len({tlb for _, tlb in found})
        parts = [
            f"exit {times(exit_factor)} with TLB "
            + ("of any size" if len(few) == tlbs else ", ".join(map(times, few)))
            for exit_factor, few in failing.items()
        ]
        return f"Not at: {'; '.join(parts)}."


def _prefers(benchmark: str, best: str, runs: Runs) -> Point:
    found = runs[benchmark]
    holds = m.preference(found) == best
    return Point(100 * (found["nested"] / found["shadow"] - 1), holds)


def _near_best(runs: Runs) -> Point:
    worst = max(m.over_best(found, "dav2m") for found in runs.values())
    return Point(worst, worst <= CLOSE_PERCENT)


def _words(benchmark: str, best: str) -> str:
    if best == "indifferent":
        return f"{benchmark} is indifferent (within {INDIFFERENT_PERCENT:g} %)"
    return f"{benchmark} is better under {best} paging"


CONCLUSIONS = (
    *(
        Conclusion(_words(name, best), partial(_prefers, name, best))
        for best, names in GROUPS.items()
        for name in names
    ),
    Conclusion(
        f"DAV2M is within {CLOSE_PERCENT:g} % of the best on all {len(FOCUS)}", _near_best, True
    ),
)


def factors(data: Data) -> tuple[list[float], list[float]]:
    """The exit factors, dearest first, and the TLB factors, smallest first."""
    frame = need(data.sensitivity, "the sensitivity study")
    return (
        sorted(frame["exit_factor"].unique().to_list(), reverse=True),
        sorted(frame["tlb_factor"].unique().to_list()),
    )


def points(data: Data, conclusion: Conclusion) -> dict[Place, Point]:
    """The conclusion at every place that was simulated."""
    places: dict[Place, dict[str, dict[str, float]]] = {}
    for row in need(data.sensitivity, "the sensitivity study").iter_rows(named=True):
        runs = places.setdefault((row["exit_factor"], row["tlb_factor"]), {})
        runs.setdefault(row["benchmark"], {})[row["mode"]] = row["cycles"]
    try:
        return {place: conclusion.at(runs) for place, runs in places.items()}
    except KeyError as absent:
        raise Missing(f"not simulated: {absent} in the sensitivity study") from None


def table(data: Data) -> StudyTable:
    """One row per conclusion, with the places where it does not hold."""
    rows = []
    for conclusion in CONCLUSIONS:
        found = points(data, conclusion)
        held = sum(point.holds for point in found.values())
        rows.append((conclusion.title, f"{held} of {len(found)}", conclusion.where_not(found)))
    return StudyTable(
        "sensitivity",
        "Where it does not hold",
        "The heat maps of figure S in words. Factors multiply the machine's cost of an exit and "
        "the entries of its TLBs; everything else stays as it is.",
        ("Conclusion", "Holds at", "Where not"),
        rows,
    )
