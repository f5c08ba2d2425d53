"""The power that this host draws while a command runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vtax.core.runner.repetition import Repetition
from vtax.environments.capabilities import Capability, Link
from vtax.place import energy
from vtax.workloads.base import Metric

WATTS = "host_power_w"


@dataclass(frozen=True, slots=True)
class Power:
    """The sum over what has a counter of energy; no metric where nothing has one."""

    name: ClassVar[str] = "power"
    needs: ClassVar[type[Capability]] = Link

    root: Path = energy.ROOT

    @contextmanager
    def around(self, repetition: Repetition) -> Iterator[None]:
        with energy.metered(self.root) as drawn:
            yield
        if drawn.watts:
            repetition.metrics += [Metric(WATTS, "W", "lower", sum(drawn.watts.values()))]
