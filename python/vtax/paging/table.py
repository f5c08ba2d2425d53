"""The result of a simulation for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtax.units import format_si

if TYPE_CHECKING:
    from rich.table import Table

    from vtax.paging.result import Number, SimulationResult

COUNTERS = ("l1_tlb_misses", "l2_tlb_misses", "walk_references", "exits", "switches")

HEADINGS = (
    "mode",
    "cycles",
    "overhead",
    "by walks",
    "by exits",
    "by switching",
    "L2 TLB misses",
    "walk references",
    "exits",
    "switches",
)
NOTE = (
    "Modelled, not measured. Overhead is over native, in % of its cycles; its parts are walks\n"
    "(with hits in the second TLB), exits, and switching (with refill)."
)


def title(result: SimulationResult) -> str:
    """What was simulated and how: it says that all figures are a model's."""
    how = "every reference followed" if result.whole else "phases sampled"
    return f"{result.workload} on {result.machine}: model, {how}"


def to_json(result: SimulationResult) -> dict[str, Any]:
    """The result as `vtax paging simulate --json` prints it; counts are rounded to whole ones."""
    modes = [
        {
            "mode": name,
            "instructions": _whole(row["instructions"]),
            "references": _whole(row["references"]),
            "cycles": _whole(row["cycles"]),
            "overhead_percent": _rounded(row["overhead_percent"]),
            **{counter: _whole(row[counter]) for counter in COUNTERS},
            "relative_error_percent": _rounded(row["relative_error_percent"]),
            "model": True,
        }
        for name, row in result.totals.items()
    ]
    return {"workload": result.workload, "machine": result.machine, "modes": modes}


def plain_table(result: SimulationResult) -> str:
    """The table without a terminal: aligned with blanks, one line per mode."""
    rows = [HEADINGS, *_rows(result)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [title(result)]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells))
    return "\n".join([*lines, NOTE])


def rich_table(result: SimulationResult) -> Table:
    """The table for a terminal."""
    from rich.table import Table

    table = Table(title=title(result), caption=NOTE, title_justify="left", caption_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "mode" else "right")
    for row in _rows(result):
        table.add_row(*row)
    return table


def _rows(result: SimulationResult) -> list[tuple[str, ...]]:
    return [
        (
            name,
            _cycles(row),
            _percent(row["overhead_percent"]),
            *(_percent(part) for part in _parts(row, result.native)),
            *(_count(row[counter]) for counter in COUNTERS[1:]),
        )
        for name, row in result.totals.items()
    ]


def _parts(row: dict[str, Number], native: dict[str, float]) -> list[Number]:
    """Overhead by walks, exits and switching in percent of native cycles."""
    groups = (("tlb", "walks"), ("exits",), ("switches", "refill"))
    if not native["cycles"]:
        return [None for _ in groups]

    def beyond_native(part: str) -> float:
        return (row[f"cycles_{part}"] or 0.0) - native[f"cycles_{part}"]

    return [100.0 * sum(map(beyond_native, group)) / native["cycles"] for group in groups]


def _cycles(row: dict[str, Number]) -> str:
    cycles, error = row["cycles"] or 0.0, row["relative_error_percent"]
    return format_si(cycles, "") + (
        f" \N{PLUS-MINUS SIGN}{error:.1f} %" if error is not None else ""
    )


def _percent(value: Number) -> str:
    return "-" if value is None else f"{value:.2f} %"


def _count(value: Number) -> str:
    return "-" if value is None else format_si(round(value), "")


def _whole(value: Number) -> int | None:
    return None if value is None else round(value)


def _rounded(value: Number) -> Number:
    return None if value is None else round(value, 4)
