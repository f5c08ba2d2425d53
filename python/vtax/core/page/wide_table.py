"""A table as wide as the terminal: columns that do not fit stand in further tables below.

Each of these tables begins with the first column again, which names the rows and gives way: the
middle of a long name is left out, because beginnings and ends tell names apart. A heading wraps
behind its commas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from vtax.core.page import tables
from vtax.core.page.format import one_line
from vtax.core.page.page import Cell, Column, Table

_GAP = 2  # one of padding, one of the box
_NAME_LEAST = 20
_LABEL_LIMIT = 20


@dataclass(frozen=True, slots=True)
class _Column:
    """A column with its cells, one for each row, as they are printed."""

    heading: str
    below: str
    cells: tuple[Text, ...]
    spare: bool

    @property
    def width(self) -> int:
        """The width that the cells and the words of the heading need."""
        pieces = [*_pieces(self.heading), self.below]
        heading = min(_LABEL_LIMIT, max(map(cell_len, pieces)))
        return max([heading, *(cell_len(cell.plain) for cell in self.cells)])

    def headings(self) -> Text:
        """The heading in lines that fit, above what stands below it."""
        lines = [""]
        for piece in _pieces(self.heading):
            if lines[-1] and cell_len(lines[-1] + piece) > self.width:
                lines.append("")
            lines[-1] += piece
        return Text("\n".join(filter(None, [*lines, self.below])))


class WideTable:
    """A table that knows its width only when rich prints it."""

    def __init__(self, found: Table) -> None:
        self._first = found.columns[0]
        self._names = [row[0] for row in found.rows]
        self._columns = [
            _column(column, [row[index] for row in found.rows])
            for index, column in enumerate(found.columns)
        ][1:]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for index, table in enumerate(self._tables(options.max_width)):
            if index:
                yield Text()
            yield table

    def _tables(self, width: int) -> Iterator[RichTable]:
        """As many columns beside each other as fit, the rest in further tables; the last has a
        spare column where there is room for it."""
        names = max((cell_len(_name(cell)) for cell in self._names), default=0)
        pending = [column for column in self._columns if not column.spare]
        while pending:
            count = _fitting(pending, width - min(names, _NAME_LEAST))
            columns, pending = pending[:count], pending[count:]
            if not pending:
                columns += self._spare(width - names - _room(columns))
            yield self._table(min(names, max(_NAME_LEAST, width - _room(columns))), columns)

    def _spare(self, room: int) -> list[_Column]:
        return [each for each in self._columns if each.spare and _room([each]) <= room][:1]

    def _table(self, name_width: int, columns: Sequence[_Column]) -> RichTable:
        made = RichTable(
            box=box.SIMPLE_HEAD,
            padding=(0, _GAP - 1, 0, 0),
            collapse_padding=True,
            pad_edge=False,
            show_edge=False,
        )
        names = [_name(cell, name_width) for cell in self._names]
        if len(set(names)) < len(names):
            names = [_name(cell) for cell in self._names]
        first = Text(one_line(self._first.heading))
        made.add_column(first, width=name_width, overflow="fold", vertical="bottom")
        for column in columns:
            made.add_column(column.headings(), min_width=column.width, overflow="fold")
        for index, name in enumerate(names):
            made.add_row(Text(name), *(column.cells[index] for column in columns))
        return made


def _column(column: Column, cells: Sequence[Cell]) -> _Column:
    texts = tuple(
        Text(text, style=tables.STYLES[cell.tone])
        for text, cell in zip(_aligned(cells), cells, strict=True)
    )
    return _Column(one_line(column.heading), one_line(column.below), texts, column.spare)


def _aligned(cells: Sequence[Cell]) -> list[str]:
    """The cells' texts; parts stand below those of other rows, the first of them at the right."""
    parted = [[one_line(part) for part in cell.parts] for cell in cells]
    widths = [max(map(cell_len, parts)) for parts in zip(*filter(None, parted), strict=True)]
    return [
        " ".join(_padded(parts, widths)).rstrip() if parts else one_line(cell.text)
        for cell, parts in zip(cells, parted, strict=True)
    ]


def _padded(parts: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for index, (part, width) in enumerate(zip(parts, widths, strict=True)):
        blanks = " " * (width - cell_len(part))
        yield part + blanks if index else blanks + part


def _pieces(heading: str) -> list[str]:
    """A heading cut where it may wrap: behind its commas."""
    return heading.replace(",", ",\0").split("\0")


def _fitting(columns: Sequence[_Column], room: int) -> int:
    """How many of the columns fit, at least one."""
    count = 1
    while count < len(columns) and _room(columns[: count + 1]) <= room:
        count += 1
    return count


def _room(columns: Sequence[_Column]) -> int:
    return sum(_GAP + column.width for column in columns)


def _name(cell: Cell, width: int | None = None) -> str:
    """The name of a row, in which the first part gives way."""
    first, *others = map(one_line, cell.parts or (cell.text,))
    rest = "".join(f" {part}" for part in others)
    return f"{first if width is None else _shortened(first, width - cell_len(rest))}{rest}"


def _shortened(name: str, width: int) -> str:
    if cell_len(name) <= width:
        return name
    head = (width - 1) // 2
    return f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"
