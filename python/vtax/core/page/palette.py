"""How an environment looks in every figure and table: colour, pattern and marker together.

Colours are names of CSS variables (Okabe-Ito, which colour-blind readers can tell apart), so that
one figure serves the light page, the dark page and paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vtax.core.formats.model import EnvironmentRecord

COLOURS = 6
_PATTERNS = ("", "/", ".", "\\", "x", "-")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "hexagon")


@dataclass(frozen=True, slots=True)
class Style:
    """The look of one environment."""

    index: int
    """The environment's index in the run; page elements refer to it, never to the label."""
    label: str
    role: str
    colour: str
    """``var(--env-1)``, which the page resolves."""
    pattern: str
    """One of Plotly's bar patterns; the empty string is plain."""
    symbol: str


def styles(environments: Sequence[EnvironmentRecord]) -> list[Style]:
    """A style for each environment; measured environments get the colours in turn."""
    found, turn = [], 0
    for index, env in enumerate(environments):
        if env.role == "measured":
            look = (f"var(--env-{turn % COLOURS + 1})", _PATTERNS[turn // COLOURS % 6])
            symbol = _SYMBOLS[turn % len(_SYMBOLS)]
            turn += 1
        else:
            look = (f"var(--env-{env.role})", "/" if env.role == "control" else "")
            symbol = "x-thin" if env.role == "control" else "circle-open"
        found.append(Style(index, env.label, env.role, *look, symbol))
    return found
