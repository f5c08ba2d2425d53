"""What a repetition costs this host: the CPU time of all processes of the machine, as a metric.

A guest's program is not alone: its virtual machine monitor emulates devices, Sentry and gofer serve
calls, a switch and vhost move packets. Their CPU time is in no clock of the guest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vtax.core.errors import VtaxError
from vtax.core.runner.repetition import Repetition
from vtax.environments.capabilities import Capability, RecordOutside
from vtax.workloads.base import Metric

PROC = Path("/proc")
NAME = "host_cpu_s"
_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _TIMES = 1, slice(11, 15)
"""Fields of /proc/PID/stat behind the name (proc_pid_stat(5)): ppid; utime, stime, cutime,
cstime."""


@dataclass(frozen=True, slots=True)
class HostCpu:
    """CPU time of the machine's processes on this host: guest, monitor and service threads."""

    name: ClassVar[str] = "host-cpu"

    @property
    def needs(self) -> type[Capability]:
        return RecordOutside

    @contextmanager
    def around(self, repetition: Repetition) -> Iterator[None]:
        outside = repetition.machine.offer(RecordOutside)
        own = outside.target.get("processes") if outside and outside.host is None else None
        if outside is not None and own is None:
            # What is inside an emulated host has no CPU time of this one.
            yield
            return
        if own is None:
            raise VtaxError("the machine has no process on this host")
        before = sum(map(cpu_s, own))
        yield
        repetition.metrics.append(
            Metric(NAME, "s", "lower", max(0.0, sum(map(cpu_s, own)) - before))
        )


def cpu_s(first: int, proc: Path = PROC) -> float:
    """Seconds of CPU time of a process, its descendants, and those of them that have ended.

    The time of a process that ended is its parent's, as `cutime` and `cstime`.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit() and (found := _stat(entry)) is not None:
            parents[int(entry.name)], ticks[int(entry.name)] = found
    ours = {first}
    # A child may have a lower number than its parent: look until nothing is added.
    while added := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= added
    return sum(ticks.get(pid, 0) for pid in ours) / _TICKS


def _stat(process: Path) -> tuple[int, int] | None:
    """The parent, and all CPU time in ticks; None: the process has ended."""
    try:
        text = (process / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name is in parentheses, and may have any character in it.
    fields = text.rpartition(")")[2].split()
    return int(fields[_PARENT]), sum(map(int, fields[_TIMES]))
