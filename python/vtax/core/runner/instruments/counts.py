"""Instructions and cycles of the whole program, counted by the CPU, as metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from vtax.core.errors import VtaxError
from vtax.core.runner.repetition import Repetition
from vtax.environments.capabilities import Capability, CountPrograms
from vtax.workloads.base import Metric


@dataclass(frozen=True, slots=True)
class Counts:
    """Instructions retired and cycles of the command and all that it starts, from its exec on.

    They are counted in user space and in the kernel; instructions in user space alone too. A count
    is absent where the machine has no counter for it; without any counter the repetition fails."""

    name: ClassVar[str] = "counts"

    @property
    def needs(self) -> type[Capability]:
        return CountPrograms

    @contextmanager
    def around(self, repetition: Repetition) -> Iterator[None]:
        counter = repetition.machine.offer(CountPrograms)
        if counter is None:
            raise VtaxError("the machine cannot count a program's instructions")
        counter.switch(True)
        try:
            yield
        finally:
            counter.switch(False)
        for ended in repetition.finished:
            found = {
                "instructions": ended.outcome.instructions,
                "instructions_user": ended.outcome.instructions_user,
                "cycles": ended.outcome.cycles,
            }
            if all(count is None for count in found.values()):
                raise VtaxError(_why_none(repetition.machine.facts), "leave out --with counts")
            repetition.metrics += [
                Metric(name, "1", "lower", float(count))
                for name, count in found.items()
                if count is not None
            ]


def _why_none(facts: Mapping[str, Any]) -> str:
    pmu = facts["pmu"]
    if pmu["present"]:
        return "neither instructions nor cycles were counted for the whole time of the program"
    return f"the machine counts neither instructions nor cycles: {pmu['reason']}"
