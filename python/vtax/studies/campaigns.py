"""The campaigns of a study, and where it keeps their run folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from vtax.errors import VtaxError
from vtax.formats.folder import REPORT, RunFolder
from vtax.formats.memory import MemoryRecord
from vtax.formats.place import PlaceRecord
from vtax.formats.scratch import scratch
from vtax.formats.tune import TuneRecord
from vtax.present import render_html
from vtax.runner.campaign import Campaign

RUNS = "runs"
"""The folder of runs, below the study's folder."""

R = TypeVar("R", MemoryRecord, TuneRecord, PlaceRecord)


@contextmanager
def run_folders(study: Path | None) -> Iterator[Path]:
    """The folder for run folders. If the study has no folder, the run folders are removed."""
    if study is not None:
        yield study / RUNS
        return
    with scratch("study") as folder:
        yield folder


def carried_out(campaign: Campaign[R], folder: RunFolder) -> R:
    """Run a campaign and return its record; the report is written too, also after a part of it.

    Raises KeyboardInterrupt after Ctrl-C, and VtaxError when nothing was measured.
    """
    record = campaign.run()
    if campaign.found:
        result = import_module(f"vtax.present.pages.{record.verb}")
        render_html.write(result.page(record), folder.path / REPORT)
    if record.state == "interrupted":
        raise KeyboardInterrupt
    if not campaign.found:
        raise VtaxError(campaign.first_failure or "no run was made")
    return record
