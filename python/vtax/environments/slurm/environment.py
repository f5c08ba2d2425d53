"""`slurm:PARTITION`: nodes that Slurm allocates for the whole campaign."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from vtax.core import binaries, slurm
from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import MisuseError
from vtax.core.units import parse_duration, plural
from vtax.environments import elsewhere, mpi_hosts
from vtax.environments.base import Allocation, Launch, MachineLike, register
from vtax.environments.capabilities import Capability, Files, Nodes, RecordInside
from vtax.environments.machine import Machine, MachineNetwork
from vtax.environments.nodes import NodesMachine, Part, together
from vtax.environments.option_values import (
    ON_OFF,
    choice,
    whole_number,
)
from vtax.environments.remote_machine import (
    RemoteMachine,
    said_by_script,
)
from vtax.environments.slurm import allocation
from vtax.environments.slurm.allocation import Asked
from vtax.workloads.base import MachineShape

MOST_NODES = 64
"""Nodes that a campaign visits in turn. With more, rounds are too few for each."""
_OPTIONS = ("account", "qos", "constraint", "reservation", "nodelist")
_VALUE = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.&|!:@\[\]-]*")
"""What Slurm calls things, and a constraint's signs; no blank, and no comma, which parts keys."""


class SlurmClient(Check):
    """Nodes of a cluster are reached by Slurm's own programs."""

    name = "slurm"
    purpose = "environment slurm"

    def find(self, host: Host) -> Finding:
        program = host.which("salloc")
        if program is None:
            return self.impossible("this machine does not belong to a cluster: no salloc")
        answer = host.run(["sinfo", "--noheader", "--format=%P %D %t"])
        if answer.code != 0:
            return self.degraded(
                f"{program} is there, but Slurm does not answer: {answer.last_error}",
                "look at: scontrol ping",
            )
        rows = [line.split() for line in answer.stdout.splitlines()]
        found = [f"{row[0]} {row[1]} {row[2]}" for row in rows if len(row) == 3]
        return self.ok(f"partitions and nodes: {', '.join(found) or 'none'}")


@register
@dataclass(frozen=True, slots=True)
class Slurm(elsewhere.Elsewhere):
    """Nodes of a cluster that Slurm allocates; a round runs on one of them."""

    name: ClassVar[str] = "slurm"
    keys: ClassVar[Mapping[str, str]] = {
        "partition": "partition; stands first, without partition= (default: Slurm's)",
        "nodes": "number of nodes, which rounds visit in turn (default: 1)",
        **mpi_hosts.KEYS,
        "time": "how long the nodes are asked for, e.g. 2h (default: the partition's)",
        "exclusive": "on or off: whether the nodes are ours alone (default: on)",
        "cpus": "CPUs of a node to run on (default: as many as the smallest node has)",
        **elsewhere.KEYS,
        **{name: f"salloc's --{name} (default: none)" for name in _OPTIONS},
    }
    target_key: ClassVar[str] = "partition"
    examples: ClassVar[Sequence[str]] = (
        "slurm",
        "slurm:batch,nodes=4,time=2h",
        "slurm:batch,cpus=8",
        "slurm:batch,nodes=2,mpi=on",
    )
    offers: ClassVar[Mapping[type[Capability], str]] = {
        Files: "slurm",
        RecordInside: "slurm",
        Nodes: "slurm",
    }
    checks: ClassVar[Sequence[type[Check]]] = (SlurmClient,)

    asked: Asked
    mpi: bool = False

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        for key in ("partition", *_OPTIONS):
            if key in options and not _VALUE.fullmatch(options[key]):
                raise MisuseError(f"slurm: {key}={options[key]} is not a name that Slurm has")
        asked = Asked(
            whole_number("slurm", "nodes", options.get("nodes", "1"), 1, MOST_NODES),
            options.get("partition"),
            parse_duration(options["time"]) if "time" in options else None,
            choice("slurm", "exclusive", options.get("exclusive", "on"), ON_OFF),
            tuple((key, options[key]) for key in _OPTIONS if key in options),
        )
        mpi = mpi_hosts.wanted("slurm", options, asked.nodes)
        return cls(asked, mpi, **elsewhere.limits("slurm", options))

    def shape(self) -> MachineShape:
        found = self._smallest()
        if self.cpus is not None and self.cpus > found.cpus:
            raise MisuseError(f"slurm: cpus={self.cpus}, but a node has {found.cpus} CPUs")
        nodes = self.asked.nodes if self.mpi else 1
        memory = self.memory_bytes or found.memory_bytes
        return MachineShape(nodes * (self.cpus or found.cpus), nodes * memory)

    def offered(self) -> frozenset[type[Capability]]:
        return frozenset({Files}) if self.mpi else frozenset(self.offers)

    def boot_remedy(self) -> str:
        return "try: srun --ntasks=1 true"

    def check(self) -> None:
        binaries.find("vtax-agent")
        self.shape()

    def session(self) -> AbstractContextManager[None]:
        return allocation.using(self.asked)

    def start(self, work: Path, cpus: Sequence[int]) -> MachineLike:
        with ExitStack() as stack:
            stack.enter_context(self.session())
            granted = allocation.granted(self.asked)
            known = {"slurm": {**slurm.job_facts(granted.job), "nodes": list(granted.nodes)}}
            if self.mpi:
                one = replace(self, mpi=False)
                parts = [
                    Part(node, one.shape().cpus, partial(_node, one, granted.job, node))
                    for node in granted.nodes
                ]
                return together(parts, parts[0].source(None), work, self.pushed, known, stack)
            machines = {}
            for node in granted.nodes:
                source = Node(self, granted.job, node)
                machines[node] = RemoteMachine(source, work, cpus, self.pushed)
                stack.callback(machines[node].close)
            return NodesMachine(machines, known, stack.pop_all())

    def description(self, facts: Mapping[str, Any]) -> str:
        job = facts.get("slurm", {})
        names = job.get("nodes", ())
        where = (
            f"{plural(len(names), 'node')} of Slurm ({', '.join(names)}; job {job.get('JobId')})"
        )
        ranks = ", ranks on all" if self.mpi else ""
        return f"{where}{ranks}, {self.system_said(facts)}"

    def _smallest(self) -> slurm.NodeSize:
        return slurm.own_node() or slurm.smallest_node(self.asked.partition)


@dataclass(frozen=True, slots=True)
class Node:
    """A node of an allocation, as the source of a machine: a job step with an agent in it."""

    name: ClassVar[str] = "slurm"
    cleans_up: ClassVar[bool] = True

    environment: Slurm
    job: str
    node: str

    def emulates_clock(self) -> bool:
        return False

    def launch(self, allocation: Allocation) -> Launch:
        cpus = self.environment.shape().cpus
        steps, launch = self.environment.launched(cpus)
        line = ["srun", f"--jobid={self.job}", "--overlap", "--nodes=1", "--ntasks=1"]
        line += [f"--nodelist={self.node}", f"--cpus-per-task={cpus}", "--mem=0"]
        line += ["--chdir=/", "--export=NONE", "--unbuffered", "/bin/sh", "-c"]
        return replace(
            launch, argv=[*line, steps], acknowledged=True, environment=slurm.variables()
        )

    def own_network(self, cpus: Sequence[int]) -> MachineNetwork | None:
        return None

    def capabilities(self, machine: Machine) -> Sequence[Capability]:
        return elsewhere.offered(machine)

    def explain_end(self, code: int, console: Sequence[str]) -> tuple[str, str | None] | None:
        return said_by_script(console) or slurm.explain(console)


def _node(environment: Slurm, job: str, node: str, also: str | None) -> Node:
    return Node(replace(environment, also=also), job, node)
