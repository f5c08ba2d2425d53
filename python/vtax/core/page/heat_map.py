"""A correlation matrix as a heat map: colours where it is significant, grey numbers where not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vtax.core.page.format import MINUS, significant
from vtax.core.page.page import HeatCell, HeatMap

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

    def found(self, i: int, j: int) -> bool:
        """Whether the value is significant."""
        return self.q[i][j] <= self.alpha

    def at(self, i: int, j: int) -> HeatCell | None:
        """The cell of two events; None: below the diagonal, or not known."""
        value, p = self.values[i][j], self.q[i][j]
        if j <= i or not math.isfinite(value):
            return None
        judged = f"corrected p {significant(p, 2)}" if math.isfinite(p) else "not judged: too few"
        return HeatCell(
            f"{round(value, 2) + 0.0:.2f}".replace("-", MINUS),
            f"{self.events[i]} with {self.events[j]}: {value:.3f}, {judged}",
            value if self.found(i, j) else None,
        )


def heat_map(title: str, meaning: str, cells: Cells) -> HeatMap:
    """A heat map: cells that are not significant have no colour, and cells that are not known no
    number."""
    events = cells.events
    columns = range(1, len(events))
    return HeatMap(
        title,
        meaning,
        _spoken(title, cells),
        events[1:],
        [(events[i], [cells.at(i, j) for j in columns]) for i in range(len(events) - 1)],
        "correlation",
        ends=(f"r = {MINUS}1", "1"),
        numbers=len(events) <= MOST_NUMBERS,
    )


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
