"""Recording for the study: every workload in every environment, and with and without a recorder."""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from vtax import binaries, environments
from vtax.analysis.intervals import Recording, load
from vtax.environments.base import Environment
from vtax.errors import VtaxError
from vtax.formats.exchange import Exchange
from vtax.record import workload
from vtax.record.environment import Bench, started
from vtax.record.options import Options as RecordOptions
from vtax.record.recorder import PROGRAM, Recorder, summary
from vtax.studies.model import Options, Progress
from vtax.studies.vrtprof.data import Data
from vtax.studies.vrtprof.setup import (
    COPIES,
    EVENTS,
    EVERY,
    FULL,
    GUEST_MEMORY_MIB,
    GUESTS,
    NATIVE,
    QUICK,
    SETTINGS,
    TABLE_II,
    UML,
    Plan,
    Work,
)

TIMEOUT_S = 300.0
LIST_TIMEOUT_S = 60.0
SMALL_PATH = {"PATH": "/usr/bin:/bin"}


@dataclass(slots=True)
class _Steps:
    """Counts what is done."""

    total: int
    progress: Progress
    done: int = 0

    def step(self, name: str) -> None:
        self.done += 1
        self.progress(self.done, self.total, name)


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
        steps = _Steps(total, progress)
        for place in places:
            _record_all(place, plan, options.seed, Path(folder), found, steps)
        if runs:
            _measure_overheads(plan, runs, options.seed, Path(folder), found, steps)
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
        _Place(NATIVE, "native:cpus=1", COPIES, here),
        _Place(UML, "uml:mem=1G", COPIES, here),
    ]
    for guests in plan.guests:
        spec = f"lab:guest=builtin,guests={guests},guest_mem={GUEST_MEMORY_MIB // guests}M"
        places.append(_Place(GUESTS[guests], spec, COPIES // guests, record))
    return places


def _require_recording(folder: Path) -> None:
    """Fail before anything boots where this machine cannot record."""
    with Recorder(RecordOptions(EVERY, "sched").arguments(), folder / "probe") as recorder:
        recorder.ready()
        recorder.finish()


def _record_all(
    place: _Place, plan: Plan, seed: int, folder: Path, found: _Found, steps: _Steps
) -> None:
    order = [work for work in plan.workloads for _ in range(plan.repetitions)]
    random.Random(f"{seed} {place.name}").shuffle(order)
    own: dict[str, list[Recording]] = {work.name: [] for work in plan.workloads}
    try:
        environment = environments.build(place.spec)
        with _bench(environment, folder / "work" / place.name.replace(" ", "-")) as bench:
            for number, work in enumerate(order):
                steps.step(f"{work.name}, {place.name}")
                out = folder / f"{place.name}-{number}"
                own[work.name].append(_record(bench, place, work, plan, out, number))
    except VtaxError as error:
        found.left_out[place.name] = str(error)
    kept = {name: each for name, each in own.items() if each}
    if kept:
        found.recordings[place.name] = kept


def _record(
    bench: Bench, place: _Place, work: Work, plan: Plan, out: Path, number: int
) -> Recording:
    argv = [work.name, *work.options, "--seconds", str(plan.seconds), "--json"]
    done = bench.record(
        argv, place.options, out, name=f"r{number}", copies=place.copies, timeout_s=TIMEOUT_S
    )
    _require_success(work, [outcome.exit_code for outcome in done.outcomes], place.name)
    return load(out, place.name)


def _require_success(work: Work, codes: Sequence[int | None], where: str) -> None:
    if bad := [code for code in codes if code != 0]:
        raise VtaxError(f"{work.name} ended with code {bad[0]} ({where})")


@contextmanager
def _bench(environment: Environment, work: Path) -> Iterator[Bench]:
    environment.check()
    work.mkdir(mode=0o700, parents=True)
    with started(environment, work) as bench:
        yield bench


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
    plan: Plan, runs: int, seed: int, folder: Path, found: _Found, steps: _Steps
) -> None:
    """Each repetition has every setting once, in a random order of its own."""
    shuffled = random.Random(f"{seed} overheads")
    with _bench(environments.build("native:cpus=1"), folder / "work" / "overhead") as bench:
        for number in range(runs):
            for work in plan.workloads:
                settings = ["", *(each.every for each in SETTINGS)]
                shuffled.shuffle(settings)
                for every in settings:
                    steps.step(f"{work.name}, overhead {every or 'without'}")
                    row = _overhead(bench, work, plan, every, folder, number)
                    found.overheads.append(row)


def _overhead(
    bench: Bench, work: Work, plan: Plan, every: str, folder: Path, number: int
) -> dict[str, Any]:
    count = max(1, round(work.count * plan.share))
    argv = [work.name, *work.options, "--count", str(count), "--json"]
    name = f"{work.name}-{every or 'bare'}-{number}"
    row: dict[str, Any] = {"workload": work.name, "setting": every, "repetition": number}
    if every:
        out = folder / f"out-{name}"
        options = RecordOptions(every, EVENTS)
        outcome = bench.record(argv, options, out, name=name, timeout_s=TIMEOUT_S).outcomes[0]
        record = summary(out) or {}
        row |= {"rows": record.get("rows"), "lost": record.get("lost")}
    else:
        Exchange(bench.work, name).create({})
        line = workload.line(argv)
        outcome = bench.machine.run(line, SMALL_PATH, name, TIMEOUT_S).outcome
        row |= {"rows": 0, "lost": 0}
    _require_success(work, [outcome.exit_code], "overhead")
    return row | {"cpu_s": outcome.cpu_s, "wall_s": outcome.wall_s}
