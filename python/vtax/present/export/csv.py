"""A recording's rows as a CSV file, for spreadsheets and other tools."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vtax.analysis.intervals import FIXED, Event, Recording
from vtax.errors import VtaxError


def write_csv(recording: Recording, events: Sequence[Event], path: Path) -> int:
    """Writes the fixed columns and those of `events`; returns the number of rows.

    An empty field is "not measured". A file that is there is replaced when the new one is whole.
    """
    columns = [name for name in FIXED if recording.frame[name].count()]
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            recording.frame.select([*columns, *(e.name for e in events)]).write_csv(unfinished)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise VtaxError(
            f"cannot write {path}: {error.strerror or error}", "choose another file"
        ) from None
    return recording.frame.height
