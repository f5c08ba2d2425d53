"""A flame graph of a recording's stacks, or of the difference of two, as one self-contained page.

Callers are above what they called. In the difference a frame is as wide as the mean of both
recordings, so that all that either has is there, and its colour says in which it weighs more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vtax.core.formats.files import write_atomic
from vtax.core.page import format as text
from vtax.core.page.standalone import render_page, write_page
from vtax.core.recorder.ways import Scale
from vtax.record.export.stacks import (
    Frame,
    Pair,
    Stack,
    compared,
    folded,
    innermost,
    scaled,
    tree,
)

if TYPE_CHECKING:
    from vtax.record.export.stacks import Weights

NARROWEST = 5e-4
"""Frames with a smaller share of the width are left out: less than a pixel."""
MOST_FUNCTIONS = 15
REMEDY = "choose another file"
KERNEL = "[kernel]"


@dataclass(frozen=True, slots=True)
class Box:
    """A frame as it is drawn, in parts of the whole width."""

    name: str
    depth: int
    left: float
    width: float
    pair: Pair

    @property
    def kind(self) -> str:
        """`kernel`, `other` (no file, a guest, a mode, a program) or `program`."""
        if self.name.startswith(KERNEL):
            return "kernel"
        return "program" if "`" in self.name or "+0x" in self.name else "other"


@dataclass(frozen=True, slots=True)
class Graph:
    """What the page shows."""

    labels: Sequence[str]
    """One recording, or two."""
    scale: Scale
    pairs: Mapping[Stack, Pair]

    @property
    def differs(self) -> bool:
        return len(self.labels) > 1

    def value(self, weight: float) -> str:
        """A weight for a reader."""
        if self.scale is Scale.SHARE:
            return f"{text.percent(100 * weight)} %" if weight else "0 %"
        return text.seconds_text(weight)

    def said(self, pair: Pair) -> str:
        """What a frame weighs, for a reader."""
        if not self.differs:
            return self.value(pair.first)
        each = zip(self.labels, (pair.first, pair.second), strict=True)
        return ", ".join(f"{label}: {self.value(weight)}" for label, weight in each)

    def boxes(self) -> list[Box]:
        """The frames that are wide enough to be seen."""
        root = tree(self.pairs)
        return list(_boxes("all", root, 0, 0.0, root.total.mean))

    def functions(self) -> Sequence[tuple[str, Pair]]:
        """The innermost frames that differ most, or weigh most."""
        found = innermost(self.pairs)
        if not self.differs:
            found = sorted(found, key=lambda one: -one[1].first)
        return found[:MOST_FUNCTIONS]


def _boxes(name: str, frame: Frame, depth: int, left: float, whole: float) -> Iterator[Box]:
    width = frame.total.mean / whole
    if width < NARROWEST:
        return
    yield Box(name, depth, left, width, frame.total)
    for inner, called in frame.called.items():
        yield from _boxes(inner, called, depth + 1, left, whole)
        left += called.total.mean / whole


def graph(runs: Sequence[tuple[str, Weights]], scale: Scale) -> Graph:
    """The graph of one recording or the difference of two, which have labels."""
    both = [scaled(weights, scale) for _, weights in runs]
    return Graph([label for label, _ in runs], scale, compared(both[0], both[-1]))


def write(made: Graph, path: Path) -> list[Path]:
    """Write the page and, of a difference, the stacks beside it (`.folded`); return the files."""
    write_page(render(made), path, REMEDY)
    if not made.differs:
        return [path]
    beside = path.with_suffix(".folded")
    write_atomic(beside, folded(made.pairs).encode(), REMEDY)
    return [path, beside]


def render(made: Graph) -> str:
    """The page as text; every name is escaped."""
    boxes = made.boxes()
    context = {"graph": made, "boxes": boxes, "rows": 1 + max(box.depth for box in boxes)}
    return render_page("vtax.record.export", "flame", {}, context)
