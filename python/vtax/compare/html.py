"""`report.html` of a run: the words and figures of a comparison on one self-contained page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vtax.compare import explain, facts, order_figures, ratio_figures, summary, trust, verdicts
from vtax.core.formats.model import Sample
from vtax.core.page.palette import styles
from vtax.core.page.standalone import render_page, write_page
from vtax.core.statistics.results import Comparison, Result


def write_report(comparison: Comparison, samples: Sequence[Sample], path: Path) -> None:
    """Write the page; an existing page is replaced in one step or, on failure, left alone."""
    remedy = "make room or write access there, then run: vtax report RUN"
    write_page(render(comparison, samples), path, remedy)


def render(comparison: Comparison, samples: Sequence[Sample]) -> str:
    """The page as text."""
    ratios = ratio_figures.ratio_figures(comparison)
    orders = order_figures.order_figures(comparison, samples)
    data = {
        "ratio": [figure.plot for figure in ratios],
        "order": [figure.plot for figure in orders],
        "orderAlternatives": [figure.alternative for figure in orders],
    }
    context = {**_words(comparison), "ratios": ratios, "orders": orders}
    return render_page("vtax.core.page", "report.html.j2", "report.js", data, context)


def _words(comparison: Comparison) -> dict[str, Any]:
    """Everything on the page except its figures."""
    record = comparison.record
    baselines = list(summary.environments(comparison, "baseline"))
    return {
        "run": comparison.run,
        "record": record,
        "state": trust.state_sentence(record),
        "styles": styles(record.environments),
        "baselines": [(env, summary.baseline_nature(env)) for env in baselines],
        "summaries": summary.summarise(comparison),
        "floors": summary.noise_floors(comparison),
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
