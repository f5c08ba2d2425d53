"""`vtax study`: a published paper's figures again, and which of its claims hold here.

The studies are packages of their own, found by their entry points; `studies/` has vtax's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import typer
from typer.core import TyperCommand

from vtax.core.command import options

EXAMPLES = """\b
Examples:
  vtax study dav2m
  vtax study dav2m --quick --out /tmp/dav2m
  vtax study dav2m --figure 10 --json
  vtax study dav2m --traced
  vtax study vrtprof --quick
  vtax study dav2m --validate --only perl --only gcc
"""
INSTALL = "in a checkout of vtax: pip install ./studies"


@runtime_checkable
class Study(Protocol):
    """What this verb needs of a study."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str:
        """The line of the help."""

    def conduct(
        self,
        folder: Path,
        *,
        quick: bool,
        figure: str | None,
        only: Sequence[str],
        seed: int,
        validate: bool,
        traced: bool,
        as_json: bool,
        quiet: bool,
    ) -> None:
        """Carry the study out, write its files in the folder and print its claims.

        Raises MisuseError for a figure, or a name of `only`, that it does not have.
        """


class StudyCommand(TyperCommand):
    """A command whose help ends with a list of the studies that are installed."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The parameters are Any: their classes differ between versions of typer."""
        named = {name: each.about for name, each in installed().items()}
        width = max(map(len, named), default=0)
        lines = [f"  {name:{width}}  {about}" for name, about in named.items()]
        self.epilog = "\n".join([EXAMPLES, "\b", "Studies:", *(lines or [f"  none; {INSTALL}"])])
        super().format_help(ctx, formatter)


SETTINGS: dict[str, Any] = {
    "cls": StudyCommand,
    "short_help": "Draw a paper's figures again; judge its claims.",
}


def installed() -> dict[str, Study]:
    """All studies by name (`vtax.core.plugins`)."""
    from vtax.core import plugins

    return plugins.load(plugins.STUDIES, (), _fault)


def _fault(name: str, plugin: Any) -> str | None:
    if not isinstance(plugin, Study):
        return f"{plugin!r:.60} is no study"
    return None if plugin.name == name else f"it is called '{plugin.name}'"


def _find(name: str) -> Study:
    """The study of that name.

    Raises MisuseError for an unknown name, with the nearest one, and VtaxError when no study is
    installed.
    """
    from vtax.core.errors import VtaxError
    from vtax.core.specs import unknown

    studies = installed()
    if not studies:
        raise VtaxError("no study is installed", INSTALL)
    if name not in studies:
        raise unknown("study", name, studies)
    return studies[name]


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
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Measure only this environment or program; repeat it (atlas, explain, "
            "--validate).",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of the random generator.")
    ] = 1,
    validate: Annotated[
        bool,
        typer.Option("--validate", help="Hold its model against what is real instead (dav2m)."),
    ] = False,
    traced: Annotated[
        bool,
        typer.Option("--traced", help="Judge its claims on traced programs too (atlas, dav2m)."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the claims as JSON.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw a paper's figures again and judge its claims, each beside the value found.

    It writes study.json, Parquet tables and report.html. A claim that does not hold is a finding,
    not a failure: the exit code is 0 either way.
    """
    _find(name).conduct(
        out or Path("studies") / (f"{name}-validation" if validate else name),
        quick=quick,
        figure=figure,
        only=only or (),
        seed=seed,
        validate=validate,
        traced=traced,
        as_json=as_json,
        quiet=quiet,
    )


def add(app: typer.Typer) -> None:
    """Make it a verb of `app`."""
    app.command(**SETTINGS)(study)
