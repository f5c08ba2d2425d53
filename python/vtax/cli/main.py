"""The command `vtax`: one module per verb; a user's mistake is one line, never a traceback."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import typer

from vtax import __version__
from vtax.cli import compare, correlate, doctor, export, paging, record, report, study, timeline
from vtax.errors import VtaxError

INTERRUPTED = 130

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
app.add_typer(paging.app, name="paging")
app.command(short_help="Draw a paper's figures again; judge its claims.", epilog=study.EXAMPLES)(
    study.study
)
app.command(**record.SETTINGS)(record.record)
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


def main() -> NoReturn:
    """The entry point of the command."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        app(prog_name="vtax")
    except VtaxError as error:
        print(f"vtax: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(0)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """A polite kill is the same as Ctrl-C: finish what is being saved, end every guest."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
