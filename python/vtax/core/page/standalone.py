"""One self-contained HTML page: it opens from disk and needs no network.

A page allows no script but its own, named by their hashes in its Content-Security-Policy, and no
request at all; every foreign text is escaped by the templates.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtax.core.errors import VtaxError
from vtax.core.formats.files import write_atomic
from vtax.core.page import format as text
from vtax.core.page.embedded import embedded

if TYPE_CHECKING:
    from jinja2 import Environment

NO_BREAK_PERCENT = "\N{NO-BREAK SPACE}%"
_BASIC = frozenset({"bar", "scatter"})
"""The kinds of traces that `plotly-basic.min.js` draws: plotly.js-basic-dist-min of npm, under the
MIT license, unchanged."""
_SHARED = "vtax.core.page"
"""The package whose `page` folder has the style and the script that every page uses."""


def write_page(content: str, path: Path, remedy: str) -> None:
    """Write the page; an existing page is replaced in one step or, on failure, left alone."""
    write_atomic(path, content.encode("utf-8", errors="backslashreplace"), remedy)


def render_page(
    package: str, template: str, script: str, data: dict[str, Any], context: Mapping[str, Any]
) -> str:
    """The page as text, from a template and a script in `package`'s folder `page`.

    `data` has lists of plots by name; the script reads them by `plots.js`, and draws by Plotly.
    """
    from markupsafe import Markup

    page = "\n".join((page_file(_SHARED, "plots.js"), page_file(package, script)))
    scripts = {"plotly": _library(data), "page": page}
    return (
        _templates(package)
        .get_template(template)
        .render(
            **context,
            data=embedded(data),
            style=Markup(page_file(_SHARED, "report.css")),
            policy=_policy(scripts.values()),
            scripts={name: Markup(source) for name, source in scripts.items()},
        )
    )


def page_file(package: str, name: str) -> str:
    """A file of `package`'s folder `page`."""
    return resources.files(package).joinpath("templates", name).read_text("utf-8")


def _policy(sources: Iterable[str]) -> str:
    """The Content-Security-Policy: these scripts by hash, inline styles, and no network."""
    hashes = (hashlib.sha256(source.encode()).digest() for source in sources)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _templates(package: str) -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    def visible(value: Any) -> Any:
        plain = isinstance(value, str) and not isinstance(value, Markup)
        return text.printable(value).replace(" %", NO_BREAK_PERCENT) if plain else value

    def source(name: str) -> str:
        """A template of the package or of those that every page uses, without its indentation."""
        own = resources.files(package).joinpath("templates", name)
        found = own.read_text("utf-8") if own.is_file() else page_file(_SHARED, name)
        return re.sub(r"^[ \t]+", "", found, flags=re.MULTILINE)

    made = Environment(
        loader=FunctionLoader(source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(text=text)
    return made


def _library(data: Mapping[str, Any]) -> str:
    """What draws these plots: the part of plotly.js for lines and bars, which is a quarter of it,
    or all of it."""
    kinds = {
        trace["type"]
        for plots in data.values()
        for plot in plots
        if isinstance(plot, dict)
        for trace in plot["data"]
    }
    return page_file(_SHARED, "plotly-basic.min.js") if kinds <= _BASIC else _whole_plotly()


def _whole_plotly() -> str:
    """plotly.js as the Python package ships it, found without importing that package."""
    spec = importlib.util.find_spec("plotly")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        source = Path(folder) / "package_data" / "plotly.min.js"
        if source.is_file():
            return source.read_text("utf-8")
    raise VtaxError("plotly, which draws the report, is missing", "pip install plotly")
