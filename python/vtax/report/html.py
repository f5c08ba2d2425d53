"""`report.html`: one self-contained page that opens from disk and needs no network.

The page allows no script but its own two, named by their hashes in its Content-Security-Policy,
and no request at all; every foreign text is escaped by the templates.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.util
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtax.errors import VtaxError
from vtax.report import explain, facts, figures, order_figures, summary, trust, verdicts
from vtax.report import format as text
from vtax.report.palette import styles
from vtax.runs.model import Comparison, Result, Sample

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

NO_BREAK_PERCENT = "\N{NO-BREAK SPACE}%"


def write_report(comparison: Comparison, samples: Sequence[Sample], path: Path) -> None:
    """Writes the page; a page that is there is replaced at once or, on failure, left alone."""
    content = render(comparison, samples).encode("utf-8", errors="backslashreplace")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise VtaxError(
            f"cannot write {path}: {error.strerror or error}",
            "make room or write access there, then run: vtax report RUN",
        ) from None


def render(comparison: Comparison, samples: Sequence[Sample]) -> str:
    """The page as text."""
    from markupsafe import Markup

    scripts = {"plotly": _plotly_source(), "page": _page_file("report.js")}
    return (
        _templates()
        .get_template("report.html.j2")
        .render(
            **_words(comparison),
            **_figures(comparison, samples),
            style=Markup(_page_file("report.css")),
            policy=_policy(scripts.values()),
            scripts={name: Markup(source) for name, source in scripts.items()},
        )
    )


def _words(comparison: Comparison) -> dict[str, Any]:
    """Everything on the page but its figures."""
    record = comparison.record
    baselines = list(summary.environments(comparison, "baseline"))
    return {
        "run": comparison.run,
        "record": record,
        "state": trust.state_sentence(record.state),
        "styles": styles(record.environments),
        "baselines": [(env, summary.baseline_nature(env)) for env in baselines],
        "summaries": summary.summarise(comparison),
        "floors": summary.noise_floors(comparison),
        "flag_groups": trust.grouped(comparison.flags),
        "rows": _table_rows(comparison),
        "sheet": facts.side_by_side(record.environments),
        "command": shlex.join(record.command_line),
        "glossary": explain.GLOSSARY,
    }


def _table_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """The results by metric, environments beside each other; the place of its environment in the
    run ties a row to the filters."""
    places = {env.label: place for place, env in enumerate(comparison.record.environments)}
    metrics = list(dict.fromkeys(result.metric for result in comparison.results))

    def rank(result: Result) -> tuple[int, int]:
        return metrics.index(result.metric), places.get(result.environment, len(places))

    ordered = sorted(comparison.results, key=rank)
    return [{"result": result, "place": places.get(result.environment)} for result in ordered]


def _figures(comparison: Comparison, samples: Sequence[Sample]) -> dict[str, Any]:
    ratios = figures.ratio_figures(comparison)
    orders = order_figures.order_figures(comparison, samples)
    plots = {"ratio": [f.plot for f in ratios], "order": [f.plot for f in orders]}
    alternatives = [figure.alternative for figure in orders]
    return {
        "ratios": ratios,
        "orders": orders,
        "data": _embedded({**plots, "orderAlternatives": alternatives}),
    }


def _embedded(data: Any) -> Markup:
    """JSON for a script element: nothing in it can end the element or start another."""
    from markupsafe import Markup

    source = json.dumps(_finite(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        source = source.replace(character, f"\\u{ord(character):04x}")
    return Markup(source)


def _finite(data: Any) -> Any:
    """The same with `None` for what JSON cannot say: such a value is not drawn."""
    match data:
        case float():
            return data if abs(data) < float("inf") else None
        case Mapping():
            return {key: _finite(value) for key, value in data.items()}
        case list() | tuple():
            return [_finite(item) for item in data]
        case _:
            return data


def _policy(sources: Any) -> str:
    """The Content-Security-Policy: these scripts by hash, inline styles, and no network."""
    hashes = (hashlib.sha256(source.encode()).digest() for source in sources)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def visible(value: Any) -> Any:
        plain = isinstance(value, str) and not isinstance(value, Markup)
        return text.printable(value).replace(" %", NO_BREAK_PERCENT) if plain else value

    made = Environment(
        loader=PackageLoader("vtax.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(text=text, verdicts=verdicts, summary=summary)
    return made


def _page_file(name: str) -> str:
    return resources.files("vtax.report").joinpath("page", name).read_text("utf-8")


def _plotly_source() -> str:
    """plotly.js as the Python package ships it, found without importing that package."""
    spec = importlib.util.find_spec("plotly")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        source = Path(folder) / "package_data" / "plotly.min.js"
        if source.is_file():
            return source.read_text("utf-8")
    raise VtaxError("plotly, which draws the report, is missing", "pip install plotly")
