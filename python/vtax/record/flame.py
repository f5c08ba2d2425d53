"""Flame graphs: where the time of a recording's stacks goes, or the difference of two.

Callers are above what they called. In the difference a frame is as wide as the mean of both
recordings, so that all that either has is there, and its colour says in which it weighs more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtax.core.page import format as text
from vtax.core.page.page import FlameFrame, FlameGraph, Page, Section, drawn, table_section
from vtax.core.recorder.ways import Scale
from vtax.record.stacks import Frame, Pair, Stack, compared, innermost, scaled, tree

if TYPE_CHECKING:
    from vtax.record.stacks import Weights

NARROWEST = 5e-4
"""Frames with a smaller share of the width are left out: less than a pixel."""
MOST_FUNCTIONS = 15
KERNEL = "[kernel]"


@dataclass(frozen=True, slots=True)
class Graph:
    """The stacks of a graph, and what they are called."""

    labels: Sequence[str]
    """One recording, or two."""
    scale: Scale
    pairs: Mapping[Stack, Pair]

    @property
    def differs(self) -> bool:
        return len(self.labels) > 1

    @property
    def title(self) -> str:
        return f"Where the time goes: {' and '.join(self.labels)}"

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

    def frames(self) -> list[FlameFrame]:
        """The frames that are wide enough to be seen."""
        root = tree(self.pairs)
        return list(self._frames("all", root, 0, 0.0, root.total.mean))

    def _frames(
        self, name: str, frame: Frame, depth: int, left: float, whole: float
    ) -> Iterator[FlameFrame]:
        pair = frame.total
        width = pair.mean / whole
        if width < NARROWEST:
            return
        kind, strength = _kind(name), 1.0
        if self.differs:
            kind, strength = "second" if pair.lean > 0 else "first", abs(pair.lean)
        yield FlameFrame(name, self.said(pair), depth, left, width, kind, strength)
        for inner, called in frame.called.items():
            yield from self._frames(inner, called, depth + 1, left, whole)
            left += called.total.mean / whole

    def functions(self) -> Sequence[tuple[str, Pair]]:
        """The innermost frames that differ most, or weigh most."""
        found = innermost(self.pairs)
        if not self.differs:
            found = sorted(found, key=lambda one: -one[1].first)
        return found[:MOST_FUNCTIONS]


def _kind(name: str) -> str:
    """`kernel`, `other` (no file, a guest, a mode, a program) or `program`."""
    if name.startswith(KERNEL):
        return "kernel"
    return "program" if "`" in name or "+0x" in name else "other"


def graph(runs: Sequence[tuple[str, Weights]], scale: Scale) -> Graph:
    """The graph of one recording or the difference of two, which have labels."""
    both = [scaled(weights, scale) for _, weights in runs]
    return Graph([label for label, _ in runs], scale, compared(both[0], both[-1]))


def graphs(runs: Iterable[tuple[str, Weights]]) -> Sequence[Graph]:
    """The difference of two labels, else the graph of each; the weights of recordings with one
    label are added up."""
    found: dict[str, dict[Stack, float]] = {}
    for label, weights in runs:
        own = found.setdefault(label, {})
        for stack, weight in weights.items():
            own[stack] = own.get(stack, 0.0) + weight
    labelled = list(found.items())
    apart = [labelled] if len(labelled) == 2 else [[one] for one in labelled]
    return [graph(each, Scale.SHARE) for each in apart]


def figure(made: Graph) -> FlameGraph:
    """The graph as a figure of a page."""
    if made.differs:
        width = "the mean of both: the stronger its colour, the more the one has than the other"
        key = list(
            zip(("first", "second"), (f"{each} has more" for each in made.labels), strict=True)
        )
    else:
        width = "its time"
        key = [("program", "programs"), ("kernel", "kernel")]
    meaning = f"A frame is as wide as {width}. Frames below {100 * NARROWEST:g} % are left out."
    largest, pair = made.functions()[0]
    spoken = f"{made.title}. First of those that {_order(made)}: {largest}, {made.said(pair)}"
    return FlameGraph(made.title, meaning, spoken, made.frames(), key)


def functions(made: Graph, number: int = 1) -> Section:
    """What the innermost frames have by themselves, as a table; `number`: of the page's graphs."""
    rows = [
        (name, *map(made.value, (pair.first, pair.second)[: len(made.labels)]))
        for name, pair in made.functions()
    ]
    caption = f"Time without what they called; first those that {_order(made)}."
    heading = f"Functions of {' and '.join(made.labels)}"
    return table_section(
        f"functions-{number}", heading, caption, ("Innermost frame", *made.labels), rows
    )


def _order(made: Graph) -> str:
    return "differ most" if made.differs else "weigh most"


def page(made: Graph) -> Page:
    """The page of one graph."""
    sections = (*drawn([figure(made)]), functions(made))
    settings = (("Recordings", ", ".join(made.labels)), ("Scale", made.scale.value))
    return Page("export", sections, title=made.title, settings=settings)
