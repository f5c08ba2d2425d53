"""What `memory`, `tune` and `place` share: their campaigns keep what was finished."""

from __future__ import annotations

import json
import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

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

    A verb's page is in the module of its name.
    """
    from vtax.formats.folder import REPORT
    from vtax.present import render_html, render_terminal

    result = import_module(f"vtax.present.pages.{record.verb}")
    page = result.page(record)
    render_html.write(page, path / REPORT)
    if as_json:
        print(json.dumps(result.to_json(record), indent=1))
    else:
        render_terminal.show(page)
        print(f"report: {path / REPORT}")


def variables() -> dict[str, str]:
    """Environment variables for programs, with vtax's own programs on their PATH."""
    from vtax import binaries
    from vtax.workloads.variables import base_environment, require_utf8

    found = dict(base_environment(os.environ))
    require_utf8(found)
    return found | {"PATH": binaries.on_path(found)}
