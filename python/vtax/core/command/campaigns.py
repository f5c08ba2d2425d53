"""What the verbs that measure share: what every request has, and how a run is shown and ends."""

from __future__ import annotations

import json
import os
import secrets
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import typer

from vtax.core.command import spec_file

if TYPE_CHECKING:
    from vtax.core.formats.model import Kept
    from vtax.core.page.page import Page
    from vtax.core.runner.runner import State

INTERRUPTED = 130
FAILED = 1
WORSE = 3
"""A metric got worse by more than --fail-over allows, and nothing failed."""


class Asked(TypedDict):
    """What a request keeps of how its verb was called."""

    command_line: tuple[str, ...]
    seed: int
    spec: str


def asked(seed: int | None, workdir: Path | None = None) -> Asked:
    """How the verb was called: for `seed`, a new one where None was given, and the folder in which
    a user's command line runs."""
    chosen = secrets.randbits(32) if seed is None else seed
    own = {"seed": chosen} | ({} if workdir is None else {"workdir": str(workdir)})
    return Asked(command_line=command_line(), seed=chosen, spec=spec_file.text(own))


def command_line() -> tuple[str, ...]:
    """The command line as records keep it, with what a spec file says in its place."""
    return spec_file.command_line() or ("vtax", *sys.argv[1:])


def seconds(duration: str | None) -> float | None:
    """An option that may be left out, in seconds. Raises MisuseError for what is no duration."""
    from vtax.core.units import parse_duration

    return None if duration is None else parse_duration(duration)


def variables() -> dict[str, str]:
    """Environment variables for programs, with vtax's own programs on their PATH."""
    from vtax.core import binaries
    from vtax.workloads.variables import base_environment, require_utf8

    found = dict(base_environment(os.environ))
    require_utf8(found)
    return found | {"PATH": binaries.on_path(found)}


def show(record: Kept, path: Path, *, as_json: bool) -> None:
    """Write the report of a run, and print its result: JSON, or tables and where the report is.

    A verb's page is in the module of its name; a kind of its runs has a module below that.
    """
    from vtax.core.formats.folder import REPORT
    from vtax.core.page import render_html

    result = import_module(f"vtax.{record.verb.replace(' ', '.')}.page")
    page = result.page(record)
    render_html.write(page, path / REPORT)
    show_result(page, path, result.to_json(record) if as_json else None)


def show_result(page: Page, path: Path, answer: dict[str, Any] | None) -> None:
    """Print the result of a run: the JSON `answer`, or without one the page and where the report
    is."""
    from vtax.core.formats.folder import REPORT
    from vtax.core.page import render_terminal

    if answer is not None:
        print(json.dumps(answer, indent=1))
    else:
        render_terminal.show(page)
        print(f"report: {path / REPORT}")


def end(state: State, *, failed: bool, worse: bool = False) -> None:
    """End with the exit code of a run that was shown. Raises typer.Exit."""
    if state == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if failed:
        raise typer.Exit(FAILED)
    if worse:
        raise typer.Exit(WORSE)
