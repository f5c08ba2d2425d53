"""The result of a sweep on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from vtax.paging.sweep.run import Outcome, best
from vtax.present.terminal import tables

MOST_ROWS = 200
"""The most rows on a terminal; sweep.parquet has all."""


def parts(outcome: Outcome, most: int | None = None) -> list[RenderableType]:
    """The result for `vtax.present.terminal.tables.show`, with at most `most` rows."""
    header, rows = cells(outcome)
    found: list[RenderableType] = [
        tables.title(f"{outcome.design.name}: modelled overhead over native in % of its cycles"),
        tables.table(header, rows[:most]),
    ]
    if most is not None and len(rows) > most:
        found.append(tables.note(f"{len(rows) - most} more rows are in sweep.parquet"))
    return found


def cells(outcome: Outcome) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the coordinates of each point, its best mode, the overhead of each mode."""
    axes = [axis.column for axis in outcome.design.axes]
    modes = [mode for mode in outcome.design.modes if mode != "native"]
    header = ["workload", "machine", *axes, "best", *(f"{mode} %" for mode in modes)]
    rows = []
    for point in best(outcome):
        coordinates = [str(point[name]) for name in ("workload", "machine", *axes)]
        overheads = (_percent(point["overhead_percent"].get(mode)) for mode in modes)
        rows.append([*coordinates, _best(point), *overheads])
    return header, rows


def _best(point: dict[str, Any]) -> str:
    return "failed" if point["error"] is not None else point["best"] or "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
