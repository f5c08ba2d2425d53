"""The sources of events, as the recorder declares them."""

from __future__ import annotations

import functools
import subprocess
from dataclasses import dataclass

from vtax.core import binaries, foreign_json
from vtax.core.errors import VtaxError
from vtax.core.recorder.recorder import PROGRAM

TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class EventSource:
    """A source of events; docs/record.md has a table of all sources."""

    name: str
    """The layer, with which the names of its events begin."""
    about: str
    needs: tuple[str, ...]
    """Checks of `vtax doctor` for what its events need of the machine."""
    events: tuple[str, ...]
    """Names of events; empty where other programs publish them."""


@functools.cache
def declared() -> tuple[EventSource, ...]:
    """All sources; none where the recorder is not installed, since nothing can be recorded
    there."""
    try:
        line = [str(binaries.find(PROGRAM)), "sources", "--json"]
        done = subprocess.run(line, capture_output=True, timeout=TIMEOUT_S, check=True)
        listed = foreign_json.parse(done.stdout)
    except (VtaxError, OSError, ValueError, subprocess.SubprocessError):
        return ()
    return tuple(
        EventSource(each["name"], each["about"], tuple(each["needs"]), tuple(each["events"]))
        for each in listed
    )
