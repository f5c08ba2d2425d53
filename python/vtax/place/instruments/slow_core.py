"""A slow core for the service threads of a machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from vtax.core.runner.repetition import Repetition
from vtax.environments.capabilities import Capability, Link
from vtax.place.service_domain import Service, slowed
from vtax.workloads.base import Metric

OBTAINED = "speed_obtained_percent"
LOW = "speed_low_percent"
HIGH = "speed_high_percent"
HONOURED = "speed_honoured"


@dataclass(frozen=True, slots=True)
class SlowCore:
    """The machine's service threads run at a percentage of full speed; the speed is measured.

    At 100 % everything but the speed is the same, e.g. the threads are in a control group.
    """

    name: ClassVar[str] = "slow-core"

    service: Service
    backend: str
    percent: float

    @property
    def needs(self) -> type[Capability]:
        return Link

    @contextmanager
    def around(self, repetition: Repetition) -> Iterator[None]:
        service = self.service
        tids = service.alive()
        with slowed(self.backend, self.percent, tids, service.cpu, service.on) as held:
            yield
        found = {OBTAINED: held.obtained_percent, LOW: held.low, HIGH: held.high}
        repetition.metrics += [
            Metric(name, "%", "higher", value) for name, value in found.items() if value is not None
        ]
        if held.honoured is not None:
            repetition.metrics.append(Metric(HONOURED, "1", "higher", float(held.honoured)))
