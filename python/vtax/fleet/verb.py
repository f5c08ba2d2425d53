"""`vtax fleet`: many hosts side by side, from the folders of their runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.core.command import campaigns
from vtax.core.command.options import Json

if TYPE_CHECKING:
    from vtax.fleet.runs import Found

EXAMPLES = """\b
Examples:
  vtax fleet /srv/vtax
  vtax fleet s3://bucket/vtax --report fleet.html
  vtax fleet runs --metric SingleSTREAM_Triad --json
  vtax fleet runs --query 'SELECT host, median(value) FROM samples GROUP BY host'
"""

SETTINGS: dict[str, Any] = {
    "short_help": "Show many hosts side by side, from the folders of their runs.",
    "epilog": EXAMPLES,
}
MOST_ROWS = 200
"""Rows of a query in a table."""


def fleet(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run folders, folders that have some in them, or s3://BUCKET/PREFIX."),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Show this metric; repeat it. Default: that of each whole program."
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            metavar="SQL", help="Answer this instead, from the relations `samples` and `runs`."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with all rows, too.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what is left of native speed on each host, what changed, and which hosts stand out.

    Of each host the latest run of a command counts, and the one before is what it is compared
    with. Where hosts stand out, the facts that separate them from the others are named
    (docs/scale.md). What cannot be read costs a line, and the exit code is 1.
    """
    from vtax.core.errors import MisuseError
    from vtax.core.formats.scratch import scratch
    from vtax.fleet.runs import find

    if query is not None and (metric or report):
        raise MisuseError("--query has neither --metric nor --report", "give only one")
    with scratch("fleet") as folder:
        found = find(runs, folder, with_samples=query is not None)
        if query is not None:
            unreadable = _answer(query, found, folder, as_json=as_json)
        else:
            unreadable = _show(found, metric or [], report, as_json=as_json)
    if unreadable:
        raise typer.Exit(campaigns.FAILED)


def _show(found: Found, metrics: list[str], report: Path | None, *, as_json: bool) -> bool:
    from vtax.core.page import render_html, render_terminal
    from vtax.fleet.analysis import analyse
    from vtax.fleet.page import page, to_json

    result = analyse(found)
    shown = page(result, metrics)
    if report is not None:
        render_html.write(shown, report)
    if as_json:
        print(json.dumps(to_json(result), indent=1))
    else:
        render_terminal.show(shown)
    return bool(result.unreadable)


def _answer(sql: str, found: Found, folder: Path, *, as_json: bool) -> bool:
    from vtax.core.page import render_terminal
    from vtax.fleet.query import answer, first_rows, query
    from vtax.fleet.query import as_json as lines

    rows, unreadable = query(sql, found.runs, folder)
    said = [*found.unreadable, *unreadable]
    if as_json:
        sys.stdout.writelines(f"{line}\n" for line in lines(rows, folder))
        for line in said:
            print(f"vtax: {line}", file=sys.stderr)
    else:
        render_terminal.show(answer(*first_rows(rows, MOST_ROWS), said))
    return bool(said)


def add(app: typer.Typer) -> None:
    """Make it a verb of `app`."""
    app.command(**SETTINGS)(fleet)
