"""`vtax study`: a published paper's figures again, and which of its claims hold here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtax.cli import options
from vtax.studies.registry import find, listed

PROGRESS_EVERY_S = 10.0
"""Seconds between lines of a log."""

EXAMPLES = f"""\b
Examples:
  vtax study dav2m
  vtax study dav2m --quick --out /tmp/dav2m
  vtax study dav2m --figure 10 --json
  vtax study vrtprof --quick

\b
Studies:
{listed()}
"""


def study(
    name: Annotated[str, typer.Argument(help="The study, e.g. dav2m.", metavar="NAME")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for its files. Default: studies/NAME.", metavar="DIR"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer points and shorter samples.")
    ] = False,
    figure: Annotated[
        str | None,
        typer.Option(help="Only what this figure needs; no other is drawn.", metavar="N"),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of the random generator.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the claims as JSON.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw a paper's figures again and judge its claims, each beside the value found.

    It writes study.json, Parquet tables and report.html. A claim that does not hold is a finding,
    not a failure: the exit code is 0 either way.
    """
    from vtax.errors import MisuseError
    from vtax.present.terminal.progress import progress
    from vtax.present.terminal.tables import show
    from vtax.studies import table
    from vtax.studies.files import to_json, write
    from vtax.studies.model import StudyOptions

    found = find(name)
    if figure is not None and figure not in found.figures:
        raise MisuseError(
            f"study '{name}' has no figure {figure!r}", f"choose of {', '.join(found.figures)}"
        )
    folder = out or Path("studies") / name
    with progress(quiet, every_s=PROGRESS_EVERY_S) as shown:
        outcome = found.run(StudyOptions(quick, figure, seed, folder), shown.reach)
    write(found, outcome, folder)
    if as_json:
        print(to_json(found, outcome))
    else:
        show(*table.parts(found, outcome))
    if not as_json:
        print(f"report: {folder / 'report.html'}")
