"""The page: what a verb found, before anything decides how it is shown.

A verb returns one `Page`. `render_terminal`, `render_html` and `render_markdown` show any page, and
none of them knows a verb. A page has a title, a sentence that says what was done, and sections in
the order in which a reader wants them: the answer, its figures, what to know before believing it,
the details. A section has a heading, a sentence, a table, notes and a figure; each may be missing,
and a section without a heading continues what stands above it.

Everything in a page is text when it comes here, because the verb knows how many digits are worth
reading. A table aligns columns of numbers at the right; a wide one goes on below where columns do
not fit. A cell that is good or bad says so by its tone, and a renderer chooses the colour; the word
must say it without. A note is one line; a warning is what a reader must know before believing the
result. A figure is the data of a plot, and a sentence for readers who cannot see it, or a heat map,
which is a table of coloured cells, or a flame graph, which is frames within frames; a renderer that
cannot draw leaves it out. A terminal shows what is `BRIEF` and a report what is `FULL`: a long
table may have a short form beside it. All text may come from guests: renderers escape it. Nothing
here knows rich, HTML or a machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

STRONG = 85
"""Percent of an outer colour above which some colours need the other ink."""
LONG_NAME = 8


class Depth(StrEnum):
    """How much room there is for a part of the page."""

    BOTH = "both"
    """It is shown everywhere."""
    BRIEF = "brief"
    """It is shown where there is little room, as on a terminal."""
    FULL = "full"
    """It is shown where there is room, as in a report."""

    def fits(self, asked: Depth) -> bool:
        """Whether a part of this depth is shown by a renderer of the depth `asked`."""
        return self in (Depth.BOTH, asked)


class Tone(StrEnum):
    """What a cell's text means to its reader."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    DOUBTFUL = "doubtful"
    QUIET = "quiet"


class Severity(StrEnum):
    """How much a note matters."""

    INFO = "info"
    """It explains the result."""
    WARNING = "warning"
    """A reader must know it before believing the result."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that is more than its text."""

    text: str
    tone: Tone = Tone.PLAIN
    parts: tuple[str, ...] = ()
    """The text in parts, in a wide table: each stands below that of the row above."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    heading: str
    depth: Depth = Depth.BOTH
    below: str = ""
    """The second line of the heading, in a wide table."""
    spare: bool = False
    """Whether a wide table leaves it out where there is no room for it."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text below headings; every row has a cell for each column."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    wide: bool = False
    """Whether columns that do not fit stand in a further table below, with the first column."""

    @property
    def headings(self) -> tuple[str, ...]:
        return tuple(", ".join(filter(None, (c.heading, c.below))) for c in self.columns)

    @property
    def texts(self) -> list[tuple[str, ...]]:
        """The rows without their tones."""
        return [tuple(cell.text for cell in row) for row in self.rows]

    def at(self, depth: Depth) -> Table:
        """The table with those columns that are shown at this depth."""
        kept = [index for index, each in enumerate(self.columns) if each.depth.fits(depth)]
        rows = tuple(tuple(row[index] for index in kept) for row in self.rows)
        return replace(self, columns=tuple(self.columns[index] for index in kept), rows=rows)

    def is_numeric(self, index: int) -> bool:
        """Whether the column holds numbers, which are aligned at the right."""
        return bool(self.rows) and all(is_number(row[index].text) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Note:
    """A line of text."""

    text: str
    severity: Severity = Severity.INFO
    tone: Tone = Tone.PLAIN
    subject: str = ""
    """What the note is about, which stands before it."""
    sign: str = ""
    """A character that says of what kind it is, where it has a subject."""
    further: tuple[str, ...] = ()
    """More texts on the same line, as in a legend, where each explains a sign."""

    @property
    def line(self) -> str:
        """The note with its subject and all its texts."""
        texts = ", ".join((self.text, *self.further))
        return f"{self.subject}: {texts}" if self.subject else texts


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, with the words that stand beside it."""

    title: str
    meaning: str
    alternative: str
    """What the figure shows, for readers who cannot see it."""
    plot: dict[str, Any]
    """Data and layout in the form of Plotly; colours are names of CSS variables."""


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A cell of a heat map."""

    text: str
    detail: str
    """What a reader sees who points at the cell."""
    colour: float | None
    """From -1, the first colour of the map, over 0 to 1; beyond, the colour stays the same. None:
    the cell has no colour."""

    @property
    def percent(self) -> int:
        """The share of the outer colour."""
        return round(100 * min(1.0, abs(self.colour or 0.0)))

    @property
    def side(self) -> str:
        """The classes that choose the cell's colours."""
        side = "low" if (self.colour or 0.0) < 0 else "high"
        return f"{side} strong" if self.percent > STRONG else side


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A figure that is a table of coloured cells."""

    title: str
    meaning: str
    alternative: str
    """What the map shows, for readers who cannot see it."""
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[HeatCell | None]]]
    """The name and the cells of each row; None: an empty cell."""
    palette: str
    """The CSS class that has the colours of -1, 0 and 1, and of the texts on them."""
    ends: tuple[str, str] | None = None
    """What the outer colours mean, beside a scale of colours; None: there is no scale."""
    corner: str = ""
    """What rows and columns are."""
    numbers: bool = True
    """Whether the cells show their texts."""

    @property
    def turned(self) -> bool:
        """Whether the names of columns are too long to stand beside each other."""
        return max(map(len, self.columns), default=0) > LONG_NAME


@dataclass(frozen=True, slots=True)
class FlameFrame:
    """A frame of a flame graph, in parts of the whole width."""

    name: str
    detail: str
    """What a reader sees who points at the frame."""
    depth: int
    left: float
    width: float
    kind: str
    """The CSS class that has the frame's colour."""
    strength: float = 1.0
    """The share of that colour, where it can be weaker."""


@dataclass(frozen=True, slots=True)
class FlameGraph:
    """A figure of stacks: each frame lies below its caller, and is as wide as what it weighs."""

    title: str
    meaning: str
    alternative: str
    """What the graph shows, for readers who cannot see it."""
    frames: Sequence[FlameFrame]
    """The first is the whole; each caller stands before what it called."""
    key: Sequence[tuple[str, str]]
    """The CSS class of each kind of frames, and what the kind is."""

    @property
    def rows(self) -> int:
        return 1 + max(frame.depth for frame in self.frames)


Drawing = Figure | HeatMap | FlameGraph


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page."""

    heading: str = ""
    sentence: str = ""
    """What the table means, or why it is empty."""
    table: Table | None = None
    notes: tuple[Note, ...] = ()
    figure: Drawing | None = None
    name: str = ""
    """Names the section in a link."""
    depth: Depth = Depth.BOTH
    apart: bool = False
    """Whether a section without a heading stands apart from what is above it."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a verb found."""

    verb: str
    sections: tuple[Section, ...]
    sentence: str = ""
    """What was done. A terminal begins with it, or with the title where it is missing."""
    title: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    """The name and value of every choice that the result depends on."""
    run: str = ""
    """The folder of the run, which stands beside the title."""

    def sections_at(self, depth: Depth) -> list[Section]:
        """The sections that are shown at this depth, their tables as they are there."""
        return [
            each if each.table is None else replace(each, table=each.table.at(depth))
            for each in self.sections
            if each.depth.fits(depth)
        ]

    @property
    def figures(self) -> tuple[Drawing, ...]:
        return tuple(each.figure for each in self.sections if each.figure is not None)


def table(headings: Iterable[str | Column], rows: Iterable[Sequence[str | Cell]]) -> Table:
    """A table; a heading that is only text is a column of every depth."""
    columns = (each if isinstance(each, Column) else Column(each) for each in headings)
    cells = (tuple(c if isinstance(c, Cell) else Cell(c) for c in row) for row in rows)
    return Table(tuple(columns), tuple(cells))


def parted(*parts: str, tone: Tone = Tone.PLAIN) -> Cell:
    """A cell of a wide table whose parts are aligned."""
    return Cell(" ".join(filter(None, parts)), tone, parts)


def table_section(
    name: str,
    heading: str,
    sentence: str,
    headings: Iterable[str | Column],
    rows: Iterable[Sequence[str | Cell]],
) -> Section:
    """A section that is a table, with the words above it."""
    return Section(heading, sentence, table(headings, rows), name=name)


def at(depth: Depth, *sections: Section) -> tuple[Section, ...]:
    """The sections, at this depth only."""
    return tuple(replace(each, depth=depth) for each in sections)


def filled(*sections: Section) -> tuple[Section, ...]:
    """The sections; one whose table has no rows is only for a report."""
    return tuple(
        each if each.table is not None and each.table.rows else replace(each, depth=Depth.FULL)
        for each in sections
    )


def drawn(figures: Iterable[Drawing | None]) -> tuple[Section, ...]:
    """A section for each figure; None is left out."""
    return tuple(
        Section(each.title, each.meaning, figure=each) for each in figures if each is not None
    )


def warnings(texts: Iterable[str]) -> tuple[Note, ...]:
    """Notes that a reader must know."""
    return tuple(Note(text, Severity.WARNING) for text in texts)


def notes(texts: Iterable[str]) -> tuple[Note, ...]:
    """Notes that explain the result."""
    return tuple(map(Note, texts))


def is_number(text: str) -> bool:
    """Whether a cell's text begins as a number does, or is missing."""
    return text in ("", "absent") or text[0] in "0123456789+-<.\N{MIDDLE DOT}\N{MINUS SIGN}"
