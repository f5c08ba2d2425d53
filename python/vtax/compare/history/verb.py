"""`vtax history`: the medians of many runs by time and commit, as CSV."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

EXAMPLES = """\b
Examples:
  vtax history runs/*-dgemm --out history.csv
  vtax history runs/*-my-program | column -ts,
"""

SETTINGS: dict[str, Any] = {
    "short_help": "Write many runs of a command as CSV, by time and commit.",
    "epilog": EXAMPLES,
}


def history(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of vtax compare.", metavar="RUN")],
    out: Annotated[
        Path | None, typer.Option(help="Write it there. Default: print it.", metavar="FILE")
    ] = None,
) -> None:
    """Write many runs of one command as CSV: a row per run, a column per environment and metric.

    The values are medians. Apache Otava finds changes in it (docs/scale.md). Folders without a
    comparison or without samples are named and left out.
    """
    from vtax.compare.history.changes import Measurements
    from vtax.compare.history.series import series
    from vtax.core.errors import MisuseError, VtaxError
    from vtax.core.formats.files import write_atomic
    from vtax.core.formats.folder import load
    from vtax.core.page.format import listing

    found = []
    for path in runs:
        try:
            found.append(Measurements(str(path), *load(path)))
        except VtaxError as error:
            print(f"left out: {error.message}", file=sys.stderr)
    if not found:
        raise MisuseError("none of these is a run of vtax compare", "for example runs/*-dgemm")
    table = series(found)
    if table.gaps:
        said = f"not in every run, and refused by Otava: {listing(table.gaps)}"
        print(said, file=sys.stderr)
    if out is None:
        print(table.csv(), end="")
    else:
        write_atomic(out, table.csv().encode())
