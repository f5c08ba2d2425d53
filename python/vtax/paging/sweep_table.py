"""The result of a sweep for people and for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from vtax.paging.sweep import Outcome, best

if TYPE_CHECKING:
    from rich.table import Table

MOST_ROWS = 200
"""On a terminal; the whole is in sweep.parquet."""


def as_json(outcome: Outcome) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "name": outcome.study.name,
        "folder": str(outcome.folder),
        "state": outcome.state,
        "points": outcome.study.size,
        "finished": len(outcome.points),
        "modes": list(outcome.study.modes),
        "best": best(outcome),
        "failed": [
            {"point": point.identity, "label": point.label, "error": error}
            for point, error in outcome.failures
        ],
    }


def render_table(outcome: Outcome) -> Table:
    """For a terminal."""
    from rich.markup import escape
    from rich.table import Table

    header, rows = cells(outcome)
    table = Table(title=escape(_title(outcome)), title_justify="left")
    numbers = {f"{mode} %" for mode in outcome.study.modes}
    for name in header:
        justify: Literal["left", "right"] = "right" if name in numbers else "left"
        table.add_column(escape(name), justify=justify, overflow="fold")
    for row in rows[:MOST_ROWS]:
        table.add_row(*map(escape, row))
    if len(rows) > MOST_ROWS:
        table.caption = _left_out(len(rows))
    return table


def plain_table(outcome: Outcome) -> str:
    """For a pipe: columns of equal width, every row."""
    header, rows = cells(outcome)
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]
    return "\n".join([_title(outcome), *lines])


def cells(outcome: Outcome) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the place of each point, its best mode, the overhead of each mode."""
    axes = [axis.column for axis in outcome.study.axes]
    modes = [mode for mode in outcome.study.modes if mode != "native"]
    header = ["workload", "machine", *axes, "best", *(f"{mode} %" for mode in modes)]
    rows = []
    for point in best(outcome):
        place = [str(point[name]) for name in ("workload", "machine", *axes)]
        overheads = (_percent(point["overhead_percent"].get(mode)) for mode in modes)
        rows.append([*place, _best(point), *overheads])
    return header, rows


def _best(point: dict[str, Any]) -> str:
    return "failed" if point["error"] is not None else point["best"] or "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _title(outcome: Outcome) -> str:
    return f"{outcome.study.name}: modelled overhead over native in % of its cycles"


def _left_out(rows: int) -> str:
    return f"{rows - MOST_ROWS} more rows are in sweep.parquet"
