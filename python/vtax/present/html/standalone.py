"""One self-contained HTML page: it opens from disk and needs no network.

A page allows no script but its own, named by their hashes in its Content-Security-Policy, and no
request at all; every foreign text is escaped by the templates.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtax.errors import VtaxError
from vtax.formats.files import write_atomic
from vtax.present import format as text

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

NO_BREAK_PERCENT = "\N{NO-BREAK SPACE}%"
_SHARED = "vtax.present.html"
"""The package whose `page` folder has the style and the script that every page uses."""


def write_page(content: str, path: Path, remedy: str) -> None:
    """Write the page; an existing page is replaced in one step or, on failure, left alone."""
    write_atomic(path, content.encode("utf-8", errors="backslashreplace"), remedy)


def render_page(
    package: str, template: str, script: str, data: Any, context: Mapping[str, Any]
) -> str:
    """The page as text, from a template and a script in `package`'s folder `page`.

    `data` is embedded as JSON for the script, which finds Plotly and `plots.js` already there.
    """
    from markupsafe import Markup

    page = "\n".join((page_file(_SHARED, "plots.js"), page_file(package, script)))
    scripts = {"plotly": _plotly_source(), "page": page}
    return (
        _templates(package)
        .get_template(template)
        .render(
            **context,
            data=_embedded(data),
            style=Markup(page_file(_SHARED, "report.css")),
            policy=_policy(scripts.values()),
            scripts={name: Markup(source) for name, source in scripts.items()},
        )
    )


def page_file(package: str, name: str) -> str:
    """A file of `package`'s folder `page`."""
    return resources.files(package).joinpath("page", name).read_text("utf-8")


def _embedded(data: Any) -> Markup:
    """JSON for a script element: nothing in it can end the element or start another."""
    from markupsafe import Markup

    source = json.dumps(_finite(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        source = source.replace(character, f"\\u{ord(character):04x}")
    return Markup(source)


def _finite(data: Any) -> Any:
    """The data with `None` for values that JSON lacks, which are not drawn."""
    match data:
        case float():
            return data if abs(data) < float("inf") else None
        case Mapping():
            return {key: _finite(value) for key, value in data.items()}
        case list() | tuple():
            return [_finite(item) for item in data]
        case _:
            return data


def _policy(sources: Iterable[str]) -> str:
    """The Content-Security-Policy: these scripts by hash, inline styles, and no network."""
    hashes = (hashlib.sha256(source.encode()).digest() for source in sources)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _templates(package: str) -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def visible(value: Any) -> Any:
        plain = isinstance(value, str) and not isinstance(value, Markup)
        return text.printable(value).replace(" %", NO_BREAK_PERCENT) if plain else value

    made = Environment(
        loader=ChoiceLoader([PackageLoader(package, "page"), PackageLoader(_SHARED, "page")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(text=text)
    return made


def _plotly_source() -> str:
    """plotly.js as the Python package ships it, found without importing that package."""
    spec = importlib.util.find_spec("plotly")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        source = Path(folder) / "package_data" / "plotly.min.js"
        if source.is_file():
            return source.read_text("utf-8")
    raise VtaxError("plotly, which draws the report, is missing", "pip install plotly")
