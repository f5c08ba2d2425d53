"""Another machine of the same kind that computes on the same CPUs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.core.runner.runner import Starter
from vtax.environments.base import Environment, MachineLike

FOLDER = "compete"


@dataclass(slots=True)
class Competitor:
    """Competing machines, one for each CPU, so that the measured machine finds no free CPU."""

    environment: Environment
    work: Path
    """Folder for its machines; made when they start."""
    cpus: Sequence[int]
    argv: Sequence[str]
    """A command that computes on one CPU until it is ended."""
    variables: Mapping[str, str]
    start: Starter
    _machines: list[MachineLike] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def enter(self, _beside: MachineLike) -> bool:
        """Start computing, unless it computes already; return whether it was started.

        Raises VtaxError when its machines do not come up.
        """
        if self._machines:
            return False
        for cpu in self.cpus:
            work = self.work / str(cpu)
            work.mkdir(mode=0o700, parents=True)
            Exchange(work, FOLDER).create({})
            self._machines.append(self.start(self.environment, work, [cpu]))
        for machine in self._machines:
            thread = threading.Thread(target=self._compute, args=(machine,), daemon=True)
            self._threads.append(thread)
            thread.start()
        return True

    def close(self) -> None:
        """End its machines; what they compute ends with them."""
        for machine in self._machines:
            machine.close()
        for thread in self._threads:
            thread.join()
        self._machines, self._threads = [], []

    def _compute(self, machine: MachineLike) -> None:
        # The competitor's machine is closed when it has done its part.
        with contextlib.suppress(VtaxError, OSError):
            machine.run(self.argv, self.variables, FOLDER)
