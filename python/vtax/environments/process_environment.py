"""Environments whose machine is one process with one agent in it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from vtax.environments.base import Allocation, Environment, Launch, MachineLike
from vtax.environments.capabilities import Capability
from vtax.environments.machine import Machine, MachineNetwork


class ProcessEnvironment(Environment):
    """An environment whose machine is one process with one agent in it."""

    def explain_end(self, code: int, console: Sequence[str]) -> tuple[str, str | None] | None:
        """Why the process ended, and the remedy; None: its console says that best.

        `code` is its exit code, negative when a signal ended it.
        """
        return None

    @abstractmethod
    def launch(self, allocation: Allocation) -> Launch:
        """The command line that starts the machine."""

    def own_network(self, cpus: Sequence[int]) -> MachineNetwork | None:
        """A network for one machine, which closes it; None: the machine has none.

        Its own processes are kept on `cpus`."""
        return None

    def capabilities(self, machine: Machine) -> Sequence[Capability]:
        """The means of a started machine to do what `offered` declares."""
        return ()

    def start(self, work: Path, cpus: Sequence[int]) -> MachineLike:
        return Machine(self, work, cpus)
