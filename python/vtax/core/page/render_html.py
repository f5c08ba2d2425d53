"""A page as one self-contained HTML file: the answer, the figures, whether to believe it, details.

Notes without a heading stand behind the figures, wherever in the page they are.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from vtax.core.page.page import Depth, Drawing, Figure, Note, Page, Section, Severity
from vtax.core.page.standalone import render_page, write_page

REMEDY = "make room or write access there, or choose --out"


def write(page: Page, path: Path, remedy: str = REMEDY) -> None:
    """Write the page; an existing page is replaced in one step or, on failure, left alone."""
    write_page(render(page), path, remedy)


def render(page: Page) -> str:
    """The page as text."""
    shown = page.sections_at(Depth.FULL)
    notes = [note for each in shown if _only_notes(each) for note in each.notes]
    parts = [each for each in shown if not _only_notes(each)]
    answer = list(takewhile(lambda each: each.figure is None, parts))
    context = {
        "page": page,
        "answer": answer,
        "tables": [each for each in parts[len(answer) :] if each.figure is None],
        "warnings": _texts(notes, Severity.WARNING),
        "remarks": _texts(notes, Severity.INFO),
        "widths": [_least_width(figure) for figure in page.figures],
    }
    plots = [each.plot if isinstance(each, Figure) else None for each in page.figures]
    return render_page("vtax.core.page", "page", {"plots": plots}, context)


def _only_notes(section: Section) -> bool:
    return not (section.heading or section.table or section.figure)


def _texts(notes: list[Note], severity: Severity) -> list[str]:
    return [note.line for note in notes if note.severity is severity]


def _least_width(figure: Drawing) -> int:
    """The least width in CSS pixels in which the figure can be read; a narrower one scrolls."""
    plot = figure.plot if isinstance(figure, Figure) else {}
    return int(plot.get("meta", {}).get("least_width", 0))
