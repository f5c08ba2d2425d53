"""A recording's rows as a CSV file, for spreadsheets and other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vtax.core.formats.files import replacing
from vtax.core.recorder.intervals import FIXED, Event, Recording


def write_csv(recording: Recording, events: Sequence[Event], path: Path) -> int:
    """Write the fixed columns and those of `events`; return the number of rows.

    An empty field is "not measured". An existing file is replaced when the new one is whole.
    """
    columns = [name for name in FIXED if recording.frame[name].count()]
    with replacing(path, "choose another file") as unfinished:
        recording.frame.select([*columns, *(e.name for e in events)]).write_csv(unfinished)
    return recording.frame.height
