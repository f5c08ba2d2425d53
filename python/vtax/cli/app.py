"""The verbs of the command `vtax`, one module each."""

from __future__ import annotations

from typing import Annotated

import typer

from vtax import __version__
from vtax.cli import (
    audit,
    compare,
    correlate,
    doctor,
    export,
    lab,
    memory,
    paging,
    place,
    record,
    report,
    study,
    timeline,
    tune,
)

app = typer.Typer(
    name="vtax",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Measure what virtualization costs a workload, and whether the number can be believed.",
    epilog="Start with: vtax doctor, then: vtax compare --in native --in uml:mem=1G -- hpcc",
)
app.command(**compare.SETTINGS)(compare.compare)
app.command(short_help="Write the report of a run again.")(report.report)
app.command()(doctor.doctor)
app.command(**audit.SETTINGS)(audit.audit)
app.command(**memory.SETTINGS)(memory.memory)
app.command(**tune.SETTINGS)(tune.tune)
app.command(**lab.SETTINGS)(lab.lab)
app.add_typer(paging.app, name="paging")
app.add_typer(place.app, name="place")
app.command(**study.SETTINGS)(study.study)
record.add(app)
app.command(**correlate.SETTINGS)(correlate.correlate)
app.command(**timeline.SETTINGS)(timeline.timeline)
app.command(**export.SETTINGS)(export.export)


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
