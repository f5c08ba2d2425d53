"""Lines and bars with a legend, one colour for each environment or part."""

from __future__ import annotations

from collections.abc import Sequence

from vtax.core.page.palette import COLOURS
from vtax.core.page.plotting import Plot, base_layout, label

LEAST_WIDTH = 560
"""In CSS pixels; a narrower figure scrolls."""
_HEIGHT = 320
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "hexagon")
_PATTERNS = ("", "/", ".", "\\", "x", "-")


def chart_layout(y: str, x: str) -> Plot:
    """The layout of a chart with a legend; `x` and `y` are the titles of its axes."""
    axis = {"gridcolor": "var(--grid)", "zeroline": False, "fixedrange": True}
    return {
        **base_layout(_HEIGHT),
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.12, "yanchor": "bottom"},
        "margin": {"l": 64, "r": 12, "t": 40, "b": 44},
        "xaxis": {**axis, "title": {"text": x, "standoff": 8}},
        "yaxis": {**axis, "title": {"text": y}, "rangemode": "tozero"},
    }


def line(index: int, name: str, x: Sequence[float], y: Sequence[float | None]) -> Plot:
    """A line with a marker at each point; None in `y` leaves a point out."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(name),
        "x": list(x),
        "y": list(y),
        "line": {"color": colour(index), "width": 1.5},
        "marker": {"color": colour(index), "symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 7},
        "hovertemplate": "%{y:.4g} at %{x}<extra>" + label(name) + "</extra>",
    }


def bars(index: int, name: str, x: Sequence[str], y: Sequence[float | None], unit: str) -> Plot:
    """One bar for each label of `x`; labels are escaped. None in `y` leaves a bar out."""
    return {
        "type": "bar",
        "name": label(name),
        "x": list(x),
        "y": list(y),
        "marker": {
            "color": colour(index),
            "pattern": {"shape": _PATTERNS[index % len(_PATTERNS)]},
        },
        "hovertemplate": "%{y:.4g} " + unit + "<extra>" + label(name) + "</extra>",
    }


def colour(index: int) -> str:
    """`var(--env-1)`, which the page resolves."""
    return f"var(--env-{index % COLOURS + 1})"
