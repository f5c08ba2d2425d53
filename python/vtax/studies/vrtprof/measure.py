"""Recording for the study: every workload in every environment, and with and without a recorder."""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from vtax import binaries, environments
from vtax.analysis.intervals import Recording, load
from vtax.environments import Environment
from vtax.errors import VtaxError
from vtax.record.options import Options as RecordOptions
from vtax.record.recorder import PROGRAM, Recorder, summary
from vtax.runner.instruments.record import Recording as Recorded
from vtax.runner.recording import variables
from vtax.runner.repetition import Repetition
from vtax.runner.runner import Done, Keeper, Listener, Runner, Step, Variant
from vtax.runner.runner import Plan as Steps
from vtax.studies.model import Options, Progress
from vtax.studies.vrtprof.data import Data
from vtax.studies.vrtprof.setup import (
    COPIES,
    EVENTS,
    EVERY,
    FULL,
    GUESTS,
    NATIVE,
    OVERHEAD_IN,
    QUICK,
    SETTINGS,
    SPECS,
    TABLE_II,
    UML,
    Plan,
    Work,
)
from vtax.workloads import builtin
from vtax.workloads.base import Command

TIMEOUT_S = 300.0
LIST_TIMEOUT_S = 60.0
BARE = "without"
"""The setting without a recorder."""


@dataclass(slots=True)
class _Shown(Listener):
    """Counts what is done."""

    total: int
    progress: Progress
    count: int = 0

    def running(self, label: str, repetition: int) -> None:
        self.count += 1
        self.progress(self.count, self.total, label)


@dataclass(slots=True)
class _Found:
    recordings: dict[str, dict[str, list[Recording]]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    overheads: list[dict[str, Any]] = field(default_factory=list)


def measure(options: Options, progress: Progress) -> Data:
    """All that the options ask for.

    Raises VtaxError when this machine cannot record at all. An environment that does not come up
    is left out, with the reason.
    """
    plan = QUICK if options.quick else FULL
    wanted = options.figure
    found = _Found()
    with tempfile.TemporaryDirectory(prefix="vtax-vrtprof-") as folder:
        _require_recording(Path(folder))
        found.absent, counted = _availability()
        targets = [] if wanted == "overhead" else _targets(plan, counted)
        runs = plan.overhead_repetitions if wanted in (None, "overhead") else 0
        per_target = len(plan.workloads) * plan.repetitions
        total = len(targets) * per_target + runs * len(plan.workloads) * (len(SETTINGS) + 1)
        shown = _Shown(total, progress)
        for target in targets:
            _record_all(target, plan, options.seed, Path(folder), found, shown)
        if runs:
            _measure_overheads(plan, runs, options.seed, Path(folder), found, shown)
    return Data(found.recordings, found.absent, found.left_out, pl.DataFrame(found.overheads))


@dataclass(frozen=True, slots=True)
class _Target:
    """An environment and how many copies of a workload each of its guests gets."""

    name: str
    spec: str
    copies: int
    options: RecordOptions


def _targets(plan: Plan, counted: Sequence[str]) -> list[_Target]:
    """`counted`: hardware events of table II that this machine has; the lab's has none."""
    record = RecordOptions(EVERY, EVENTS)
    here = RecordOptions(EVERY, ",".join([EVENTS, *counted]))
    targets = [
        _Target(NATIVE, SPECS[NATIVE], COPIES, here),
        _Target(UML, SPECS[UML], COPIES, here),
    ]
    for guests in plan.guests:
        name = GUESTS[guests]
        targets.append(_Target(name, SPECS[name], COPIES // guests, record))
    return targets


def _require_recording(folder: Path) -> None:
    """Fail before anything boots where this machine cannot record."""
    with Recorder(RecordOptions(EVERY, "sched").arguments(), folder / "probe") as recorder:
        recorder.ready()
        recorder.finish()


def _record_all(
    target: _Target, plan: Plan, seed: int, folder: Path, found: _Found, shown: _Shown
) -> None:
    order = [work for work in plan.workloads for _ in range(plan.repetitions)]
    random.Random(f"{seed} {target.name}").shuffle(order)
    own: dict[str, list[Recording]] = {}

    def keep(done: Done) -> None:
        recording = load(done.step.out, target.name)
        own.setdefault(order[done.step.repetition].name, []).append(recording)

    try:
        environment, work_folder = _prepared(target.spec, folder, target.name)
        variant = Variant(target.name, environment, work_folder, (Recorded(target.options),))
        extent = ("--seconds", str(plan.seconds))
        steps = [
            Step(
                target.name,
                number,
                _command(environment, work, extent, target.copies),
                f"{work.name}-{number}",
                folder / f"{target.name}-{number}",
            )
            for number, work in enumerate(order)
        ]
        _run([variant], steps, keep, shown)
    except VtaxError as error:
        found.left_out[target.name] = str(error)
    if own:
        found.recordings[target.name] = {
            work.name: own[work.name] for work in plan.workloads if work.name in own
        }


@dataclass(frozen=True, slots=True)
class _Keeper(Keeper):
    """Hands finished steps on; every copy of a workload must end well."""

    keep: Callable[[Done], None]

    def read(self, this: Repetition) -> None:
        codes = [each.outcome.exit_code for each in this.finished]
        if bad := [code for code in codes if code != 0]:
            raise VtaxError(f"{this.folder} ended with code {bad[0]} ({this.label})")

    def done(self, done: Done) -> None:
        self.keep(done)


def _run(
    variants: Sequence[Variant], steps: Sequence[Step], keep: Callable[[Done], None], shown: _Shown
) -> None:
    Runner(Steps(variants, steps, variables(), everywhere=True), _Keeper(keep), shown).run()


def _prepared(spec: str, folder: Path, name: str) -> tuple[Environment, Path]:
    """The environment, and a new folder for its machine."""
    environment = environments.build(spec)
    environment.check()
    work = folder / "work" / name.replace(" ", "-")
    work.mkdir(mode=0o700, parents=True)
    return environment, work


def _command(environment: Environment, work: Work, extent: Sequence[str], copies: int) -> Command:
    argv = [work.name, *work.options, *extent, "--json"]
    line = builtin.line(argv, environment.agent_inside())
    return Command(tuple(builtin.several(line, copies)), timeout_s=TIMEOUT_S)


def _availability() -> tuple[dict[str, str], list[str]]:
    """Events that this machine does not have, with the reason, and those of table II it has."""
    line = [str(binaries.find(PROGRAM)), "list", "--json"]
    done = subprocess.run(line, capture_output=True, timeout=LIST_TIMEOUT_S, check=False)
    try:
        listed = json.loads(done.stdout)
    except ValueError:
        raise VtaxError("vtax-recorder does not list its events") from None
    absent = {each["name"]: each["reason"] for each in listed if not each["available"]}
    known = {each["name"] for each in listed}
    wanted = [name for event in TABLE_II for name in event.ours if name.startswith("hw.")]
    return absent, [name for name in wanted if name in known and name not in absent]


def _measure_overheads(
    plan: Plan, runs: int, seed: int, folder: Path, found: _Found, shown: _Shown
) -> None:
    """Each repetition has every setting once, in a random order of its own."""
    shuffled = random.Random(f"{seed} overheads")
    environment, work_folder = _prepared(OVERHEAD_IN, folder, "overhead")
    instruments = {BARE: ()} | {
        each.every: (Recorded(RecordOptions(each.every, EVENTS)),) for each in SETTINGS
    }
    variants = [
        Variant(every, environment, work_folder, used) for every, used in instruments.items()
    ]
    steps, works = [], {}
    for number in range(runs):
        for work in plan.workloads:
            count = max(1, round(work.count * plan.share))
            command = _command(environment, work, ("--count", str(count)), 1)
            settings = list(instruments)
            shuffled.shuffle(settings)
            for every in settings:
                name = f"{work.name}-{every}-{number}"
                steps.append(Step(every, number, command, name, folder / f"out-{name}"))
                works[name] = work.name
    _run(variants, steps, lambda done: found.overheads.append(_row(done, works)), shown)


def _row(done: Done, works: Mapping[str, str]) -> dict[str, Any]:
    """The times of a repetition with or without a recorder."""
    step, outcome = done.step, done.repetition.finished[0].outcome
    bare = step.variant == BARE
    record = {"rows": 0, "lost": 0} if bare else summary(step.out) or {}
    return {
        "workload": works[step.folder],
        "setting": "" if bare else step.variant,
        "repetition": step.repetition,
        "rows": record.get("rows"),
        "lost": record.get("lost"),
        "cpu_s": outcome.cpu_s,
        "wall_s": outcome.wall_s,
    }
