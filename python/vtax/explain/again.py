"""The options of a comparison that was made, from the command line in its record."""

from __future__ import annotations

from typing import cast

import click
import typer

from vtax.compare.verb import SETTINGS, CompareOptions, compare
from vtax.core.errors import MisuseError
from vtax.core.formats.model import ComparisonRecord

VERBS = ("compare", "explain")


def options_of(record: ComparisonRecord) -> CompareOptions:
    """The options that made this run. Raises MisuseError when they cannot be had from it."""
    words = record.command_line[1:]
    remedy = "run the comparison anew: vtax explain --in SPEC -- PROGRAM"
    if not words or words[0] not in VERBS:
        raise MisuseError("the run was not made by vtax compare on a command line", remedy)
    try:
        context = _command().make_context("compare", list(words[1:]), resilient_parsing=False)
    except click.ClickException as error:
        raise MisuseError(
            f"the run's command line is not understood: {error.format_message()}", remedy
        ) from None
    return CompareOptions(**context.params)


def _command() -> click.Command:
    app = typer.Typer()
    app.command(**SETTINGS)(compare)
    return cast(click.Command, typer.main.get_command(app))
