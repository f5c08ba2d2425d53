"""The page of a sweep."""

from __future__ import annotations

from typing import Any

from vtax.core.page.page import Page, Section, Table, notes, table
from vtax.paging.sweep.run import Outcome, best

MOST_ROWS = 200
"""The most rows on a terminal; sweep.parquet has all."""


def page(outcome: Outcome, most: int | None = None) -> Page:
    """The best mode of each point, with at most `most` rows."""
    found = _table(outcome, most)
    more = len(outcome.points) - len(found.rows)
    said = notes([f"{more} more rows are in sweep.parquet"] if more else [])
    title = f"{outcome.design.name}: modelled overhead over native in % of its cycles"
    return Page("paging sweep", (Section(table=found, notes=said),), title=title)


def _table(outcome: Outcome, most: int | None) -> Table:
    """The coordinates of each point, its best mode, and the overhead of each mode."""
    axes = [axis.column for axis in outcome.design.axes]
    modes = [mode for mode in outcome.design.modes if mode != "native"]
    rows = [
        [
            *(str(point[name]) for name in ("workload", "machine", *axes)),
            _best(point),
            *(_percent(point["overhead_percent"].get(mode)) for mode in modes),
        ]
        for point in best(outcome)[:most]
    ]
    return table(["workload", "machine", *axes, "best", *(f"{mode} %" for mode in modes)], rows)


def _best(point: dict[str, Any]) -> str:
    return "failed" if point["error"] is not None else point["best"] or "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
