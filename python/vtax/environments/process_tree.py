"""A process of this host with all its descendants: their CPU time, and their CPUs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

PROC = Path("/proc")
_PARENT, _TIMES = 1, slice(11, 15)
"""Fields of /proc/PID/stat behind the name (proc_pid_stat(5)): ppid; utime, stime, cutime,
cstime."""


def tree(first: int, proc: Path = PROC) -> dict[int, int]:
    """All CPU time in ticks of a process and its descendants, by their numbers."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit() and (found := _stat(entry)) is not None:
            parents[int(entry.name)], ticks[int(entry.name)] = found
    ours = {first}
    # A child may have a lower number than its parent: look until nothing is added.
    while added := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= added
    return {pid: ticks[pid] for pid in ours & ticks.keys()}


def _stat(process: Path) -> tuple[int, int] | None:
    """The parent, and all CPU time in ticks; None: the process has ended."""
    try:
        text = (process / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name is in parentheses, and may have any character in it.
    fields = text.rpartition(")")[2].split()
    return int(fields[_PARENT]), sum(map(int, fields[_TIMES]))


def keep_on(first: int, cpus: Sequence[int]) -> None:
    """Keep all threads of a process and its descendants on these CPUs, and what they start.

    They should start nothing meanwhile. Raises OSError when the kernel refuses.
    """
    moved: set[int] = set()
    # A thread that began while others were moved may have their old CPUs.
    while left := set(_threads(first)) - moved:
        for thread in left:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cpus)
        moved |= left


def _threads(first: int) -> Iterator[int]:
    for pid in tree(first):
        with contextlib.suppress(OSError):
            yield from (int(each.name) for each in (PROC / str(pid) / "task").iterdir())
