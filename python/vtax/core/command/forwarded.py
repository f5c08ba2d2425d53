"""Verbs that the program `vtax-host` carries out: vtax becomes it, with the words as typed.

Its command line declares every option once; help, completion and errors are its own. It is static,
because the host that needs it may have no Python.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn

import typer
from typer.core import TyperCommand

from vtax.core import binaries
from vtax.core.errors import VtaxError

PROGRAM = "vtax-host"
NAME = "vtax"
"""The name by which it is started, for its messages and its usage."""
TIMEOUT_S = 20.0
Complete = Callable[[str], Sequence[str]]


def become(words: Sequence[str]) -> NoReturn:
    """Replace this process: signals, output and exit code are then the program's own."""
    os.execv(binaries.find(PROGRAM), [NAME, *words])


class Forwarded(TyperCommand):
    """A verb of that program."""

    completions: ClassVar[Mapping[str, Complete]] = {}
    """How values of options go on that only Python knows."""

    def make_context(
        self, info_name: Any, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The parameters are Any: their classes differ between versions of typer."""
        if not extra.get("resilient_parsing"):
            self.carry_out([*_path(parent), str(info_name), *args])
        context = super().make_context(info_name, [], parent, **extra)
        context.obj = [*_path(parent), str(info_name), *args]
        return context

    def carry_out(self, words: list[str]) -> None:
        become(words)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        words = list(ctx.obj)
        if complete := self.completions.get(words[-1]):
            found = complete(incomplete)
        else:
            found = _completed([*words, incomplete])
        # Typer has a click of its own, so no class of click is named here.
        return [SimpleNamespace(value=each, type="plain", help=None) for each in found]


def _path(context: Any) -> list[str]:
    """The verbs before this one, without the program's name."""
    names: list[str] = []
    while context is not None and context.parent is not None:
        names.insert(0, str(context.info_name))
        context = context.parent
    return names


def _completed(words: Sequence[str]) -> Sequence[str]:
    """How the last word may go on; nothing where the program is not installed."""
    try:
        line = [str(binaries.find(PROGRAM)), "complete", "--", *words]
        done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    except (VtaxError, OSError, subprocess.SubprocessError):
        return ()
    return done.stdout.splitlines()


def add(app: typer.Typer, name: str, about: str, cls: type[Forwarded] = Forwarded) -> None:
    """Make a verb of that program a verb of `app`; `about` is its line in the list of verbs."""

    @app.command(name, cls=cls, short_help=about)
    def _() -> None:
        """Never called: the command is carried out before its words would be read here."""
