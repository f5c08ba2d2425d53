"""Pieces that figures of studies share: bars, lines and their layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vtax.core.page.format import signed, significant
from vtax.core.page.plotting import Plot, base_layout, label

BAR_PX = 16
GAP_PX = 14


@dataclass(frozen=True, slots=True)
class Look:
    """The look of a series in every figure."""

    name: str
    colour: str
    pattern: str = ""
    dash: str = "solid"


@dataclass(frozen=True, slots=True)
class Series:
    """Bars of one colour, one per category; `None` draws nothing."""

    look: Look
    values: Sequence[float | None]
    texts: Sequence[str] | None = None


def bars(
    categories: Sequence[str],
    series: Sequence[Series],
    axis: str,
    *,
    log: bool = False,
    beside: int = 0,
) -> Plot:
    """Grouped horizontal bars, in the order given from top to bottom, with values beside them.

    `beside` is how many bars a group has in the panel to the left, for rows at the same height.
    """
    rows = max(len(series), beside)
    block = rows * BAR_PX + GAP_PX
    top = max(legend_px(len(series)), legend_px(beside))
    layout = {
        **base_layout(block * len(categories) + 54 + top),
        "barmode": "group",
        "bargap": 1 - len(series) * BAR_PX / block,
        "bargroupgap": 0.06,
        "margin": {"l": 6, "r": 12, "t": 6 + top, "b": 48},
        "xaxis": {**_x_axis(axis), **_bar_range(series, log)},
        "yaxis": {
            "autorange": "reversed",
            "automargin": True,
            "fixedrange": True,
            "ticksuffix": " ",
            "categoryorder": "array",
            "categoryarray": list(categories),
        },
        **legend(len(series) > 1),
    }
    return {"data": [_bar(categories, one) for one in series], "layout": layout}


def legend_px(entries: int) -> int:
    """Room above a figure for its legend: two entries share a line, more have a line each."""
    if entries < 2:
        return 0
    return 22 if entries == 2 else 20 * entries


def legend(shown: bool) -> Plot:
    """A legend above the figure, left-aligned with it."""
    return {
        "showlegend": shown,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "traceorder": "normal",
            "itemclick": False,
            "itemdoubleclick": False,
        },
    }


def _x_axis(title: str) -> Plot:
    return {
        "title": {"text": title, "standoff": 8},
        "gridcolor": "var(--grid)",
        "zerolinecolor": "var(--rule)",
        "fixedrange": True,
        "nticks": 6,
        "ticklabelstandoff": 5,
    }


def _bar_range(series: Sequence[Series], log: bool) -> Plot:
    """A range with room at the right for the values as text."""
    import math

    values = [value for one in series for value in one.values if value is not None]
    if log:
        positive = [value for value in values if value > 0] or [1.0]
        low, high = math.log10(min(positive)), math.log10(max(positive))
        low = math.floor(low - 0.3)
        return {
            "type": "log",
            "range": [low, high + 0.28 * (high - low)],
            "dtick": 1 if high - low < 5 else 2,
            "exponentformat": "power",
        }
    high, low = max([*values, 0.0]), min([*values, 0.0])
    span = (high - low) or 1.0
    return {"range": [low - (0.16 * span if low < 0 else 0), high + 0.2 * span]}


def _bar(categories: Sequence[str], one: Series) -> Plot:
    texts = one.texts or ["" if v is None else signed(v) for v in one.values]
    return {
        "type": "bar",
        "orientation": "h",
        "name": label(one.look.name),
        "y": [label(name) for name in categories],
        "x": list(one.values),
        "text": list(texts),
        "textposition": "outside",
        "textfont": {"size": 10.5, "color": "var(--text)"},
        "cliponaxis": False,
        "constraintext": "none",
        "marker": {
            "color": one.look.colour,
            "line": {"width": 1, "color": one.look.colour},
            "pattern": {
                "shape": one.look.pattern,
                "fillmode": "replace",
                "size": 5,
                "solidity": 0.35,
            },
        },
        "hovertemplate": "%{y}: %{text}<extra>" + label(one.look.name) + "</extra>",
    }


def value_text(value: float | None) -> str:
    """Three digits of a value; empty where it is not known."""
    return "" if value is None else significant(value, 3)


def line(
    x: Sequence[float],
    y: Sequence[float | None],
    name: str,
    colour: str,
    *,
    dash: str = "solid",
    shape: str = "linear",
    points: bool = False,
    width: float = 1.8,
) -> Plot:
    """A line; `None` breaks it. With `points`, a value between two gaps is visible too."""
    return {
        "type": "scatter",
        "mode": "lines+markers" if points else "lines",
        "marker": {"size": 4, "color": colour},
        "name": label(name),
        "x": list(x),
        "y": list(y),
        "connectgaps": False,
        "line": {"color": colour, "width": width, "dash": dash, "shape": shape},
        "hovertemplate": "%{x:.4~g}: %{y:.3~g}<extra>" + label(name) + "</extra>",
    }


def curve(look: Look, x: Sequence[float], y: Sequence[float | None]) -> Plot:
    """The line of a series, with its points."""
    return line(x, y, look.name, look.colour, dash=look.dash, points=True)


def lines(
    traces: Sequence[Plot],
    x_title: str,
    y_title: str,
    height: float,
    *,
    legend_rows: int = 0,
    log: bool = False,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    shapes: Sequence[Plot] = (),
) -> Plot:
    """Lines over one axis."""
    top = 8 + 22 * legend_rows
    y_axis = {**_x_axis(y_title), "automargin": True, "nticks": 5}
    if log:
        y_axis |= {"type": "log", "exponentformat": "power", "dtick": 1}
    else:
        y_axis |= {"rangemode": "tozero", "exponentformat": "SI"}
    if y_range:
        y_axis |= {"range": list(y_range)}
    x_axis = _x_axis(x_title) | ({"range": list(x_range)} if x_range else {})
    return {
        "data": list(traces),
        "layout": {
            **base_layout(height + top),
            "margin": {"l": 6, "r": 14, "t": top, "b": 44},
            "xaxis": x_axis,
            "yaxis": y_axis,
            "shapes": list(shapes),
            **legend(legend_rows > 0),
        },
    }


def level(y: float, colour: str = "var(--bad)") -> Plot:
    """A horizontal line over the whole width."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "yref": "y",
        "y0": y,
        "y1": y,
        "line": {"color": colour, "width": 1.4, "dash": "dot"},
    }


def band(x0: float, x1: float) -> Plot:
    """A shaded band over the whole height."""
    return {
        "type": "rect",
        "layer": "below",
        "x0": x0,
        "x1": x1,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"width": 0},
        "fillcolor": "var(--band)",
    }


def marks(x: Sequence[float], y: Sequence[float], texts: Iterable[str], colour: str) -> Plot:
    """Points with a text above each."""
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": list(x),
        "y": list(y),
        "text": [label(text) for text in texts],
        "textposition": "top center",
        "textfont": {"size": 10, "color": "var(--text)"},
        "marker": {"size": 4, "color": colour},
        "hoverinfo": "skip",
    }
