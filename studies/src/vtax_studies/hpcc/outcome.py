"""The study as a whole: measured, judged, drawn."""

from __future__ import annotations

import os

from vtax_studies.hpcc import data as m
from vtax_studies.hpcc.claims import RULES
from vtax_studies.hpcc.data import Data
from vtax_studies.hpcc.figures import drawn, tables
from vtax_studies.hpcc.measure import measure
from vtax_studies.hpcc.setup import FULL, NATIVE, QUICK
from vtax_studies.machine import machine
from vtax_studies.model import Outcome, Progress, StudyOptions
from vtax_studies.rule import judge


def run(options: StudyOptions, progress: Progress) -> Outcome:
    """Measure what the options ask for, judge it and draw it."""
    load_before = os.getloadavg()[0]
    data = measure(options, progress)
    return made(data, options, machine(load_before))


def made(data: Data, options: StudyOptions, setup: list[tuple[str, str]]) -> Outcome:
    """The outcome of measured data."""
    return Outcome(
        claims=judge(RULES, data, options.figure, data.without_emulation()),
        figures=drawn(data, options.figure),
        tables=tables(data),
        frames={"runs": m.frame(data)},
        setup=[*setup, *_setup(data, options)],
        cautions=_cautions(data, options),
    )


def _setup(data: Data, options: StudyOptions) -> list[tuple[str, str]]:
    plan = QUICK if options.quick else FULL
    rounds = len({each.round for each in data.observations[NATIVE]})
    return [
        *((name, f"{each.spec}: {each.description}") for name, each in data.places.items()),
        ("Sizes", ", ".join(f"N = {size}" for size in plan.sizes)),
        ("Sizes where emulated", ", ".join(f"N = {size}" for size in plan.emulated_sizes)),
        ("Processes", "1 (the paper: on 8 CPUs)"),
        ("Rounds", f"{rounds} begun of {plan.rounds} within {plan.budget_s:g} s, of 5 passes each"),
        ("Random seed", str(options.seed)),
    ]


def _cautions(data: Data, options: StudyOptions) -> list[str]:
    found = []
    if options.quick:
        found.append("Made with --quick: two rounds of small sizes. It shows that it works.")
    if options.figure is not None:
        found.append(f"Made with --figure {options.figure}: no other is drawn.")
    found += [f"{name} is left out: {reason}" for name, reason in data.left_out.items()]
    found += [
        f"{name}: {len(messages)} runs gave nothing, the first: {messages[0]}"
        for name, messages in data.failures.items()
    ]
    found.append(
        "The paper's virtual machines are VMware Player, VirtualBox and KVM of 2011, with HPL from "
        "N = 1000 on; these are other ones, with smaller problems and one process. What holds or "
        "does not here says nothing against the paper's own runs. Native may itself be virtual."
    )
    return found
