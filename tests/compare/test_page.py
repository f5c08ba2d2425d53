"""The page of a comparison, in the form that no other test shows."""

from __future__ import annotations

import report_data
from vtax.compare.page import page
from vtax.core.page import render_markdown


def test_markdown_has_all_notes_and_the_figures_in_words() -> None:
    found = page(report_data.comparison(), report_data.samples())
    text = render_markdown.render(found)
    assert text.startswith("# hpcc small: what virtualization costs\n")
    assert "| metric | native:cpus=1,mem=1G, median | uml:mem=1G, typical, % |" in text
    assert "drift: PTRANS_GBs fell by 16 %" in text and "more notes" not in text
    assert len(found.figures) > 2
    assert all(f"*{figure.alternative}*" in text for figure in found.figures)
