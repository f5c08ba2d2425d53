"""The page of an analysis: words, figures and tables of one verb on one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vtax import __version__
from vtax.present.figures.plotting import Figure
from vtax.present.html.standalone import page_file, render_page, write_page


@dataclass(frozen=True, slots=True)
class Rows:
    """A table, with the words above it."""

    name: str
    """The anchor of the table on the page."""
    title: str
    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Page:
    """What an analysis found."""

    verb: str
    title: str
    facts: tuple[tuple[str, str], ...]
    """The name and value of every choice that the result depends on."""
    notes: tuple[str, ...]
    """What a reader must know before believing the result."""
    figures: tuple[Figure, ...]
    tables: tuple[Rows, ...]


def write_analysis(page: Page, path: Path) -> None:
    """Write the page; an existing page is replaced in one step or, on failure, left alone."""
    write_page(render(page), path, "make room or write access there, or choose --out")


def render(page: Page) -> str:
    """The page as text."""
    context = {
        "page": page,
        "widths": _widths(page.figures),
        "version": __version__,
        "extra_style": page_file("vtax.present.html", "analysis.css"),
    }
    plots = [figure.plot for figure in page.figures]
    return render_page(
        "vtax.present.html", "analysis.html.j2", "analysis.js", {"plots": plots}, context
    )


def _widths(figures: Sequence[Figure]) -> list[int]:
    """The least width in CSS pixels in which each figure can be read; a narrower one scrolls."""
    return [int(figure.plot.get("meta", {}).get("least_width", 0)) for figure in figures]
