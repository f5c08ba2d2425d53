"""Recording for the study: every workload in every environment, and with and without a recorder."""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
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
        places = [] if wanted == "overhead" else _places(plan, counted)
        runs = plan.overhead_repetitions if wanted in (None, "overhead") else 0
        per_place = len(plan.workloads) * plan.repetitions
        total = len(places) * per_place + runs * len(plan.workloads) * (len(SETTINGS) + 1)
        shown = _Shown(total, progress)
        for place in places:
            _record_all(place, plan, options.seed, Path(folder), found, shown)
        if runs:
            _measure_overheads(plan, runs, options.seed, Path(folder), found, shown)
    return Data(found.recordings, found.absent, found.left_out, pl.DataFrame(found.overheads))


@dataclass(frozen=True, slots=True)
class _Place:
    """An environment and how many copies of a workload each of its guests gets."""

    name: str
    spec: str
    copies: int
    options: RecordOptions


def _places(plan: Plan, counted: Sequence[str]) -> list[_Place]:
    """`counted`: hardware events of table II that this machine has; the lab's has none."""
    record = RecordOptions(EVERY, EVENTS)
    here = RecordOptions(EVERY, ",".join([EVENTS, *counted]))
    places = [
        _Place(NATIVE, SPECS[NATIVE], COPIES, here),
        _Place(UML, SPECS[UML], COPIES, here),
    ]
    for guests in plan.guests:
        name = GUESTS[guests]
        places.append(_Place(name, SPECS[name], COPIES // guests, record))
    return places


def _require_recording(folder: Path) -> None:
    """Fail before anything boots where this machine cannot record."""
    with Recorder(RecordOptions(EVERY, "sched").arguments(), folder / "probe") as recorder:
        recorder.ready()
        recorder.finish()


def _record_all(
    place: _Place, plan: Plan, seed: int, folder: Path, found: _Found, shown: _Shown
) -> None:
    order = [work for work in plan.workloads for _ in range(plan.repetitions)]
    random.Random(f"{seed} {place.name}").shuffle(order)
    own: dict[str, list[Recording]] = {work.name: [] for work in plan.workloads}
    outs = {folder / f"{place.name}-{number}": work for number, work in enumerate(order)}
    try:
        environment, work_folder = _prepared(place.spec, folder, place.name)
        variant = Variant(place.name, environment, work_folder, (Recorded(place.options),))
        steps = [
            Step(
                place.name,
                number,
                _command(environment, work, ("--seconds", str(plan.seconds)), place.copies),
                f"{work.name}-{number}",
                out,
            )
            for number, (out, work) in enumerate(outs.items())
        ]
        keeper = _Recordings(place.name, outs, own)
        Runner(Steps((variant,), steps, variables(), everywhere=True), keeper, shown).run()
    except VtaxError as error:
        found.left_out[place.name] = str(error)
    kept = {name: each for name, each in own.items() if each}
    if kept:
        found.recordings[place.name] = kept


class _Successful(Keeper):
    """Every copy of a workload must end well."""

    def read(self, this: Repetition) -> None:
        codes = [each.outcome.exit_code for each in this.finished]
        if bad := [code for code in codes if code != 0]:
            raise VtaxError(f"{this.folder} ended with code {bad[0]} ({this.label})")


@dataclass(slots=True)
class _Recordings(_Successful):
    """Keeps recordings by workload."""

    place: str
    outs: Mapping[Path, Work]
    own: Mapping[str, list[Recording]]

    def done(self, done: Done) -> None:
        out = done.step.out
        self.own[self.outs[out].name].append(load(out, self.place))


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
    recorders = {each.every: (Recorded(RecordOptions(each.every, EVENTS)),) for each in SETTINGS}
    variants = [
        Variant(BARE, environment, work_folder),
        *(Variant(every, environment, work_folder, each) for every, each in recorders.items()),
    ]
    steps, works = [], {}
    for number in range(runs):
        for work in plan.workloads:
            count = max(1, round(work.count * plan.share))
            command = _command(environment, work, ("--count", str(count)), 1)
            settings = [BARE, *recorders]
            shuffled.shuffle(settings)
            for every in settings:
                name = f"{work.name}-{every}-{number}"
                steps.append(Step(every, number, command, name, folder / f"out-{name}"))
                works[name] = work.name
    Runner(Steps(variants, steps, variables()), _Overheads(works, found), shown).run()


@dataclass(slots=True)
class _Overheads(_Successful):
    """Keeps a row of times for each repetition."""

    works: Mapping[str, str]
    found: _Found

    def done(self, done: Done) -> None:
        step, outcome = done.step, done.repetition.finished[0].outcome
        record: Mapping[str, Any] = {"rows": 0, "lost": 0}
        if step.variant != BARE:
            record = summary(step.out) or {}
        self.found.overheads.append(
            {
                "workload": self.works[step.folder],
                "setting": "" if step.variant == BARE else step.variant,
                "repetition": step.repetition,
                "rows": record.get("rows"),
                "lost": record.get("lost"),
                "cpu_s": outcome.cpu_s,
                "wall_s": outcome.wall_s,
            }
        )
