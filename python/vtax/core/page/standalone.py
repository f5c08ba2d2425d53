"""One self-contained HTML page: it opens from disk and needs no network.

A page allows no script but its own, named by their hashes in its Content-Security-Policy, and no
request at all; every foreign text is escaped by the templates.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtax import __version__
from vtax.core.formats.files import write_atomic
from vtax.core.page import format as text
from vtax.core.page.embedded import embedded

if TYPE_CHECKING:
    from jinja2 import Environment

NO_BREAK_PERCENT = "\N{NO-BREAK SPACE}%"
_SHARED = "vtax.core.page"
"""The package whose `templates` have the frame, style and script that every page uses."""


def write_page(content: str, path: Path, remedy: str) -> None:
    """Write the page; an existing page is replaced in one step or, on failure, left alone."""
    write_atomic(path, content.encode("utf-8", errors="backslashreplace"), remedy)


def render_page(package: str, name: str, data: dict[str, Any], context: Mapping[str, Any]) -> str:
    """The page as text, from the template, script and style `name` in `package`'s `templates`.

    The template extends `frame.html.j2`; a style of its own may be missing. `data` has lists of
    plots by name; the script reads them by `plots.js`, and draws by Plotly.
    """
    from markupsafe import Markup

    scripts = {
        "plotly": _library(data),
        "page": "\n".join((_read(_SHARED, "plots.js"), _read(package, f"{name}.js"))),
    }
    style = _read(_SHARED, "frame.css")
    if _file(package, f"{name}.css").is_file():
        style += _read(package, f"{name}.css")
    return (
        _templates(package)
        .get_template(f"{name}.html.j2")
        .render(
            **context,
            data=embedded(data),
            style=Markup(style),
            policy=_policy(scripts.values()),
            scripts={name: Markup(source) for name, source in scripts.items()},
        )
    )


def _file(package: str, name: str) -> Traversable:
    """A file of `package`'s `templates`."""
    return resources.files(package).joinpath("templates", name)


def _read(package: str, name: str) -> str:
    return _file(package, name).read_text("utf-8")


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
        found = _read(package if _file(package, name).is_file() else _SHARED, name)
        return re.sub(r"^[ \t]+", "", found, flags=re.MULTILINE)

    made = Environment(
        loader=FunctionLoader(source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(text=text, version=__version__)
    return made


def _library(data: Mapping[str, Any]) -> str:
    """What draws these plots, if there are any: the part of plotly.js for lines and bars.

    It is plotly.js-basic-dist-min of npm, under the MIT license, unchanged.
    """
    return _read(_SHARED, "plotly-basic.min.js") if any(map(any, data.values())) else ""
