"""`report.html` of a study: claims first, then every figure beside what the paper says about it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vtax.core.page.page import Figure
from vtax.core.page.standalone import render_page, write_page
from vtax_studies.model import Claim, Outcome, Study, Verdict
from vtax_studies.table import SYMBOLS, counts, second_cells, second_counts

CLASSES: Mapping[Verdict | None, str] = {
    Verdict.HOLDS: "verdict-equivalent",
    Verdict.SUBSTITUTE: "verdict-inconclusive",
    Verdict.FAILS: "verdict-slower",
    Verdict.UNKNOWN: "verdict-inconclusive",
}


def write_report(study: Study, outcome: Outcome, path: Path) -> None:
    """Write the page; an existing page is replaced in one step or, on failure, left alone."""
    write_page(render(study, outcome), path, "make room or write access there, or choose --out")


def render(study: Study, outcome: Outcome) -> str:
    """The page as text."""
    panels = [panel for figure in outcome.figures for panel in figure.panels]
    plots = [panel.plot if isinstance(panel, Figure) else None for panel in panels]
    return render_page("vtax_studies", "study", {"plots": plots}, _words(study, outcome))


def _words(study: Study, outcome: Outcome) -> dict[str, Any]:
    before, figures = 0, []
    for figure in outcome.figures:
        panels = [(before + at, panel) for at, panel in enumerate(figure.panels)]
        before += len(panels)
        figures.append((figure, panels))
    return {
        "study": study,
        "outcome": outcome,
        "figures": figures,
        "counts": counts(outcome.claims),
        "second_counts": second_counts(outcome.claims),
        "second_cells": second_cells,
        "mark": _mark,
        "css_class": CLASSES.get,
    }


def _mark(claim: Claim) -> str:
    return SYMBOLS[claim.verdict]
