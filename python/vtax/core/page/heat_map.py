"""A correlation matrix as a figure: colours where it is significant, grey numbers where not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vtax.core.page.format import significant
from vtax.core.page.plotting import FONT, Figure, Plot, base_layout, label

CELL_PX = 34
LABEL_PX = 170
MOST_NUMBERS = 30
"""A matrix of more events has no numbers in its cells: they would not fit."""

Grid = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Cells:
    """A symmetric matrix, drawn above its diagonal; NaN: not known."""

    events: Sequence[str]
    values: Grid
    q: Grid
    """Corrected p values."""
    alpha: float
    limit: float
    """Colours go from minus this value to this value."""

    def found(self, i: int, j: int) -> bool:
        """Whether the value is significant."""
        return self.q[i][j] <= self.alpha


def heat_map(title: str, meaning: str, cells: Cells) -> Figure:
    """A heat map: cells that are not significant have no colour, and cells that are not known no
    number."""
    events, limit = cells.events, cells.limit
    rows, columns = list(events[:-1]), list(events[1:])
    colours = [[0, "var(--corr-negative)"], [0.5, "var(--corr-none)"], [1, "var(--corr-positive)"]]
    masked = [[0, "var(--corr-masked)"], [1, "var(--corr-masked)"]]
    bar = {"title": {"text": "r", "side": "right"}, "thickness": 12, "outlinewidth": 0}
    found = _cells(cells, shown=True)
    rest = _cells(cells, shown=False)
    common: Plot = {
        "type": "heatmap",
        "x": [label(n) for n in columns],
        "y": [label(n) for n in rows],
    }
    common |= {"xgap": 1, "ygap": 1, "hovertemplate": "%{hovertext}<extra></extra>"}
    ink = {"color": "var(--corr-ink)", "size": 10}
    soft = {"color": "var(--soft)", "size": 10}
    data: list[Plot] = [
        {**common, **found, "colorscale": colours, "colorbar": bar, "textfont": ink},
        {**common, **rest, "colorscale": masked, "showscale": False, "textfont": soft},
    ]
    for trace in data:
        trace |= {"zmin": -limit, "zmax": limit, "zmid": 0}
    if len(events) <= MOST_NUMBERS:
        for trace in data:
            trace["texttemplate"] = "%{text}"
    plot = {"data": data, "layout": _layout(len(rows))}
    plot["meta"] = {"least_width": LABEL_PX + CELL_PX * len(rows) + 80}
    return Figure(title, meaning, _spoken(title, cells), plot)


def _layout(rows: int) -> Plot:
    axis: dict[str, Any] = {"fixedrange": True, "showgrid": False, "automargin": True}
    axis |= {"tickfont": {**FONT, "size": 11}, "ticks": "", "dtick": 1}
    return {
        **base_layout(CELL_PX * rows + LABEL_PX),
        "margin": {"l": 6, "r": 6, "t": 6, "b": 6},
        "xaxis": {**axis, "side": "top", "tickangle": -60},
        "yaxis": {**axis, "autorange": "reversed", "ticksuffix": " "},
    }


def _cells(cells: Cells, *, shown: bool) -> Plot:
    """Values, numbers and hover texts of the cells that are significant (or are not)."""
    events = cells.events
    heights, texts, hovers = [], [], []
    for i in range(len(events) - 1):
        height: list[float | None] = []
        text, hover = [], []
        for j in range(1, len(events)):
            value, p = cells.values[i][j], cells.q[i][j]
            mine = j > i and math.isfinite(value) and cells.found(i, j) is shown
            height.append(value if mine else None)
            text.append(f"{round(value, 2) + 0.0:.2f}" if mine else "")
            hover.append(_hover(events[i], events[j], value, p) if mine else "")
        heights.append(height)
        texts.append(text)
        hovers.append(hover)
    return {"z": heights, "text": texts, "hovertext": hovers}


def _hover(first: str, second: str, value: float, p: float) -> str:
    judged = f"corrected p {significant(p, 2)}" if math.isfinite(p) else "not judged: too few"
    return f"{label(first)}<br>{label(second)}<br>{value:.3f}, {judged}"


def _spoken(title: str, cells: Cells) -> str:
    events, values = cells.events, cells.values
    pairs = [
        (abs(values[i][j]), events[i], events[j], values[i][j])
        for i in range(len(events))
        for j in range(i + 1, len(events))
        if math.isfinite(values[i][j]) and cells.found(i, j)
    ]
    if not pairs:
        return f"{title}: heat map of {len(events)} events; no pair is significant"
    _, first, second, value = max(pairs)
    return (
        f"{title}: heat map of {len(events)} events; {len(pairs)} pairs are significant, "
        f"the strongest {first} with {second} at {value:.2f}"
    )
