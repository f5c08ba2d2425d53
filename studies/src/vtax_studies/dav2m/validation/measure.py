"""Predicting what KVM counts from a trace, and counting it in the lab."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import polars as pl

from vtax import paging
from vtax.core import foreign_json
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.files import read_bounded
from vtax.core.formats.scratch import scratch
from vtax.core.recorder.intervals import EVENTS, MAX_JSON_BYTES
from vtax.core.recorder.options import RecordOptions
from vtax.core.runner.instruments.kvm_counters import Counting as KvmCounting
from vtax.core.runner.instruments.record import Recording
from vtax.core.runner.runner import Done, Keeper, Plan, Runner, Step, Variant
from vtax.environments.base import Environment
from vtax.workloads.base import Command, tail
from vtax.workloads.variables import base_environment
from vtax_studies.dav2m.validation.cycles import NAME as CYCLES
from vtax_studies.dav2m.validation.cycles import SCHEMA as CYCLES_SCHEMA
from vtax_studies.dav2m.validation.cycles import measure_cycles, steps
from vtax_studies.dav2m.validation.programs import NOTHING, PROGRAMS, Program
from vtax_studies.dav2m.validation.tracing import TIMEOUT_S, trace_into
from vtax_studies.measuring import Counting, nothing_measured, ready
from vtax_studies.model import Progress, StudyData, StudyOptions

REPETITIONS, QUICK_REPETITIONS = 5, 2
QUICK = ("perl", "mmap-churn")
MEMORY = "256M"
"""Memory of the traced guest and of the nested one: KVM keeps shadow pages for 2 % of it."""
MACHINE = "zen4"
"""Its TLB has tags, as the lab's processor. Counts of exits depend on nothing else of it."""
WINDOW = "10K"
"""Instructions: where the warm-up ends is found with this error."""
WARM = "1"
"""The trace's phase after the warm-up."""
SPECS = {mode: f"lab:npt={npt},guest_mem={MEMORY}" for mode, npt in (("shadow", 0), ("nested", 1))}
_FIXED = ("shadow_fill", "shadow_dirty", "unsync")
_TAKEN = (*_FIXED, "guest_fault", "table_write", "unprotect")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that the model predicts and KVM counts."""

    name: str
    mode: str
    parts: Sequence[str]
    """The model's columns that are in it; those of exits without their `exits_`."""
    counted: str
    """KVM's counter, or with a dot an event of vtax's recorder."""
    about: str


QUANTITIES: Sequence[Quantity] = (
    Quantity("pf_taken", "shadow", _TAKEN, "pf_taken", "page faults that left the guest"),
    Quantity("pf_fixed", "shadow", _FIXED, "pf_fixed", "shadow entries filled or made writable"),
    Quantity("pf_guest", "shadow", ("guest_fault",), "pf_guest", "the guest's own page faults"),
    Quantity("cr3", "shadow", ("load_cr3",), "kvm.exit.cr_write", "loads of CR3, and of CR4"),
    Quantity("invlpg", "shadow", ("invlpg",), "invlpg", "single pages invalidated"),
    Quantity("mmu_pte_write", "shadow", ("table_write",), "mmu_pte_write", "table writes emulated"),
    Quantity("mmu_flooded", "shadow", ("flooded",), "mmu_flooded",
             "shadow pages thrown away after three writes"),
    Quantity("unsync", "shadow", ("unsync",), "kvm.mmu.unsync_page", "leaf tables let out of step"),
    Quantity("pf_taken nested", "nested", ("nested_fault",), "pf_taken", "nested page faults"),
)  # fmt: skip


SCHEMA: Mapping[str, type[pl.DataType] | pl.DataType] = {
    "program": pl.String,
    "quantity": pl.String,
    "predicted": pl.Float64,
    "counted": pl.List(pl.Float64),
}
"""The columns of the comparison: `predicted` and each repetition's `counted` are less NOTHING's."""


@dataclass(frozen=True, eq=False)
class Data(StudyData):
    counts: pl.DataFrame
    """A row per program and quantity."""
    cycles: pl.DataFrame
    """The rows of `measure_cycles`, if any."""

    def frames(self) -> Mapping[str, pl.DataFrame]:
        return {"validation": self.counts, "cycles": self.cycles}


def measure(options: StudyOptions, progress: Progress) -> Data:
    """Predict and count.

    Raises MisuseError for an unknown name in `options.only`, VtaxError where nothing can be
    measured.
    """
    names = _chosen(options)
    left_out: dict[str, str] = {}
    programs = [each for each in PROGRAMS if each.name in names and _runs(each, left_out)]
    if programs:
        programs.insert(0, NOTHING)
    repetitions = QUICK_REPETITIONS if options.quick else REPETITIONS
    shown = Counting(len(programs) * (1 + (1 + repetitions) * len(SPECS)), progress)
    rows = list(_compared(programs, repetitions, shown, left_out)) if programs else []
    cycles = pl.DataFrame(schema=CYCLES_SCHEMA)
    if CYCLES in names:
        shown.extended(steps())
        try:
            cycles = measure_cycles(shown)
        except VtaxError as error:
            left_out[CYCLES] = str(error)
    if not rows and cycles.is_empty():
        raise nothing_measured(left_out)
    return Data(pl.DataFrame(rows, schema=SCHEMA), cycles, left_out=left_out)


def _chosen(options: StudyOptions) -> Sequence[str]:
    known = [*(program.name for program in PROGRAMS), CYCLES]
    names = options.only or (QUICK if options.quick else known)
    if unknown := [name for name in names if name not in known]:
        raise MisuseError(f"no program is called '{unknown[0]}'", f"use {', '.join(known)}")
    return names


def _runs(program: Program, left_out: dict[str, str]) -> bool:
    reason = program.missing()
    if reason is not None:
        left_out[program.name] = reason
    return reason is None


def _compared(
    programs: Sequence[Program], repetitions: int, shown: Counting, left_out: dict[str, str]
) -> Iterator[Mapping[str, object]]:
    """The rows of SCHEMA."""
    environments = {mode: ready(spec) for mode, spec in SPECS.items()}
    counted = _counted(programs, environments, repetitions, shown, left_out)
    predicted: dict[str, Mapping[str, float]] = {}
    for program in programs:
        shown.running(f"tracing {program.name}", 0)
        try:
            predicted[program.name] = _predicted(program)
        except VtaxError as error:
            left_out[program.name] = str(error)
    yield from _rows(predicted, counted)


def _predicted(program: Program) -> dict[str, float]:
    """The counts of the program's second run, from a trace of two."""
    with scratch("validate") as folder:
        file = folder / "program.vtrace"
        trace_into(file, program.argv, MEMORY, warm_up=True)
        result = paging.simulate(file, MACHINE, tuple(SPECS), host_page="4K", window=WINDOW)
    counted = (
        pl.col("^exits_.*$").sum().name.map(lambda name: name.removeprefix("exits_")),
        pl.col("flooded").sum(),
    )
    rows = result.windows.filter(pl.col("phase") == WARM).group_by("mode").agg(counted)
    counts = {row["mode"]: row for row in rows.iter_rows(named=True)}
    return {each.name: sum(counts[each.mode][part] for part in each.parts) for each in QUANTITIES}


Counts = dict[tuple[str, str], list[dict[str, float]]]
"""What each repetition counted, by mode and program."""


def _counted(
    programs: Sequence[Program],
    environments: Mapping[str, Environment],
    repetitions: int,
    shown: Counting,
    left_out: dict[str, str],
) -> Counts:
    """The counts of the programs' repetitions, each after a run that does not count."""
    found: Counts = {}
    with scratch("validate") as folder:
        for mode, environment in environments.items():
            work = folder / mode
            work.mkdir(mode=0o700)
            instruments = (Recording(RecordOptions.of(every="1s", events="kvm")), KvmCounting())
            variant = Variant(mode, environment, work, instruments)
            steps = []
            for program in programs:
                command = Command(
                    tuple(program.argv(environment.agent_inside())), timeout_s=TIMEOUT_S
                )
                for number in range(1 + repetitions):
                    name = f"{program.name}-{number}"
                    steps.append(Step(mode, number, command, name, folder / f"{mode}-{name}"))
            keeper = _Kept(mode, found, left_out)
            Runner(Plan([variant], steps, base_environment(os.environ)), keeper, shown).run()
    return found


@dataclass(slots=True)
class _Kept(Keeper):
    mode: str
    found: Counts
    left_out: dict[str, str] = field(default_factory=dict)

    def done(self, done: Done) -> None:
        name = done.step.folder.rpartition("-")[0]
        outcome = done.repetition.finished[0].outcome
        if outcome.exit_code != 0:
            said = tail(done.repetition.exchange.read_text("stderr"))
            self.left_out[name] = f"in the lab it ended with code {outcome.exit_code}: {said}"
        elif done.step.repetition > 0:
            counts = {
                each.name.removeprefix("kvm."): each.value for each in done.repetition.metrics
            }
            counts |= _recorded(done.step.out)
            self.found.setdefault((self.mode, name), []).append(counts)

    def failed(self, step: Step, error: VtaxError) -> None:
        self.left_out[step.folder.rpartition("-")[0]] = str(error)


def _recorded(out: Path) -> dict[str, float]:
    """What the recorder counted of each event, also after its last row."""
    found = foreign_json.parse_object(read_bounded(out / EVENTS, MAX_JSON_BYTES))
    return {each["name"]: each["sum"] + (each["after_last_row"] or 0) for each in found["columns"]}


def _rows(
    predicted: Mapping[str, Mapping[str, float]], counted: Counts
) -> Iterator[Mapping[str, object]]:
    for name, counts in predicted.items():
        for each in QUANTITIES:
            empty, own = (counted.get((each.mode, n), []) for n in (NOTHING.name, name))
            if name == NOTHING.name or not empty or not own or NOTHING.name not in predicted:
                continue
            if any(each.counted not in one for one in (*empty, *own)):
                continue  # This kernel does not count it.
            base = median(one[each.counted] for one in empty)
            yield {
                "program": name,
                "quantity": each.name,
                "predicted": counts[each.name] - predicted[NOTHING.name][each.name],
                "counted": [one[each.counted] - base for one in own],
            }
