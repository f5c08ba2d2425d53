"""Several nodes as one machine: each has an agent, and a repetition runs on one of them, or on all.

All repetitions of a round run on the same node, whichever environment they belong to, so that a
node is a block of the experiment: what is peculiar to it falls out of the round's ratios. With
Open MPI (`mpi_hosts`) each repetition runs on all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from vtax.core.clocks import Skew
from vtax.environments.agent import OUTPUT_LIMIT_BYTES, Finished
from vtax.environments.base import MachineLike
from vtax.environments.capabilities import C, Capability, Files, Nodes
from vtax.environments.machine import Machine, MachineSource
from vtax.environments.machine_command import MachineCommand
from vtax.environments.mpi_hosts import MpiHosts, from_beside
from vtax.environments.remote_machine import RemoteMachine

_KEY_FACTS = (("cpu", "model"), ("cpu", "microcode"), ("kernel", "release"), ("memory", "total"))
"""Facts that make nodes unlike."""


class NodesMachine(MachineLike):
    """Machines of the same environment, by the names of their nodes; at least one.

    `known`: facts of all together; `ending`: closes the machines, and what they stand on; `mpi`:
    runs each command on all of them.
    """

    def __init__(
        self,
        machines: Mapping[str, Machine],
        known: Mapping[str, Any],
        ending: ExitStack,
        mpi: MpiHosts | None = None,
    ) -> None:
        self._machines, self._known = machines, known
        self._ending, self._mpi = ending, mpi
        self._names = tuple(machines)
        self._entered: set[str] = set()
        self.output_limit_bytes = OUTPUT_LIMIT_BYTES
        self.boot_s = sum(each.boot_s for each in machines.values())
        self._take(self._names[0])
        if mpi is not None:
            launch = self._current.launch
            self.launch = replace(launch, notes=(*launch.notes, *self._notes()))

    def _take(self, name: str) -> None:
        self._name, self._current = name, self._machines[name]
        self.launch, self.hello = self._current.launch, self._current.hello
        self._know()

    def _know(self) -> None:
        self.facts = {**self._current.facts, **self._known}

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
        for each in self._machines.values():
            each.output_limit_bytes = self.output_limit_bytes
        return (self._mpi or self._current).execute(command)

    def offer(self, wanted: type[C]) -> C | None:
        if self._mpi is not None:
            return self._current.offer(wanted) if wanted is Files else None
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


@dataclass(frozen=True, slots=True)
class Part:
    """A machine on which commands run together with others."""

    name: str
    slots: int
    """Ranks that it takes."""
    source: Callable[[str | None], MachineSource]
    """How to start it, given where its folder has to be found, too."""


def together(
    parts: Sequence[Part],
    watcher: MachineSource,
    work: Path,
    pushed: Sequence[Path],
    known: Mapping[str, Any],
    ending: ExitStack,
) -> NodesMachine:
    """Start machines on all of which each command runs by Open MPI.

    `watcher`: a second agent on the first; `known` and `ending` as in `NodesMachine`.
    """
    machines, folders, also = dict[str, Machine](), list[Path](), None
    for number, part in enumerate(parts):
        folders.append(work.with_name(f"{work.name}-{number}") if number else work)
        folders[-1].mkdir(mode=0o700, exist_ok=True)
        machines[part.name] = RemoteMachine(part.source(also), folders[-1], (), pushed)
        ending.callback(machines[part.name].close)
        also = also or str(machines[part.name].launch.work_inside.parent)
    beside = RemoteMachine(watcher, work, (), ())
    ending.callback(beside.close)
    take = from_beside(beside, machines[parts[0].name])
    hosts = MpiHosts(machines, folders, [part.slots for part in parts], take)
    mpi = ending.enter_context(closing(hosts))
    return NodesMachine(machines, known, ending.pop_all(), mpi)


def _fact(facts: Mapping[str, Any], group: str, name: str) -> str:
    found = facts.get(group)
    return str(found.get(name)) if isinstance(found, Mapping) else "unknown"
