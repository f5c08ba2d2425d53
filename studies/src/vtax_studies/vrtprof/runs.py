"""What all parts of the study share: progress, findings, and steps that must succeed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtax.core.errors import VtaxError
from vtax.core.recorder.intervals import Recording
from vtax.core.recorder.recorder import summary
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Done, Keeper, Plan, Runner, Step, Variant
from vtax.environments import Environment
from vtax.workloads import builtin
from vtax.workloads.base import Command
from vtax.workloads.variables import base_environment
from vtax_studies.measuring import Counting, ready
from vtax_studies.vrtprof.setup import Work

TIMEOUT_S = 300.0
BARE = "without"
"""The variant without a recorder."""


@dataclass(slots=True)
class Found:
    """What has been measured so far."""

    recordings: dict[str, dict[str, list[Recording]]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    raw: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    overheads: list[dict[str, Any]] = field(default_factory=list)
    emulated: list[dict[str, Any]] = field(default_factory=list)
    """Overheads in the emulated machine, by its clock."""


@dataclass(frozen=True, slots=True)
class _Keeper(Keeper):
    """Hands finished steps on; every copy of a workload must succeed."""

    keep: Callable[[Done], None]
    missed: Callable[[Step, VtaxError], None] | None

    def read(self, this: Repetition) -> None:
        codes = [each.outcome.exit_code for each in this.finished]
        if bad := [code for code in codes if code != 0]:
            raise VtaxError(f"{this.folder} ended with code {bad[0]} ({this.label})")

    def done(self, done: Done) -> None:
        self.keep(done)

    def failed(self, step: Step, error: VtaxError) -> None:
        if self.missed is None:
            raise error
        self.missed(step, error)


def run(
    variants: Sequence[Variant],
    steps: Sequence[Step],
    keep: Callable[[Done], None],
    shown: Counting,
    *,
    warm_up: bool = False,
    missed: Callable[[Step, VtaxError], None] | None = None,
) -> None:
    """Run the steps; `keep` gets each of them, `missed` each that failed. Raises VtaxError when a
    step fails and there is no `missed`, or it raises."""
    plan = Plan(variants, steps, base_environment(os.environ), warm_up=warm_up, everywhere=True)
    Runner(plan, _Keeper(keep, missed), shown).run()


def counted(count: int, share: float) -> tuple[str, str]:
    """The extent of a share of a workload's count."""
    return "--count", str(max(1, round(count * share)))


def prepared(spec: str, folder: Path, name: str) -> tuple[Environment, Path]:
    """The environment, and a new folder for its machine. Raises VtaxError where it cannot be
    made."""
    environment = ready(spec)
    work = folder / "work" / name.replace(" ", "-")
    work.mkdir(mode=0o700, parents=True)
    return environment, work


def command(environment: Environment, work: Work, extent: Sequence[str], copies: int) -> Command:
    """`copies` of a workload at once; `extent`: the options that say how much it does."""
    if work.line:
        line = builtin.several(["sh", "-c", work.line, "sh", extent[-1]], copies)
        return Command(tuple(line), files=work.files, timeout_s=TIMEOUT_S)
    argv = [work.name, *extent, "--json"]
    line = builtin.line(argv, environment.agent_inside())
    return Command(tuple(builtin.several(line, copies)), timeout_s=TIMEOUT_S)


def interleaved(
    settings: Sequence[str],
    commands: Mapping[str, Command],
    repetitions: int,
    seed: str,
    folder: Path,
) -> tuple[list[Step], dict[str, str]]:
    """Steps: each repetition has every setting once, in a random order of its own.

    `settings`: labels of variants; `commands`: by workload. The second result is the workload of
    each step, by its folder.
    """
    shuffled = random.Random(seed)
    steps, works = [], {}
    for number in range(repetitions):
        for work, one in commands.items():
            order = list(settings)
            shuffled.shuffle(order)
            for setting in order:
                name = f"{work}-{setting}-{number}"
                steps.append(Step(setting, number, one, name, folder / f"out-{name}"))
                works[name] = work
    return steps, works


def rows_of(done: Done, works: Mapping[str, str]) -> dict[str, Any]:
    """A repetition's settings, and how many rows its recorder made and lost."""
    step = done.step
    bare = step.variant == BARE
    record = {"rows": 0, "lost": 0} if bare else summary(step.out) or {}
    return {
        "workload": works[step.folder],
        "setting": "" if bare else step.variant,
        "repetition": step.repetition,
        "rows": record.get("rows"),
        "lost": record.get("lost"),
    }


def by_work(works: Sequence[Work], own: dict[str, list[Recording]]) -> dict[str, list[Recording]]:
    """Recordings of each workload in the order of the plan."""
    return {work.name: own[work.name] for work in works if work.name in own}
