"""The page of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vtax.core.page.page import Page, Section, notes, table
from vtax.core.units import format_si
from vtax.paging.files import COUNTERS

if TYPE_CHECKING:
    from vtax.paging.result import Number, SimulationResult

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
    "Modelled, not measured. Overhead is over native, in % of its cycles; its parts are walks",
    "(with hits in the second TLB), exits, and switching (with refill).",
)


def title(result: SimulationResult) -> str:
    """What was simulated and how, with a remark that all figures are a model's."""
    how = "every reference followed" if result.whole else "phases sampled"
    return f"{result.workload} on {result.machine}: model, {how}"


def page(result: SimulationResult) -> Page:
    """What each mode costs, and that it is modelled."""
    cut = (f"The trace was cut, and is simulated up to there: {result.cut}.",) if result.cut else ()
    found = Section(table=table(HEADINGS, _rows(result)), notes=notes((*NOTE, *cut)))
    return Page("paging simulate", (found,), title=title(result))


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
    """The shares of walks, exits and switching in the overhead, in percent of native cycles."""
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
