"""Tables of an analysis on the terminal, or without colour in a pipe; nothing is read as markup."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from vtax.present.format import one_line
from vtax.present.html.analysis_page import Rows

PLAIN_WIDTH = 120


def show(title: str, notes: Sequence[str], tables: Sequence[Rows]) -> None:
    """On standard output: as wide as a terminal is, or `PLAIN_WIDTH` for anything else."""
    if sys.stdout.isatty():
        console = Console()
        for part in _parts(title, notes, tables):
            console.print(part)
    else:
        print(plain(title, notes, tables), end="")


def plain(title: str, notes: Sequence[str], tables: Sequence[Rows]) -> str:
    """The same as text without colour."""
    sink = io.StringIO()
    console = Console(file=sink, width=PLAIN_WIDTH, color_system=None, force_terminal=False)
    for part in _parts(title, notes, tables):
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in sink.getvalue().splitlines())


def _parts(title: str, notes: Sequence[str], tables: Sequence[Rows]) -> Iterable[RenderableType]:
    yield Text(one_line(title), style="bold")
    for note in notes:
        yield Text(f"! {one_line(note)}", style="yellow")
    for table in tables:
        yield Text("")
        yield Text(one_line(table.title), style="bold")
        if table.rows:
            yield _table(table)
        else:
            yield Text(one_line(table.caption))


def _table(rows: Rows) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    numeric = [_numeric([row[place] for row in rows.rows]) for place in range(len(rows.headings))]
    for heading, right in zip(rows.headings, numeric, strict=True):
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows.rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    return table


def _numeric(cells: Sequence[str]) -> bool:
    return all(not cell or cell[0] in "0123456789+-<.·\N{MINUS SIGN}" for cell in cells)
