"""What all figures share: plain Plotly dictionaries that name CSS variables for colours.

Nothing here imports Plotly. The page resolves `var(--name)` for its theme. Plotly reads a subset
of HTML in every text, so foreign names go through `label`.
"""

from __future__ import annotations

import html
from typing import Any

from vtax.core.page.format import one_line
from vtax.core.page.page import Figure as Figure

Plot = dict[str, Any]

FONT = {"color": "var(--text)", "family": "var(--font)", "size": 12}


def label(text: str) -> str:
    """Foreign text inside a figure, with what Plotly would read as a tag or entity escaped."""
    return html.escape(one_line(text), quote=False)


def base_layout(height: float) -> Plot:
    """The layout that every figure starts from."""
    return {
        "height": height,
        "font": FONT,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "dragmode": False,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "var(--soft)"},
        "hoverlabel": {
            "bgcolor": "var(--card)",
            "bordercolor": "var(--rule)",
            "font": FONT,
            "align": "left",
        },
    }


NOTES: Plot = {
    "layout": {
        "annotationdefaults": {
            "xref": "paper",
            "x": 0,
            "xanchor": "left",
            "yanchor": "middle",
            "align": "left",
            "showarrow": False,
            "borderpad": 0,
        }
    }
}
"""The template of a layout whose notes are texts without an arrow at the left edge."""
