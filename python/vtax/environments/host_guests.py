"""Which guest of a host is meant: by its name or process there, or by its UUID."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vtax.core.errors import VtaxError
from vtax.environments.host_reading import Thread

UUID = "/sys/class/dmi/id/product_uuid"
"""The guest's UUID as its firmware gives it, which its root may read. QEMU has it as `-uuid`."""
FIRST = "main-loop"
"""The role of QEMU's first thread; crates/host/src/place/role.rs has all roles."""


@dataclass(frozen=True, slots=True)
class Guest:
    """A guest of the host."""

    pid: int
    name: str
    pids: Sequence[int]
    """Its process, and all others that work for it alone."""
    roles: Mapping[Thread, str]

    def __str__(self) -> str:
        return self.name if self.name == str(self.pid) else f"{self.name} (process {self.pid})"


def guests(window: Mapping[str, Any]) -> Sequence[Guest]:
    """The guests that QEMU runs, of what `vtax-host place threads` answers.

    Raises LookupError or TypeError for another answer.
    """
    found, threads = [], window["threads"]
    for first in threads:
        if first["role"] == FIRST:
            own = [each for each in threads if each["guest"] == first["guest"]]
            # Two guests may have one name: a helper is then of neither.
            firsts = {each["pid"] for each in own if each["role"] == FIRST}
            mine = [each for each in own if len(firsts) == 1 or each["pid"] == first["pid"]]
            pids = dict.fromkeys(each["pid"] for each in mine)
            roles = {(each["pid"], each["tid"]): each["role"] for each in mine}
            found.append(Guest(first["pid"], first["guest"], tuple(pids), roles))
    return found


def fitting(
    known: Sequence[Guest],
    domain: str | None,
    pid: int | None,
    own: uuid.UUID | None,
    uuid_of: Callable[[Guest], uuid.UUID | None],
) -> Sequence[Guest]:
    """The guests that may be the one with this name, process and UUID; None: not known."""
    named = [each for each in known if domain in (None, each.name) and pid in (None, each.pid)]
    if own is None:
        return named
    theirs = {each.pid: uuid_of(each) for each in named}
    same = [each for each in named if theirs[each.pid] == own]
    return same or [each for each in named if theirs[each.pid] is None]


def own_uuid(pull: Callable[[str], bytes]) -> uuid.UUID | None:
    """The machine's own UUID; None: it has none, or shows it to root alone."""
    with contextlib.suppress(VtaxError, ValueError):
        return uuid.UUID(pull(UUID).decode().strip())
    return None


def uuid_of_process(pull: Callable[[str], bytes], pid: int) -> uuid.UUID | None:
    """The UUID on QEMU's command line; None: it has none there."""
    with contextlib.suppress(VtaxError, ValueError, IndexError):
        words = pull(f"/proc/{pid}/cmdline").decode().split("\0")
        return uuid.UUID(words[words.index("-uuid") + 1])
    return None
