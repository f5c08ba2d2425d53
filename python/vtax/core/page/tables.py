"""Tables on the terminal, or without colour in a pipe or a log; nothing is read as markup.

Every verb shows its result this way: parts for rich, most of them made by `table`.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from vtax.core.page.format import one_line
from vtax.core.page.page import Tone, is_number

PLAIN_WIDTH = 120
UNFOLDED = 10_000
"""A width in which no line is broken: for tables whose rows are looked for with grep."""

STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.BAD: "red",
    Tone.DOUBTFUL: "yellow",
    Tone.QUIET: "dim",
}

Cell = str | Text


def show(*parts: RenderableType, width: int = PLAIN_WIDTH) -> None:
    """Print the parts on standard output: as wide as a terminal is, or `width` for anything
    else."""
    if sys.stdout.isatty():
        console = Console()
        for part in parts:
            console.print(part)
    else:
        print(plain(*parts, width=width), end="")


def plain(*parts: RenderableType, width: int = PLAIN_WIDTH) -> str:
    """The parts as text without colour."""
    sink = io.StringIO()
    console = Console(file=sink, width=width, color_system=None, force_terminal=False)
    for part in parts:
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in sink.getvalue().splitlines())


def table(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """A table whose columns of numbers are aligned at the right; a text cell is one line."""
    kept = [[_cell(cell) for cell in row] for row in rows]
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, heading in enumerate(headings):
        right = bool(kept) and all(is_number(row[index].plain) for row in kept)
        made.add_column(
            Text(one_line(heading)), justify="right" if right else "left", overflow="fold"
        )
    for row in kept:
        made.add_row(*row)
    return made


def title(text: str) -> Text:
    """The line above a table."""
    return Text(one_line(text), style="bold")


def note(text: str, style: str = "") -> Text:
    """A line below a table."""
    return Text(one_line(text), style=style)


def hanging(sign: str, subject: str, text: str) -> RenderableType:
    """A line about something, whose continuation is indented."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=1)
    grid.add_column(overflow="fold")
    line = Text(f"{one_line(subject)}: ", style="bold")
    line.append(one_line(text), style="not bold")
    grid.add_row(Text(sign, style="yellow"), line)
    return grid


def _cell(cell: Cell) -> Text:
    return Text(one_line(cell)) if isinstance(cell, str) else cell
