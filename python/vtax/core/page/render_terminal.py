"""A page on the terminal: the sentence, then tables and notes; what only a report has is left out.

A section that is empty says so by its sentence, and figures are not drawn.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from vtax.core.page import tables
from vtax.core.page.format import one_line
from vtax.core.page.page import Cell, Depth, Note, Page, Section, Severity, Table
from vtax.core.page.wide_table import WideTable


def show(page: Page, width: int = tables.PLAIN_WIDTH) -> None:
    """Print the page on standard output, as `tables.show` does."""
    tables.show(*parts(page), width=width)


def parts(page: Page) -> list[RenderableType]:
    """The page for `vtax.core.page.tables.show`."""
    found: list[RenderableType] = [_title(page)] if page.sentence or page.title else []
    for section in page.sections:
        shown = list(_section(section)) if section.depth.fits(Depth.BRIEF) else []
        if shown and found and (section.heading or section.apart):
            found.append(Text(""))
        found += shown
    return found


def _title(page: Page) -> Text:
    found = tables.title(page.sentence or page.title)
    return found.append(f"   run {one_line(page.run)}", style="not bold dim") if page.run else found


def _section(section: Section) -> Iterator[RenderableType]:
    if section.table is None and not section.notes:
        return
    if section.heading:
        yield tables.title(section.heading)
    if section.table is not None and (section.table.rows or not section.sentence):
        yield _table(section.table.at(Depth.BRIEF))
    elif section.sentence:
        yield tables.note(section.sentence)
    yield from map(_note, section.notes)


def _table(found: Table) -> RenderableType:
    if found.wide:
        return WideTable(found)
    return tables.table(found.headings, [[_cell(cell) for cell in row] for row in found.rows])


def _cell(cell: Cell) -> Text:
    return Text(one_line(cell.text), style=tables.STYLES[cell.tone])


def _note(note: Note) -> RenderableType:
    if note.sign:
        return tables.hanging(note.sign, note.subject, note.text)
    if note.severity is Severity.WARNING:
        return tables.note(f"! {note.line}", "yellow")
    if note.further:
        texts = map(one_line, (note.text, *note.further))
        return Text("  ".join(texts), style=tables.STYLES[note.tone])
    return tables.note(note.line, tables.STYLES[note.tone])
