"""Machines that boot nothing and do what a test says, and the story of what was done to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tested_machines import OUTCOME
from vtax.core.clocks import Skew
from vtax.environments.base import Environment, Launch, MachineLike
from vtax.environments.capabilities import C
from vtax.environments.machine import Finished

Behaviour = Callable[[str, int], None]
"""Called with the environment's folder name and the number of the run in this machine."""


class World:
    """Starts mock machines and keeps the story of what happened to them."""

    def __init__(self, behaviour: Behaviour = lambda _label, _run: None) -> None:
        self.behaviour = behaviour
        self.story: list[str] = []
        self.alive = 0
        self.host_wall_s = 1.01

    def start(self, environment: Environment, work: Path, cpus: Sequence[int]) -> MachineLike:
        self.story.append(f"start {work.name}")
        return Mock(self, work.name, environment)


class Mock:
    def __init__(self, world: World, label: str, environment: Environment) -> None:
        self.world, self.label = world, label
        self.boot_s, self.facts, self.hello = 0.5, {"uptime_s": 1}, {}
        self.launch = Launch(("mock",), Path("/"), 1.0)
        self.runs = 0
        world.alive += 1
        self.open = True

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        timeout_s: float | None = None,
        *,
        workdir: Path | None = None,
    ) -> Finished:
        self.world.story.append(f"{self.label} {folder}")
        self.runs += 1
        self.world.behaviour(self.label, self.runs - 1)
        return Finished(OUTCOME, self.world.host_wall_s, self.world.host_wall_s + 0.01)

    def offer(self, wanted: type[C]) -> C | None:
        return None

    def refresh_facts(self) -> None:
        self.facts = {"uptime_s": 1 + self.runs}

    def clock_skew(self) -> Skew:
        return Skew(0, 1000)

    def close(self) -> None:
        self.world.alive -= self.open
        self.open = False
        self.world.story.append(f"close {self.label}")
