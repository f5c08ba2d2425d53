"""Measuring for the study: clocks first, then HPCC's sizes in every order in every environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vtax.audit import order_runs as order_drift
from vtax.audit.order_runs import Subject
from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.formats.model import Sample
from vtax.core.formats.scratch import scratch
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Done, Keeper, Listener, Plan, Runner, Step, Variant
from vtax.environments import Environment
from vtax.environments.base import MachineLike
from vtax.workloads import programs
from vtax.workloads.base import Command, Metric
from vtax.workloads.hpcc import Hpcc
from vtax.workloads.hpcc_output import random_access_times
from vtax.workloads.variables import base_environment
from vtax_studies.hpcc.data import Data, Place
from vtax_studies.hpcc.setup import (
    CPU,
    FULL,
    MESSAGE_SPECS,
    NATIVE,
    PROCESSES,
    QUICK,
    SPECS,
    TABLE,
    UPDATES,
    WALL,
    HpccPlan,
    specs_on,
)
from vtax_studies.hpcc.updates import PerUpdate
from vtax_studies.hpcc.updates import measure as per_update
from vtax_studies.measuring import Counting, nothing_measured, ready, run_folders
from vtax_studies.model import Progress, StudyOptions
from vtax_studies.roles import here

PROBE_TIMEOUT_S = 60.0
WITHOUT_OTHERS = 3
"""Passes of a round that has no other orders than the ascending one."""
OUTPUT_BYTES = 1 << 20
STEPPING = ("gettimeofday", "getrusage")
"""The clocks of `vtax-agent clocks` that HPCC reads: that of MPI_Wtime and that of its CPU
times."""


@dataclass(slots=True)
class _Clocks(Keeper):
    """Keeps what `vtax-agent clocks` prints, and what the machine is."""

    found: Mapping[str, Any] | None = None
    description: str = ""

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        self.description = variant.environment.description(machine.facts)

    def done(self, done: Done) -> None:
        outcome = done.repetition.finished[0].outcome
        try:
            text = done.repetition.exchange.read_text("stdout", OUTPUT_BYTES)
            self.found = foreign_json.parse_object(text) if outcome.exit_code == 0 else None
        except ValueError:
            self.found = None


def measure(options: StudyOptions, progress: Progress) -> Data:
    """Measure everything: figures 1 to 4 come from the same runs, so one takes as long as all.

    Raises VtaxError where HPCC is not installed. An environment that does not come up is left out,
    with the reason.
    """
    plan = QUICK if options.quick else FULL
    updates: Sequence[PerUpdate] = ()
    left_out: dict[str, str] = {}
    if options.figure in (None, UPDATES):
        # Twice in each pair: with few updates, and with many.
        shown = Counting(2 * plan.update_pairs * len(plan.update_places), progress)
        with run_folders(options.folder) as folder:
            updates = per_update(plan.update_places, plan.update_pairs, folder, shown, left_out)
    if options.figure == UPDATES:
        if not updates:
            raise nothing_measured(left_out)
        return Data({}, {NATIVE: ()}, {}, updates=updates, left_out=left_out)
    variables = dict(base_environment(os.environ))
    for program in Hpcc((plan.sizes[0],), processes=1).needs():
        programs.require(
            program, variables["PATH"], Path(), "run 'vtax doctor' for what is missing"
        )
    places, subjects = {}, {}
    for name, spec in specs_on(here()).items():
        try:
            environment = ready(spec)
            places[name] = _place(name, spec, environment, plan, variables)
            subjects[name] = _subject(environment, plan.sizes_in(name))
        except VtaxError as error:
            if name == NATIVE:
                raise
            left_out[name] = str(error)
    shown = Counting(plan.rounds * sum(each.runs for each in subjects.values()), progress)
    found = order_drift.measure(
        subjects, variables, plan.rounds, options.seed, shown, budget_s=plan.budget_s
    )
    failures = {name: each.failures for name, each in found.items() if each.failures}
    messages, failed = _messages(places, plan, variables, options.seed, shown, left_out)
    return Data(
        places,
        {name: each.observations for name, each in found.items()},
        {
            size: [row for each in found.values() for row in each.samples.get(size, ())]
            for size in plan.sizes
        },
        {**failures, **failed},
        messages,
        updates,
        left_out=left_out,
    )


def _messages(
    places: Mapping[str, Place],
    plan: HpccPlan,
    variables: Mapping[str, str],
    seed: int,
    shown: Counting,
    left_out: dict[str, str],
) -> tuple[Sequence[Sample], Mapping[str, Sequence[str]]]:
    """Runs as two processes, and failures, where there are two CPUs; `left_out` says where not."""
    subjects, sizes = {}, (plan.message_size,)
    for name in plan.message_places:
        if name in SPECS and name not in places:
            continue
        try:
            subjects[name] = _subject(ready(MESSAGE_SPECS[name]), sizes, PROCESSES)
        except VtaxError as error:
            left_out[f"{name}, {PROCESSES} processes"] = str(error)
    if not subjects:
        return [], {}
    shown.extended(plan.message_rounds * len(subjects) * WITHOUT_OTHERS)
    try:
        found = order_drift.measure(
            subjects, variables, plan.message_rounds, seed, shown, between=(),
            budget_s=plan.budget_s,
        )  # fmt: skip
    except VtaxError as error:
        left_out[f"{PROCESSES} processes"] = str(error)
        return [], {}
    return (
        [row for each in found.values() for row in each.samples.get(plan.message_size, ())],
        {f"{name}, {PROCESSES} processes": each.failures
         for name, each in found.items() if each.failures},
    )  # fmt: skip


def _place(
    name: str, spec: str, environment: Environment, plan: HpccPlan, variables: Mapping[str, str]
) -> Place:
    """Boot an environment once, and look at its clocks. Raises VtaxError when it does not come
    up."""
    keeper = _Clocks()
    argv = (environment.agent_inside(), "clocks", "--seconds", str(plan.clocks_s))
    with scratch("hpcc") as folder:
        work = folder / "work"
        work.mkdir(mode=0o700)
        command = Command(argv, timeout_s=PROBE_TIMEOUT_S)
        step = Step(name, 0, command, "clocks", folder)
        Runner(
            Plan([Variant(name, environment, work)], [step], variables, matched=True),
            keeper,
            Listener(),
        ).run()
    return Place(spec, keeper.description, environment.is_guest, _steps_s(name, keeper.found))


def _steps_s(name: str, found: Mapping[str, Any] | None) -> float:
    """The sum over both clocks, in seconds, of a step and a reading, which the other clock's may
    enclose."""
    try:
        clocks = [(found or {})["clocks"][clock] for clock in STEPPING]
        spans = [float(each["smallest_step"]) + float(each["cost_ns"]["median"]) for each in clocks]
        return sum(spans) / 1e9
    except (KeyError, TypeError, ValueError):
        raise VtaxError(f"{name}: the steps of its clocks are not known") from None


def _subject(environment: Environment, sizes: Sequence[int], processes: int = 1) -> Subject:
    shape = environment.shape()
    commands = {size: Hpcc((size,), processes=processes).command(shape) for size in sizes}
    return Subject(environment, sizes, commands.__getitem__, partial(_read, processes))


def _read(processes: int, this: Repetition, size: int) -> Sequence[Metric]:
    found = Hpcc((size,), processes=processes).metrics(this.finished[0].outcome, this.exchange)
    times = random_access_times(this.exchange.read_text("hpccoutf.txt"))
    return (
        *found,
        Metric(TABLE, "words", "higher", float(times.table_words)),
        Metric(CPU, "s", "lower", times.cpu_s),
        Metric(WALL, "s", "lower", times.wall_s),
    )
