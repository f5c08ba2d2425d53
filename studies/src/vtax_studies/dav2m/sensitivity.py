"""Where each conclusion holds as exits and TLBs change, and what open choices of DAV2M change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from vtax.core.page.format import MINUS, significant
from vtax.core.page.page import HeatCell, HeatMap
from vtax_studies.dav2m import data as m
from vtax_studies.dav2m.data import Data, need
from vtax_studies.dav2m.setup import (
    CHOICES,
    CLOSE_PERCENT,
    DEFAULTS,
    FOCUS,
    GROUPS,
    INDIFFERENT_PERCENT,
    MACHINE,
    MACHINE_TITLES,
    PHASED,
)
from vtax_studies.model import StudyFigure, StudyTable
from vtax_studies.rule import Missing

Cell = tuple[float, float]
"""A cell of the heat map: factors of exit cost and of TLB entries."""
Runs = Mapping[str, dict[str, float]]
"""Cycles by mode of each benchmark in one cell."""


def times(factor: float) -> str:
    """A factor as a reader sees it."""
    return f"\N{MULTIPLICATION SIGN}{factor:g}"


@dataclass(frozen=True, slots=True)
class Point:
    """The value and verdict of a conclusion in one cell."""

    value: float
    """Nested over shadow, or DAV2M over the better static mode, in percent."""
    holds: bool


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What the paper concludes from its one machine."""

    title: str
    at: Callable[[Runs], Point]
    distance: bool = False
    """Whether the value is a distance from the best instead of a comparison of the two modes."""

    def where_not(self, found: Mapping[Cell, Point]) -> str:
        """Where the conclusion does not hold, in words."""
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
    """The exit factors, largest first, and the TLB factors, smallest first."""
    frame = need(data.sensitivity, "the sensitivity analysis")
    return (
        sorted(frame["exit_factor"].unique().to_list(), reverse=True),
        sorted(frame["tlb_factor"].unique().to_list()),
    )


def points(data: Data, conclusion: Conclusion) -> dict[Cell, Point]:
    """The conclusion in every cell that was simulated.

    Raises Missing when the data lack what it needs.
    """
    cells: dict[Cell, dict[str, dict[str, float]]] = {}
    for row in need(data.sensitivity, "the sensitivity analysis").iter_rows(named=True):
        runs = cells.setdefault((row["exit_factor"], row["tlb_factor"]), {})
        runs.setdefault(row["benchmark"], {})[row["mode"]] = row["cycles"]
    try:
        return {cell: conclusion.at(runs) for cell, runs in cells.items()}
    except KeyError as absent:
        raise Missing(f"not simulated: {absent} in the sensitivity analysis") from None


def conclusions_table(data: Data) -> StudyTable:
    """One row per conclusion, with the factors where it does not hold."""
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


LIMIT = 30.0
"""The percentage beyond which the colour stays the same."""
DISTANCE_LIMIT = 5.0


def sensitivity(data: Data) -> StudyFigure:
    """One heat map per conclusion."""
    return StudyFigure(
        "S",
        "Where each conclusion holds (model)",
        f"The {MACHINE_TITLES[MACHINE]} with the cost of leaving and entering the guest "
        "multiplied (rows) and with more or fewer TLB entries of both levels (columns). The "
        "number is what nested paging takes beyond shadow paging in percent (blue: shadow is "
        "better, orange: nested is), in the last map what DAV2M takes beyond the better of both. "
        "A tick marks where the paper's conclusion holds, a cross where it does not.",
        "The paper measured one point of this plane, and a second machine.",
        [_map(data, conclusion) for conclusion in CONCLUSIONS],
        columns=2,
    )


def _map(data: Data, conclusion: Conclusion) -> HeatMap:
    found = points(data, conclusion)
    exits, tlbs = factors(data)
    held = sum(point.holds for point in found.values())
    limit = DISTANCE_LIMIT if conclusion.distance else LIMIT

    def cell(row: float, column: float) -> HeatCell:
        point = found[row, column]
        detail = f"exit cost {times(row)}, TLB {times(column)}: {_text(point)}"
        return HeatCell(_text(point), detail, point.value / limit)

    return HeatMap(
        conclusion.title,
        f"holds at {held} of {len(found)} points",
        f"Heat map of the model. {conclusion.title}: holds at {held} of {len(found)} points. "
        f"{conclusion.where_not(found)}",
        list(map(times, tlbs)),
        [(times(row), [cell(row, column) for column in tlbs]) for row in exits],
        "distance" if conclusion.distance else "modes",
        corner="exit cost \N{RIGHTWARDS ARROW} TLB entries",
    )


def _text(point: Point) -> str:
    digits = f"{point.value:.0f}" if abs(point.value) >= 10 else f"{point.value:.1f}"
    shown = digits.removeprefix("-") if float(digits) == 0 else digits.replace("-", MINUS)
    return f"{shown} {'✓' if point.holds else '✗'}"


def choices_table(data: Data) -> StudyTable:
    """Switches and overhead of gzip and gcc with one choice changed at a time."""
    need(data.choices, "variants of DAV2M")
    headings = ["Parameter", "Left open by the paper", "Setting"]
    for name in PHASED:
        headings += [f"{name}: switches", f"{name}: overhead (model)"]
    return StudyTable(
        "choices",
        "What each open choice of DAV2M changes",
        "The paper's text and pseudo-code leave these points open. Each row changes one of them "
        "and keeps the others at vtax's defaults.",
        headings,
        list(_rows(data)),
    )


def _rows(data: Data) -> Iterator[list[str]]:
    yield ["all", "", "defaults", *_cells(data, "", "")]
    for choice in CHOICES:
        setting = f"{choice.shown} (default {DEFAULTS[choice.parameter]})"
        cells = _cells(data, choice.parameter, choice.shown)
        yield [choice.parameter, choice.question, setting, *cells]


def _cells(data: Data, parameter: str, setting: str) -> Iterator[str]:
    for name in PHASED:
        rows = data.choices.filter(benchmark=name, parameter=parameter, setting=setting).to_dicts()
        if rows:
            yield f"{rows[0]['switches']:.0f}"
            yield f"{significant(rows[0]['overhead_percent'], 3)} %"
        else:
            yield from ("not simulated", "not simulated")
