"""Figure 1: % of the baseline per metric and environment, with deviation and interval."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from vtax.compare import verdicts
from vtax.compare.families import Family, grouped
from vtax.core.page.format import one_line, percent, percent_interval, significant
from vtax.core.page.palette import Style, styles
from vtax.core.page.plotting import NOTES, Figure, Plot, base_layout, label
from vtax.core.statistics.results import Comparison, Result

NAME_PX = 22
BAR_PX = 15
GAP_PX = 12
VALUES_PX = 92
"""Room at the right for the values as text."""
WIDEST_SHARED = 115.0
"""Families share this right end of the axis (in %), unless a value lies beyond it."""


@dataclass(frozen=True, slots=True)
class Row:
    """A bar of figure 1: a result and its height on the page."""

    result: Result
    y: float


def ratio_figures(comparison: Comparison) -> list[Figure]:
    """Figure 1, with one figure per family."""
    shown = _compared(comparison)
    results = {(result.environment, result.metric): result for result in comparison.results}
    metrics = dict.fromkeys(r.metric for r in comparison.results)
    log_low = _log_low(comparison.results)
    figures = []
    for family, members in grouped(metrics):
        columns = {
            style: _rows(style, bar, members, results, len(shown))
            for bar, style in enumerate(shown)
        }
        if any(columns.values()):
            plot = _ratio_plot(columns, members, comparison.record.margin_percent, log_low)
            figures.append(Figure(family.title, family.meaning, _spoken(family, columns), plot))
    return figures


def _compared(comparison: Comparison) -> list[Style]:
    """The environments with bars: the measured ones, then the control as the yardstick of noise."""
    found = styles(comparison.record.environments)
    return [style for role in ("measured", "control") for style in found if style.role == role]


def _rows(
    style: Style,
    bar: int,
    metrics: Sequence[str],
    results: Mapping[tuple[str, str], Result],
    bars: int,
) -> list[Row]:
    block = NAME_PX + bars * BAR_PX + GAP_PX
    return [
        Row(found, index * block + NAME_PX + (bar + 0.5) * BAR_PX)
        for index, metric in enumerate(metrics)
        if (found := results.get((style.label, metric))) is not None
    ]


def _ratio_plot(
    columns: Mapping[Style, Sequence[Row]], metrics: Sequence[str], margin: float, log_low: float
) -> Plot:
    block = NAME_PX + len(columns) * BAR_PX + GAP_PX
    height = block * len(metrics)
    high = _right_end(chain.from_iterable(columns.values()))
    return {
        "data": [
            trace for style, rows in columns.items() for trace in _ratio_traces(style, rows, high)
        ],
        "layout": {
            **base_layout(height + 46),
            "template": NOTES,
            "barmode": "overlay",
            "bargap": 0,
            "margin": {"l": 6, "r": VALUES_PX, "t": 4, "b": 42},
            "xaxis": _ratio_axis(high),
            "yaxis": {"range": [height, 0], "visible": False, "fixedrange": True},
            "shapes": _baseline_shapes(margin),
            "annotations": [
                {
                    "text": f"<b>{label(metric)}</b>",
                    "yref": "y",
                    "y": index * block + NAME_PX / 2 + 1,
                    "bgcolor": "var(--card)",
                }
                for index, metric in enumerate(metrics)
            ],
        },
        "scales": {
            "linear": {"type": "linear", "range": [0, high]},
            "log": {
                "type": "log",
                "range": [math.log10(log_low), math.log10(high)],
                "tickvals": _log_ticks(log_low, high),
            },
        },
    }


def _ratio_axis(high: float) -> Plot:
    return {
        "title": {"text": "% of the baseline", "standoff": 6},
        "range": [0, high],
        "gridcolor": "var(--grid)",
        "zerolinecolor": "var(--rule)",
        "fixedrange": True,
        "nticks": 7,
    }


def _ratio_traces(style: Style, rows: Sequence[Row], high: float) -> list[Plot]:
    known = [row for row in rows if row.result.percent_of_baseline is not None]
    return [
        _bars(style, known),
        _intervals(style, known),
        {
            "type": "scatter",
            "mode": "text",
            "x": [high for _ in rows],
            "y": [row.y for row in rows],
            "text": [_value_words(row.result) for row in rows],
            "textposition": "middle right",
            "textfont": {"size": 11.5, "color": "var(--text)"},
            "cliponaxis": False,
            "hoverinfo": "skip",
            "meta": {"env": style.index},
        },
    ]


def _bars(style: Style, rows: Sequence[Row]) -> Plot:
    return {
        "type": "bar",
        "orientation": "h",
        "name": label(style.label),
        "x": [row.result.percent_of_baseline for row in rows],
        "y": [row.y for row in rows],
        "width": BAR_PX - 3,
        "marker": {
            "color": style.colour,
            "opacity": 0.85,
            "pattern": {
                "shape": style.pattern,
                "fillmode": "overlay",
                "fgcolor": "var(--card)",
                "solidity": 0.35,
                "size": 5,
            },
        },
        "error_x": {
            "type": "data",
            "array": [deviation_percent(row.result) or 0 for row in rows],
            "color": "var(--text)",
            "thickness": 1.2,
            "width": 4,
        },
        "customdata": [_hover(style, row.result) for row in rows],
        "hovertemplate": "%{customdata}<extra></extra>",
        "meta": {"env": style.index},
    }


def _intervals(style: Style, rows: Sequence[Row]) -> Plot:
    ends = [
        (row.result.ci_low, row.result.ci_high, row.y)
        for row in rows
        if row.result.ci_low is not None and row.result.ci_high is not None
    ]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [x for low, high, _ in ends for x in (low, high, None)],
        "y": [y for _, _, middle in ends for y in (middle, middle, None)],
        "line": {"color": "var(--interval)", "width": 5},
        "hoverinfo": "skip",
        "meta": {"env": style.index},
    }


def deviation_percent(result: Result) -> float | None:
    """The standard deviation on the scale of % of the baseline: the same share of the value."""
    if result.percent_of_baseline is None or result.stdev is None or not result.median:
        return None
    return abs(result.stdev / result.median) * result.percent_of_baseline


def _value_words(result: Result) -> str:
    if result.percent_of_baseline is None:
        return " not measured" if result.median is None else " not compared"
    return f" {percent(result.percent_of_baseline)} % {verdicts.SYMBOLS[result.verdict]}"


def _hover(style: Style, result: Result) -> str:
    deviation = deviation_percent(result)
    spread = "unknown" if deviation is None else f"{percent(deviation)} points"
    return "<br>".join(
        (
            f"<b>{label(result.metric)}</b> in {label(style.label)}",
            f"{percent(result.percent_of_baseline)} % of the baseline: {result.verdict.value}",
            f"95 % interval {percent_interval(result.ci_low, result.ci_high)} %",
            f"standard deviation {spread}",
            f"median {significant(result.median)} {label(result.unit)}, n = {result.n}",
        )
    )


def _spoken(family: Family, columns: Mapping[Style, Sequence[Row]]) -> str:
    parts = [
        f"{one_line(row.result.metric)} in {one_line(style.label)}: "
        f"{percent(row.result.percent_of_baseline)} %, {row.result.verdict.value}"
        for style, rows in columns.items()
        for row in rows
        if row.result.percent_of_baseline is not None
    ]
    return f"{family.title}, % of the baseline. {'; '.join(parts)}."


def _right_end(rows: Iterable[Row]) -> float:
    """Where the axis ends: the families are comparable unless one needs more room."""
    reach = [WIDEST_SHARED]
    for row in rows:
        value = row.result.percent_of_baseline
        if value is not None and math.isfinite(value):
            reach.append(1.04 * (value + (deviation_percent(row.result) or 0)))
            reach.append(1.04 * (row.result.ci_high or 0))
    return max(filter(math.isfinite, reach))


def _log_low(results: Iterable[Result]) -> float:
    """The left end of the logarithmic axis: the power of ten below every value."""
    values = [r.percent_of_baseline for r in results if r.percent_of_baseline]
    least = min((value for value in values if value > 0), default=10.0)
    return min(10.0, 10.0 ** max(sys.float_info.min_10_exp, math.floor(math.log10(least))))


def _log_ticks(low: float, high: float) -> list[float]:
    """Ticks 1, 3, 10, 30 ..., which stay readable on a narrow axis."""
    first = round(math.log10(low))
    last = min(sys.float_info.max_10_exp, math.ceil(math.log10(high)))
    ticks = [step * 10.0**power for power in range(first, last) for step in (1, 3)]
    return [tick for tick in (*ticks, 10.0**last) if low <= tick <= high]


def _baseline_shapes(margin: float) -> list[Plot]:
    common = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    band = {**common, "type": "rect", "x0": 100 - margin, "x1": 100 + margin}
    line = {**common, "type": "line", "x0": 100, "x1": 100, "layer": "above"}
    return [
        {**band, "fillcolor": "var(--band)", "line": {"width": 0}},
        {**line, "line": {"color": "var(--text)", "width": 1.2, "dash": "dot"}},
    ]
