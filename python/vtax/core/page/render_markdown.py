"""A page as Markdown, for a document: everything that a report has, but its figures' drawings; or
what a terminal has. No name or text in it is read as Markdown, or as a tag."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from vtax.core.page.format import one_line
from vtax.core.page.page import Depth, Page, Section, Severity

_READ = re.compile(r"\\(?=[!-/:-@\[-`{-~]|$)|[`*~$<]|(?<!\w)_|_(?!\w)|\](?=[(\[:])|&(?=#?\w+;)")
"""What GitHub would read as an escape, code, emphasis, a formula, a tag, a link or a letter. An
underscore inside a word is none of them."""
_ENTITIES = {"<": "&lt;", "&": "&amp;"}


def render(page: Page, depth: Depth = Depth.FULL) -> str:
    """The page as text; blank lines stand between its parts."""
    first = [f"# {_line(page.title)}"] if page.title else []
    first += [_line(page.sentence)] if page.sentence else []
    shown = (each for each in page.sections if each.depth.fits(depth))
    return "\n\n".join([*first, *(part for each in shown for part in _section(each, depth))]) + "\n"


def table(headings: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """The lines of a table; what is Markdown in a cell stays so."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _section(section: Section, depth: Depth) -> Iterator[str]:
    if section.heading:
        yield f"## {_line(section.heading)}"
    if section.sentence:
        yield _line(section.sentence)
    if section.figure is not None:
        yield f"*{_line(section.figure.alternative)}*"
    if section.table is not None and section.table.rows:
        found = section.table.at(depth)
        yield table(found.headings, [map(_line, row) for row in found.texts])
    if section.notes:
        marks = {Severity.WARNING: "**!** "}
        yield "\n".join(f"- {marks.get(n.severity, '')}{_line(n.line)}" for n in section.notes)


def _line(text: str) -> str:
    """Foreign text on one line, in which nothing is Markdown or a tag."""
    return _READ.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), one_line(text))


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|")
