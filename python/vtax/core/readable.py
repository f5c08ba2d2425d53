"""Waiting until something can be read from a file descriptor of any number."""

from __future__ import annotations

import math
import select
from typing import Protocol

LONGEST_S = 3600.0
"""poll() counts milliseconds in an int; whoever waits for longer asks again."""


class HasDescriptor(Protocol):
    """A socket, a pipe or a file."""

    def fileno(self) -> int: ...


def readable(source: HasDescriptor, seconds: float, lifeline: HasDescriptor | None = None) -> bool:
    """Whether there is something to read, or its end, within this time (an hour at most).

    Where there is something to read from `lifeline`, or its end, the wait is over too.

    select() knows no descriptor above 1023, and a campaign of 350 machines has more. Raises
    ValueError for a source that is closed.
    """
    waiting = select.poll()
    waiting.register(source, select.POLLIN)
    if lifeline is not None:
        waiting.register(lifeline, select.POLLIN)
    found = waiting.poll(math.ceil(1000.0 * min(seconds, LONGEST_S)))
    return any(descriptor == source.fileno() for descriptor, _ in found)
