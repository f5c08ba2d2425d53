"""`report.html` of a run: the page of a comparison with what can be chosen, hidden and sorted."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vtax.compare import explain, facts, summary, trust, verdicts
from vtax.compare.history.page import AGAINST
from vtax.compare.node_page import NODES
from vtax.compare.page import ORDER, RATIOS
from vtax.core.page.bill import WHY
from vtax.core.page.page import Depth, Figure, Page
from vtax.core.page.palette import styles
from vtax.core.page.standalone import render_page, write_page
from vtax.core.statistics.results import Comparison, Result

FURTHER = (NODES, AGAINST)
"""Sections that only some runs have, each under a heading of its own."""


def write_report(page: Page, comparison: Comparison, path: Path) -> None:
    """Write the page; an existing page is replaced in one step or, on failure, left alone."""
    remedy = "make room or write access there, then run: vtax report RUN"
    write_page(render(page, comparison), path, remedy)


def render(page: Page, comparison: Comparison) -> str:
    """The page of this comparison as text."""
    ratios, orders, bills = (_figures(page, name) for name in (RATIOS, ORDER, WHY))
    data = {
        "bill": [figure.plot for figure in bills],
        "ratio": [figure.plot for figure in ratios],
        "order": [figure.plot for figure in orders],
        "orderAlternatives": [figure.alternative for figure in orders],
    }
    full = page.sections_at(Depth.FULL)
    context = {
        **_words(comparison),
        "page": page,
        "ratios": ratios,
        "orders": orders,
        "bill": [each for each in full if each.name == WHY],
        "bills": bills,
        "further": [each for each in full if each.name in FURTHER],
    }
    return render_page("vtax.compare", "report", data, context)


def _figures(page: Page, name: str) -> Sequence[Figure]:
    named = (each.figure for each in page.sections if each.name == name)
    return [figure for figure in named if isinstance(figure, Figure)]


def _words(comparison: Comparison) -> dict[str, Any]:
    """What is compare's own on the page."""
    record = comparison.record
    baselines = list(summary.environments(comparison, "baseline"))
    return {
        "record": record,
        "state": trust.state_sentence(record),
        "styles": styles(record.environments),
        "baselines": [(env, summary.baseline_nature(env)) for env in baselines],
        "summaries": summary.summarise(comparison),
        "floors": summary.noise_floors(comparison),
        "detection": list(summary.detection(comparison)),
        "warnings": trust.ranked(comparison.flags),
        "rows": _table_rows(comparison),
        "sheet": facts.side_by_side(record.environments),
        "command": shlex.join(record.command_line),
        "glossary": explain.GLOSSARY,
        "summary": summary,
        "trust": trust,
        "verdicts": verdicts,
    }


def _table_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """The results by metric, environments beside each other; a row belongs to a filter by the place
    of its environment in the run."""
    indices = {env.label: index for index, env in enumerate(comparison.record.environments)}
    metrics = list(dict.fromkeys(result.metric for result in comparison.results))

    def rank(result: Result) -> tuple[int, int]:
        return metrics.index(result.metric), indices.get(result.environment, len(indices))

    ordered = sorted(comparison.results, key=rank)
    return [{"result": result, "index": indices.get(result.environment)} for result in ordered]
