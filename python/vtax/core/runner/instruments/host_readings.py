"""What a guest costs its host, read on the host, as metrics beside those of the workload."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from vtax.core.errors import VtaxError
from vtax.core.runner.repetition import Repetition
from vtax.environments import host_reading
from vtax.environments.capabilities import Capability, HostReadings


@dataclass(frozen=True, slots=True)
class HostSide:
    """The guest's host before and after: CPU time, steal time, service threads, KVM's counters."""

    name: ClassVar[str] = "host-side"

    @property
    def needs(self) -> type[Capability]:
        return HostReadings

    @contextmanager
    def around(self, repetition: Repetition) -> Iterator[None]:
        host = repetition.machine.offer(HostReadings)
        if host is None:
            raise VtaxError("the machine's own host cannot be read")
        before = host.read()
        yield
        own_s = repetition.finished[0].outcome.wall_s
        found, absent = host_reading.metrics(before, host.read(), own_s)
        repetition.metrics += found
        repetition.absent += absent
