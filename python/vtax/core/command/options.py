"""Options that mean the same in several verbs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from vtax.core.command.declared import complete_spec

RUNS = Path("runs")
Share = Annotated[
    list[Path] | None,
    typer.Option(
        "--share",
        help="Let guests see this file or folder of a home or another hidden place; repeat it.",
        metavar="PATH",
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        help="Also give this variable of yours, which would be left out (a secret); repeat it.",
        metavar="NAME",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Out = Annotated[Path, typer.Option(help="Folder for run folders.", metavar="DIR")]
Spec = Annotated[
    Path | None,
    typer.Option(
        "--spec",
        help="Take options and command from this file (YAML); what the command line says wins. "
        "Each run folder has one: runs/RUN/spec.yaml.",
        metavar="FILE",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="N", help="Seed of the random order. Default: a new one, recorded."
    ),
]
Timeout = Annotated[
    str | None, typer.Option(help="End the command after this time.", metavar="TIME")
]


def reps(of_what: str) -> Any:
    """The option for how often a campaign measures; its help is `of_what`."""
    return typer.Option("--reps", min=1, max=1000, metavar="N", help=of_what)


def specs(which: str) -> Any:
    """The option that names environments; its help is `which`."""
    return typer.Option("--in", help=which, metavar="SPEC", autocompletion=complete_spec)


Specs = Annotated[list[str] | None, specs("An environment; repeat it. Default: native.")]


class Notes(StrEnum):
    """Which notes stand below the table."""

    FEW = "few"
    ALL = "all"


ShownNotes = Annotated[
    Notes, typer.Option("--notes", help="Notes below the table: the first five, or all.")
]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The last options of verbs that measure points in a random order."""

    spec: Spec = None
    seed: Seed = None
    out: Out = RUNS
    as_json: Json = False
    quiet: Quiet = False


T = TypeVar("T")


def takes(options: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Let typer call a verb that takes a dataclass: each of its fields is a parameter."""

    def made(verb: Callable[[T], None]) -> Callable[..., None]:
        @functools.wraps(verb)
        def command(**given: Any) -> None:
            verb(options(**given))

        hints = get_type_hints(options, include_extras=True)
        taken = inspect.signature(options).parameters.values()
        own = [each.replace(annotation=hints[each.name]) for each in taken]
        vars(command)["__signature__"] = inspect.Signature(own)
        return command

    return made
