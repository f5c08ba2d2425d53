"""The progress of a study that runs steps of the common runner."""

from __future__ import annotations

from dataclasses import dataclass

from vtax.runner.runner import Listener
from vtax_studies.model import Progress


@dataclass(slots=True)
class Counting(Listener):
    """Counts the steps that have begun."""

    total: int
    progress: Progress
    count: int = 0

    def extended(self, steps: int) -> None:
        self.total += steps

    def running(self, label: str, repetition: int) -> None:
        self.count += 1
        self.progress(self.count, self.total, label)
