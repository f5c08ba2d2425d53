"""Heat maps: where each conclusion holds as exits and TLBs change."""

from __future__ import annotations

from collections.abc import Sequence

from vtax.present.format import MINUS
from vtax.present.html.plotting import Figure, Plot, base_layout, label
from vtax.studies.dav2m.conclusions import (
    CONCLUSIONS,
    Conclusion,
    Point,
    factors,
    points,
    times,
)
from vtax.studies.dav2m.data import Data
from vtax.studies.dav2m.setup import MACHINE, MACHINE_TITLES
from vtax.studies.model import StudyFigure

ROW_PX = 34
LIMIT = 30.0
"""Percent beyond which the colour no longer changes."""
_MODES = [[0, "var(--heat-nested)"], [0.5, "var(--heat-even)"], [1, "var(--heat-shadow)"]]
_DISTANCE = [[0, "var(--heat-even)"], [1, "var(--heat-bad)"]]


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


def _map(data: Data, conclusion: Conclusion) -> Figure:
    found = points(data, conclusion)
    exits, tlbs = factors(data)
    z = [[found[e, t].value for t in tlbs] for e in exits]
    marks = [[_text(found[e, t]) for t in tlbs] for e in exits]
    held = sum(point.holds for point in found.values())
    return Figure(
        conclusion.title,
        f"holds at {held} of {len(found)} points",
        f"Heat map of the model. {conclusion.title}: holds at {held} of {len(found)} points. "
        f"{conclusion.where_not(found)}",
        _heat(z, marks, exits, tlbs, distance=conclusion.distance),
    )


def _text(point: Point) -> str:
    digits = f"{point.value:.0f}" if abs(point.value) >= 10 else f"{point.value:.1f}"
    shown = digits.removeprefix("-") if float(digits) == 0 else digits.replace("-", MINUS)
    return f"{shown} {'✓' if point.holds else '✗'}"


def _heat(
    z: Sequence[Sequence[float]],
    texts: Sequence[Sequence[str]],
    exits: Sequence[float],
    tlbs: Sequence[float],
    *,
    distance: bool,
) -> Plot:
    axis = {"type": "category", "fixedrange": True, "showgrid": False, "automargin": True}
    return {
        "data": [
            {
                "type": "heatmap",
                "x": [times(factor) for factor in tlbs],
                "y": [times(factor) for factor in exits],
                "z": [list(row) for row in z],
                "text": [[label(text) for text in row] for row in texts],
                "texttemplate": "%{text}",
                "textfont": {"size": 10.5, "color": "var(--text)"},
                "xgap": 2,
                "ygap": 2,
                "zmin": 0 if distance else -LIMIT,
                "zmax": 5 if distance else LIMIT,
                "colorscale": _DISTANCE if distance else _MODES,
                "showscale": False,
                "hovertemplate": "exit cost %{y}, TLB %{x}: %{text}<extra></extra>",
            }
        ],
        "layout": {
            **base_layout(ROW_PX * len(exits) + 58),
            "margin": {"l": 6, "r": 6, "t": 4, "b": 46},
            "xaxis": {**axis, "title": {"text": "TLB entries", "standoff": 6}},
            "yaxis": {**axis, "title": {"text": "exit cost", "standoff": 6}},
        },
    }
