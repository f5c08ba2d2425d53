"""Options that mean the same in several verbs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vtax.cli.declared import complete_spec

RUNS = Path("runs")
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Out = Annotated[Path, typer.Option(help="Folder for run folders.", metavar="DIR")]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="N", help="Seed of the random order. Default: a new one, recorded."
    ),
]
Timeout = Annotated[
    str | None, typer.Option(help="End the command after this time.", metavar="TIME")
]
Specs = Annotated[
    list[str] | None,
    typer.Option(
        "--in",
        help="An environment; repeat it. Default: native.",
        metavar="SPEC",
        autocompletion=complete_spec,
    ),
]


def reps(of_what: str) -> Any:
    """The option for how often a campaign measures; its help is `of_what`."""
    return typer.Option("--reps", min=1, max=1000, metavar="N", help=of_what)
