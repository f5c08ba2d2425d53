"""`audit`: what each environment's clocks are and do, measured inside and from the host."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtax.analysis.audit import Observed, Timed
from vtax.clocks import Skew
from vtax.environments.base import Environment, MachineLike
from vtax.errors import VtaxError
from vtax.runner.repetition import Repetition
from vtax.runner.runner import Done, Keeper, Listener, Plan, Runner, Starter, Step, Variant, boot
from vtax.workloads.base import Command, tail

OUTPUT_BYTES = 1 << 20
TIMEOUT_S = 120.0
SPIN = "spin"
CLOCKS = "clocks"


@dataclass(frozen=True, slots=True)
class Depth:
    """How long an audit looks."""

    noise_s: float
    durations_s: Sequence[float]
    """Of the runs whose CPU time is held against their wall time."""
    runs: int
    """Of each duration."""

    @property
    def steps(self) -> int:
        """In each environment."""
        return 1 + self.runs * len(self.durations_s)


FULL = Depth(noise_s=10.0, durations_s=(0.001, 0.01, 0.1, 1.0), runs=10)
QUICK = Depth(noise_s=2.0, durations_s=(0.01, 0.1), runs=5)


def audit(
    environments: Mapping[str, Environment],
    variables: Mapping[str, str],
    depth: Depth,
    listener: Listener,
    start: Starter = boot,
) -> Mapping[str, Observed]:
    """Look at each environment by its label.

    Raises VtaxError when one does not come up, or cannot run vtax-agent.
    """
    with tempfile.TemporaryDirectory(prefix="vtax-audit-") as name:
        variants, steps = [], []
        for number, (label, environment) in enumerate(environments.items()):
            work = Path(name) / str(number)
            work.mkdir(mode=0o700)
            variants.append(Variant(label, environment, work))
            steps += _steps(label, environment, depth, Path(name) / f"{number}-out")
        keeper = _Keeper({label: _Seen() for label in environments}, depth)
        Runner(Plan(variants, steps, variables, matched=True), keeper, listener, start).run()
        return {label: keeper.observed(label) for label in environments}


def _steps(label: str, environment: Environment, depth: Depth, out: Path) -> list[Step]:
    agent = environment.agent_inside()
    look = Command((agent, "clocks", "--seconds", str(depth.noise_s)), timeout_s=TIMEOUT_S)
    steps = [Step(label, 0, look, CLOCKS, out)]
    for run in range(depth.runs):
        for duration in depth.durations_s:
            argv = (agent, "workload", "gzip-like", "--seconds", str(duration), "--mem", "1M")
            command = Command(argv, timeout_s=TIMEOUT_S)
            steps.append(Step(label, len(steps), command, f"{SPIN}-{run}-{duration}", out))
    return steps


@dataclass(slots=True)
class _Seen:
    clocks: Mapping[str, Any] = field(default_factory=dict)
    skews: list[tuple[float, Skew]] = field(default_factory=list)
    """Host time, and how far the machine's clock was from it."""
    timed: list[Timed] = field(default_factory=list)


@dataclass(slots=True)
class _Keeper(Keeper):
    seen: Mapping[str, _Seen]
    depth: Depth

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        self._look(variant.label, machine)

    def read(self, this: Repetition) -> None:
        outcome = this.finished[0].outcome
        if outcome.exit_code != 0:
            said = tail(this.exchange.read_text("stderr", OUTPUT_BYTES)) or "it says nothing"
            raise VtaxError(f"{this.label}: {Path(this.argv[0]).name} {this.argv[1]}: {said}")

    def done(self, done: Done) -> None:
        this, own = done.repetition, self.seen[done.step.variant]
        if done.step.folder == CLOCKS:
            own.clocks = _parsed(this)
        else:
            asked = float(done.step.folder.rpartition("-")[2])
            outcome = this.finished[0].outcome
            own.timed.append(Timed(asked, outcome.wall_s, outcome.cpu_s))
        if done.step.repetition == self.depth.steps - 1:
            self._look(done.step.variant, this.machine)

    def observed(self, label: str) -> Observed:
        own = self.seen[label]
        return Observed(own.clocks, tuple(own.skews), tuple(own.timed))

    def _look(self, label: str, machine: MachineLike) -> None:
        self.seen[label].skews.append((time.monotonic(), machine.clock_skew()))


def _parsed(this: Repetition) -> Mapping[str, Any]:
    text = this.exchange.read_text("stdout", OUTPUT_BYTES)
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise VtaxError(f"{this.label}: vtax-agent clocks printed no JSON object: {text[:80]!r}")
    return found
