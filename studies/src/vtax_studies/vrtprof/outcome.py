"""The study as a whole: measured, judged, drawn."""

from __future__ import annotations

import os

import polars as pl

from vtax.present.format import plural
from vtax_studies.machine import machine
from vtax_studies.model import Outcome, Progress, StudyOptions
from vtax_studies.rule import judge
from vtax_studies.vrtprof import data as m
from vtax_studies.vrtprof.claims import RULES
from vtax_studies.vrtprof.data import Data
from vtax_studies.vrtprof.emulated import SPEC
from vtax_studies.vrtprof.figures import drawn, tables
from vtax_studies.vrtprof.measure import measure
from vtax_studies.vrtprof.setup import (
    COPIES,
    EMULATED,
    EMULATED_SETTINGS,
    EVENTS,
    EVERY,
    FULL,
    KERNEL_PART,
    QUICK,
)


def run(options: StudyOptions, progress: Progress) -> Outcome:
    """Measure what the options ask for, judge it and draw it."""
    load_before = os.getloadavg()[0]
    data = measure(options, progress)
    return made(data, options, machine(load_before))


def made(data: Data, options: StudyOptions, setup: list[tuple[str, str]]) -> Outcome:
    """The outcome of measured data."""
    only = options.figure
    return Outcome(
        claims=judge(RULES, data, only),
        figures=drawn(data, only),
        tables=tables(data),
        frames=_frames(data),
        setup=[*setup, *_setup(options)],
        cautions=_cautions(data, options),
    )


def _setup(options: StudyOptions) -> list[tuple[str, str]]:
    plan = QUICK if options.quick else FULL
    return [
        ("Workloads", ", ".join(work.name for work in plan.workloads)),
        ("Copies", f"{COPIES} at once in every environment, shared out to its guests"),
        ("Repetitions", f"{plan.repetitions} of {plan.seconds:g} s each, in random order"),
        ("Events", EVENTS),
        ("Interval", EVERY),
        ("Overheads", f"{plan.overhead_repetitions} repetitions, natively on one CPU"),
        (
            "Emulated",
            f"{SPEC}, {plural(plan.repetitions, 'repetition')} of one copy, rows of "
            f"{' and '.join(each.label for each in EMULATED_SETTINGS)}; the events and "
            f"{', '.join(KERNEL_PART)}",
        ),
        ("Random seed", str(options.seed)),
    ]


def _cautions(data: Data, options: StudyOptions) -> list[str]:
    found = []
    if options.quick:
        found.append("Made with --quick: few workloads, one repetition. It shows that it works.")
    if options.figure is not None:
        found.append(f"Made with --figure {options.figure}: only what that needs was measured.")
    found += [f"{name} is left out: {reason}" for name, reason in data.left_out.items()]
    hardware = [name for name in data.absent if name.startswith("hw.")]
    if hardware:
        found.append(
            "This machine has no hardware counters, or its hypervisor keeps them: every hardware "
            "event is absent, the kernel's and the programs' parts too, rates are per second "
            "instead of per instruction, and nothing stands in for a hardware event under its name."
        )
    if data.guests():
        found.append(
            "Guests run under real KVM on an emulated processor: their exits are true counts, "
            "their rates per second are those of a machine that is far slower than this one."
        )
    if EMULATED in data.recordings:
        found.append(
            f"What is called emulated is of an emulated arm64 machine ({SPEC}). Its counters of "
            "instructions and cycles are real to the recorder, its processor is none: it has no "
            "caches and no pipeline, and what it counts is not time."
        )
    return found


def _frames(data: Data) -> dict[str, pl.DataFrame]:
    rows = []
    for environment, workloads in data.recordings.items():
        for workload, recordings in workloads.items():
            for repetition, one in enumerate(recordings):
                length = int(one.frame["length_ns"].sum())
                rows += [
                    {
                        "environment": environment,
                        "workload": workload,
                        "repetition": repetition,
                        "event": event.name,
                        "count": m.total([one], event.name),
                        "length_ns": length,
                    }
                    for event in one.events
                    if not event.is_level
                ]
    absent = [{"event": name, "reason": reason} for name, reason in data.absent.items()]
    found = {
        "counts": pl.DataFrame(rows, infer_schema_length=None),
        "overheads": data.overheads,
        "emulated": data.emulated,
        "absent": pl.DataFrame(absent),
    }
    return {name: frame for name, frame in found.items() if not frame.is_empty()}
