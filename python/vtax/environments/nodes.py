"""Several nodes as one machine: each has an agent, and a repetition runs on one of them.

All repetitions of a round run on the same node, whichever environment they belong to, so that a
node is a block of the experiment: what is peculiar to it falls out of the round's ratios.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

from vtax.core.clocks import Skew
from vtax.environments.agent import OUTPUT_LIMIT_BYTES, Finished
from vtax.environments.base import MachineLike
from vtax.environments.capabilities import C, Capability, Nodes
from vtax.environments.machine import Machine
from vtax.environments.machine_command import MachineCommand

_KEY_FACTS = (("cpu", "model"), ("cpu", "microcode"), ("kernel", "release"), ("memory", "total"))
"""Facts that make nodes unlike."""


class NodesMachine(MachineLike):
    """Machines of the same environment, by the names of their nodes; at least one.

    `job`: what the scheduler knows of the allocation; `ending`: closes the machines, and what they
    stand on.
    """

    def __init__(
        self, machines: Mapping[str, Machine], job: Mapping[str, str], ending: ExitStack
    ) -> None:
        self._machines = machines
        self._ending = ending
        self._names = tuple(machines)
        self._job = {**job, "nodes": list(self._names)}
        self._entered: set[str] = set()
        self.output_limit_bytes = OUTPUT_LIMIT_BYTES
        self.boot_s = sum(each.boot_s for each in machines.values())
        self._take(self._names[0])

    def _take(self, name: str) -> None:
        self._name, self._current = name, self._machines[name]
        self.launch, self.hello = self._current.launch, self._current.hello
        self._know()

    def _know(self) -> None:
        self.facts = {**self._current.facts, "slurm": self._job}

    def _notes(self) -> Sequence[str]:
        """How the nodes differ, in sentences."""
        found = []
        for group, name in _KEY_FACTS:
            values = [_fact(each.facts, group, name) for each in self._machines.values()]
            if len(set(values)) > 1:
                which = ", ".join(f"{n} {v}" for n, v in zip(self._names, values, strict=True))
                found.append(f"The nodes differ in {group} {name}: {which}.")
        return found

    def execute(self, command: MachineCommand) -> Finished:
        self._current.output_limit_bytes = self.output_limit_bytes
        return self._current.execute(command)

    def offer(self, wanted: type[C]) -> C | None:
        own: Capability = Nodes(self._turn, lambda: self._name, self._notes)
        return own if isinstance(own, wanted) else self._current.offer(wanted)

    def refresh_facts(self) -> None:
        self._current.refresh_facts()
        self._know()

    def clock_skew(self) -> Skew:
        return self._current.clock_skew()

    def close(self) -> None:
        self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _turn(self, own_round: int) -> bool:
        """Make the node of a round current; return whether nothing has run on it yet."""
        self._take(self._names[own_round % len(self._names)])
        new = self._name not in self._entered
        self._entered.add(self._name)
        return new


def _fact(facts: Mapping[str, Any], group: str, name: str) -> str:
    found = facts.get(group)
    return str(found.get(name)) if isinstance(found, Mapping) else "unknown"
