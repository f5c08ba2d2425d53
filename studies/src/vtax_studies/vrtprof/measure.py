"""Recording for the study: every workload in every environment, and with and without a recorder."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from vtax.core import binaries, foreign_json
from vtax.core.errors import VtaxError
from vtax.core.formats.scratch import scratch
from vtax.core.recorder.intervals import Recording, load
from vtax.core.recorder.options import RecordOptions
from vtax.core.recorder.recorder import PROGRAM, Recorder
from vtax.core.runner.instruments.record import Recording as Recorded
from vtax.core.runner.runner import Done, Step, Variant
from vtax.environments.host_facts import facts_here
from vtax_studies.measuring import Counting
from vtax_studies.model import Progress, StudyOptions
from vtax_studies.roles import KVM, PMU, here
from vtax_studies.vrtprof import emulated, programs, raw
from vtax_studies.vrtprof.data import Data, of_domus
from vtax_studies.vrtprof.runs import (
    BARE,
    Found,
    by_work,
    command,
    counted,
    interleaved,
    prepared,
    rows_of,
    run,
)
from vtax_studies.vrtprof.setup import (
    CONTAINER,
    DOMUS,
    EVENTS,
    EVERY,
    EVERY_COUNTED,
    FULL,
    GUESTS,
    HARDWARE,
    LEVELS,
    MANY_COPIES,
    NATIVE,
    OVERHEAD_IN,
    PROGRAMS_IN_KVM,
    QUICK,
    SETTINGS,
    SPECS,
    TABLE_II,
    UML,
    XEN_EVENTS,
    XEN_FIGURE,
    VrtprofPlan,
    Work,
    copies_on,
    guests_spec,
)

LIST_TIMEOUT_S = 60.0


def measure(options: StudyOptions, progress: Progress) -> Data:
    """Measure all that the options ask for.

    Raises VtaxError when this machine cannot record at all. An environment that does not come up
    is left out, with the reason.
    """
    plan = QUICK if options.quick else FULL
    wanted = options.figure
    found = Found()
    with scratch("vrtprof") as folder:
        _require_recording(folder)
        works, missing = programs.present(plan.workloads, folder)
        plan = replace(plan, workloads=works)
        found.left_out |= missing
        found.raw = raw.here(facts_here()["cpu"])
        found.absent, hardware = _availability(found.raw)
        targets = [] if wanted == "overhead" else _targets(plan, hardware, wanted, options.quick)
        repetitions = plan.overhead_repetitions if wanted in (None, "overhead") else 0
        inside = wanted in (None, *emulated.FIGURES)
        total = plan.repetitions * sum(len(target.works) for target in targets)
        total += repetitions * len(plan.workloads) * (len(SETTINGS) + 1)
        shown = Counting(total + (emulated.steps(plan) if inside else 0), progress)
        for target in targets:
            _record_all(target, plan, options.seed, folder, found, shown)
        if repetitions:
            _measure_overheads(plan, repetitions, options.seed, folder, found, shown)
        if inside:
            emulated.measure(plan, options.seed, folder, found, shown)
    return Data(
        found.recordings,
        found.absent,
        pl.DataFrame(found.overheads),
        pl.DataFrame(found.emulated),
        kvm_here=KVM in here().has,
        left_out=found.left_out,
        raw=found.raw,
    )


@dataclass(frozen=True, slots=True)
class _Target:
    """An environment, its workloads, and how many copies of them each of its guests gets."""

    name: str
    spec: str
    copies: int
    options: RecordOptions
    works: tuple[Work, ...]


def _targets(
    plan: VrtprofPlan, hardware: Sequence[str], wanted: str | None, quick: bool
) -> list[_Target]:
    """The environments that the wanted figure needs; `hardware`: events that this machine has
    (emulated ones have none)."""
    machine = here()
    copies = 1 if quick else copies_on(machine)
    xen = RecordOptions.of(every=EVERY, events=XEN_EVENTS)
    real = tuple(work for work in plan.workloads if work.line)
    builtin = tuple(work for work in plan.workloads if not work.line)
    domus = [_Target(DOMUS[n], SPECS[DOMUS[n]], copies // n, xen, builtin) for n in plan.guests]
    if wanted == XEN_FIGURE:
        return domus
    every = EVERY_COUNTED if PMU in machine.has else EVERY
    counting = RecordOptions.of(every=every, events=",".join([EVENTS, *hardware]))
    inside = RecordOptions.of(every=EVERY, events=EVENTS)
    record = counting if KVM in machine.has else inside
    targets = [
        _Target(NATIVE, SPECS[NATIVE], copies, counting, plan.workloads),
        _Target(UML, SPECS[UML], copies, counting, plan.workloads),
        _Target(CONTAINER, SPECS[CONTAINER], copies, counting, real),
    ]
    many = (MANY_COPIES,) if copies == MANY_COPIES else ()
    for guests in (*plan.guests, *many):
        if spec := guests_spec(machine, guests):
            targets.append(_Target(GUESTS[guests], spec, copies // guests, record, builtin))
    if not quick:
        targets.append(_Target(GUESTS[1], PROGRAMS_IN_KVM, 1, inside, real))
    targets = targets if wanted else [*targets, *domus]
    return [target for target in targets if target.works]


def _require_recording(folder: Path) -> None:
    """Raise an error before anything boots if this machine cannot record."""
    with Recorder(
        RecordOptions.of(every=EVERY, events="sched").arguments(), folder / "probe"
    ) as recorder:
        recorder.ready()
        recorder.finish()


def _record_all(
    target: _Target, plan: VrtprofPlan, seed: int, folder: Path, found: Found, shown: Counting
) -> None:
    order = [work for work in target.works for _ in range(plan.repetitions)]
    random.Random(f"{seed} {target.name}").shuffle(order)
    own: dict[str, list[Recording]] = {}
    failed: list[str] = []
    label = f"{target.name}, programs" if target.spec == PROGRAMS_IN_KVM else target.name

    def keep(done: Done) -> None:
        recording = load(done.step.out, target.name)
        if target.name in DOMUS.values():
            recording = of_domus(recording)
        own.setdefault(order[done.step.repetition].name, []).append(recording)

    def missed(_: Step, error: VtaxError) -> None:
        failed.append(str(error))
        if 2 * len(failed) > len(order):
            raise error

    try:
        environment, work_folder = prepared(target.spec, folder, label)
        variant = Variant(target.name, environment, work_folder, (Recorded(target.options),))
        steps = [
            Step(
                target.name,
                number,
                command(environment, work, _extent(work, target, plan), target.copies),
                f"{work.name}-{number}",
                folder / f"{label}-{number}",
            )
            for number, work in enumerate(order)
        ]
        run([variant], steps, keep, shown, missed=missed)
    except VtaxError as error:
        found.left_out[label] = str(error)
    else:
        if failed:
            found.left_out[f"{label}, {len(failed)} of {len(order)} runs,"] = failed[0]
    if own:
        made = by_work(target.works, own)
        found.recordings.setdefault(target.name, {}).update(made)


def _extent(work: Work, target: _Target, plan: VrtprofPlan) -> tuple[str, str]:
    """How much of a workload is recorded: a time, of a real program a fixed amount."""
    if not work.line:
        return "--seconds", str(plan.seconds)
    return counted(work.emulated if target.spec == PROGRAMS_IN_KVM else work.count, plan.share)


def _availability(raw_names: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Events that this machine lacks, with the reason, and those of HARDWARE and of the raw ones
    that it has: a processor whose cycles are counted counts the codes of its list."""
    line = [str(binaries.find(PROGRAM)), "events", "--json"]
    done = subprocess.run(line, capture_output=True, timeout=LIST_TIMEOUT_S, check=False)
    try:
        listed = foreign_json.parse(done.stdout)
    except ValueError:
        raise VtaxError("vtax-host does not list its events") from None
    absent = {each["name"]: each["reason"] for each in listed if not each["available"]}
    known = {each["name"] for each in listed}
    there = [name for name in HARDWARE if name in known and name not in absent]
    no_cycles = absent.get("hw.cycles")
    for event in (event.name for event in TABLE_II if not event.ours):
        name = raw_names.get(event)
        if name is None:
            absent[event] = "no portable name, and no code of this processor is known"
        for column in [f"{name}{level}" for level in LEVELS.values()] if name else []:
            if no_cycles is None:
                there.append(column)
            else:
                absent[column] = no_cycles
    return absent, there


def _measure_overheads(
    plan: VrtprofPlan, repetitions: int, seed: int, folder: Path, found: Found, shown: Counting
) -> None:
    """Measure overheads: each repetition has every setting once, in a random order of its own."""
    environment, work_folder = prepared(OVERHEAD_IN, folder, "overhead")
    variants = [Variant(BARE, environment, work_folder)]
    variants += [
        Variant(
            each.every,
            environment,
            work_folder,
            (Recorded(RecordOptions.of(every=each.every, events=EVENTS)),),
        )
        for each in SETTINGS
    ]
    commands = {
        work.name: command(environment, work, counted(work.count, plan.share), 1)
        for work in plan.workloads
    }
    settings = [each.label for each in variants]
    steps, works = interleaved(settings, commands, repetitions, f"{seed} overheads", folder)
    run(variants, steps, lambda done: found.overheads.append(_row(done, works)), shown)


def _row(done: Done, works: Mapping[str, str]) -> dict[str, Any]:
    """The times of a repetition with or without a recorder."""
    outcome = done.repetition.finished[0].outcome
    return {**rows_of(done, works), "cpu_s": outcome.cpu_s, "wall_s": outcome.wall_s}
