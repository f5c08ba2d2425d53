"""What `memory`, `tune` and `place` share: their campaigns keep what was finished."""

from __future__ import annotations

import json
import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from vtax.formats.folder import OwnRecord, RunFolder
    from vtax.formats.memory import MemoryRecord
    from vtax.formats.place import PlaceRecord
    from vtax.formats.tune import TuneRecord
    from vtax.runner.campaign import Campaign

INTERRUPTED = 130

R = TypeVar("R", "MemoryRecord", "TuneRecord", "PlaceRecord")


def carry_out(campaign: Campaign[R], folder: RunFolder) -> R:
    """Run the campaign; a folder without any result is removed.

    Raises VtaxError when nothing was measured, and what the campaign raises.
    """
    from vtax.errors import VtaxError

    try:
        record = campaign.run()
    except BaseException:
        if not campaign.found:
            shutil.rmtree(folder.path, ignore_errors=True)
        raise
    if not campaign.found and record.state != "interrupted":
        raise VtaxError(
            f"nothing was measured: {campaign.first_failure or 'no run was made'}",
            f"what it printed is in {folder.path}",
        )
    return record


def show(record: OwnRecord, path: Path, *, as_json: bool) -> None:
    """Write the report of a run, and print its result: JSON, or tables and where the report is.

    A verb's page and its tables are in modules of its name.
    """
    from vtax.formats.folder import REPORT
    from vtax.present.terminal import tables

    import_module(f"vtax.present.html.{record.verb}").write_report(record, path / REPORT)
    shown = import_module(f"vtax.present.terminal.{record.verb}")
    if as_json:
        print(json.dumps(shown.to_json(record), indent=1))
    else:
        tables.show(*shown.parts(record))
        print(f"report: {path / REPORT}")


def conclude(record: OwnRecord, path: Path, *, as_json: bool, failed: bool) -> None:
    """Show a run, and end with the exit code for Ctrl-C, or for a failure in it."""
    show(record, path, as_json=as_json)
    if record.state == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if failed:
        raise typer.Exit(1)


def variables() -> dict[str, str]:
    """Environment variables for programs, with vtax's own programs on their PATH."""
    from vtax import binaries
    from vtax.workloads.variables import base_environment, require_utf8

    found = dict(base_environment(os.environ))
    require_utf8(found)
    return found | {"PATH": binaries.on_path(found)}
