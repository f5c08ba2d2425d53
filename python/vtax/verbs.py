"""The verbs of the command `vtax`, one folder each, which this finds by its name."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from vtax import __version__

VERBS = (
    "compare",
    "explain",
    "prices",
    "doctor",
    "audit",
    "memory",
    "tune",
    "lab",
    "paging",
    "place",
    "study",
    "record",
    "fleet",
)
"""In the order of the help."""

app = typer.Typer(
    name="vtax",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Measure what virtualization costs a workload, and whether the number can be believed.",
    epilog="Start with: vtax doctor, then: vtax compare --in native --in uml:mem=1G -- hpcc",
)
for _name in VERBS:
    import_module(f"vtax.{_name}.verb").add(app)


def _version(asked: bool) -> None:
    if asked:
        print(f"vtax {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None:
    """Options before the verb."""
