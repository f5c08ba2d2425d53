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
from vtax.environments.host_reading import HOST_CPU
from vtax.environments.process_tree import PROC, tree
from vtax.workloads.base import Metric

_TICKS = os.sysconf("SC_CLK_TCK")


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
            Metric(HOST_CPU, "s", "lower", max(0.0, sum(map(cpu_s, own)) - before))
        )


def cpu_s(first: int, proc: Path = PROC) -> float:
    """Seconds of CPU time of a process, its descendants, and those of them that have ended.

    The time of a process that ended is its parent's, as `cutime` and `cstime`.
    """
    return sum(tree(first, proc).values()) / _TICKS
