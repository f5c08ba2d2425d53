"""The campaigns of a study, and where it keeps their run folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from vtax.errors import VtaxError
from vtax.formats.folder import REPORT
from vtax.formats.memory import MemoryRecord
from vtax.formats.place import PlaceRecord
from vtax.formats.scratch import scratch
from vtax.formats.tune import TuneRecord
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


def carried_out(campaign: Campaign[Any, R]) -> R:
    """Run a campaign and return its record; the report is written too, also after a part of it.

    Raises KeyboardInterrupt after Ctrl-C, and VtaxError when nothing was measured.
    """
    record = campaign.run()
    if campaign.found:
        page = import_module(f"vtax.present.html.{record.verb}")
        page.write_report(record, campaign.folder.path / REPORT)
    if record.state == "interrupted":
        raise KeyboardInterrupt
    if not campaign.found:
        raise VtaxError(campaign.first_failure or "no run was made")
    return record
