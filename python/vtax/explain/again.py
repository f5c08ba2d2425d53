"""The options of a comparison that was made, from the command line in its record."""

from __future__ import annotations

from typing import Any

import typer

from vtax.core.command.spec_file import USAGE_ERROR
from vtax.core.errors import MisuseError
from vtax.core.formats.model import ComparisonRecord
from vtax.explain.verb import SETTINGS, ExplainOptions, explain

VERBS = ("compare", "explain")
"""The verbs that make comparisons; the options of the second include those of the first."""


def options_of(record: ComparisonRecord) -> ExplainOptions:
    """The options that made this run. Raises MisuseError when they cannot be had from it."""
    words = record.command_line[1:]
    remedy = "run the comparison anew: vtax explain --in SPEC -- PROGRAM"
    if not words or words[0] not in VERBS:
        raise MisuseError("the run was not made by vtax compare on a command line", remedy)
    try:
        context = _command().make_context(words[0], list(words[1:]))
    except USAGE_ERROR as error:
        raise MisuseError(f"the run's command line is not understood: {error}", remedy) from None
    return ExplainOptions(**context.params)


def _command() -> Any:
    """The verb; its class differs between versions of typer."""
    app = typer.Typer()
    app.command(**SETTINGS)(explain)
    return typer.main.get_command(app)
