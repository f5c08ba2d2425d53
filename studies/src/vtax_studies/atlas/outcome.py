"""The study as a whole: measured, judged, drawn."""

from __future__ import annotations

import os

from vtax_studies.atlas import claims_tuning
from vtax_studies.atlas import data as m
from vtax_studies.atlas.claims import RULES
from vtax_studies.atlas.data import Data
from vtax_studies.atlas.figures import drawn, tables
from vtax_studies.atlas.measure import measure
from vtax_studies.atlas.setup import FULL, QUICK
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
        claims=judge((*claims_tuning.RULES, *RULES), data, options.figure),
        figures=drawn(data, options.figure),
        tables=tables(data),
        frames={"points": m.frame(data)},
        setup=[*setup, *_setup(data, options)],
        cautions=_cautions(data, options),
    )


def _setup(data: Data, options: StudyOptions) -> list[tuple[str, str]]:
    plan = QUICK if options.quick else FULL
    described = {each.spec: each.description for each in data.tuned.values()}
    described |= {each.spec: each.description for each in data.found.values()}
    searched = ", ".join(
        f"{each.budget_s:g} s{where}, {each.rounds} rounds"
        for each, where in ((plan.tuning, ""), (plan.emulated_tuning, " where emulated"))
    )
    return [
        *((m.place(spec).name, f"{spec}: {what}") for spec, what in described.items()),
        ("Searches", searched),
        ("Sizes", f"{plan.runs} runs each of {', '.join(map(str, plan.sizes))}"),
        ("Sizes where emulated",
         f"{plan.emulated_runs} of {', '.join(map(str, plan.emulated_sizes))}"),
        ("Random seed", str(options.seed)),
    ]  # fmt: skip


def _cautions(data: Data, options: StudyOptions) -> list[str]:
    found = []
    if options.quick:
        found.append(
            "Made with --quick: one run of a few sizes, searches of 2 s. It shows that it works, "
            "and no more."
        )
    if options.figure is not None:
        found.append(f"Made with --figure {options.figure}: no other is drawn.")
    found += [f"{place.name} is left out: {reason}" for place, reason in data.left_out.items()]
    found += [
        f"{place.name}, tuning: {message}"
        for place, each in data.tuned.items()
        for message in (*each.failures, *each.notes)
    ]
    for place, each in data.found.items():
        failed = [point for point in each.points if point.failed]
        found += [
            f"{place.name}: {point.failed} runs of size {point.size} failed: {point.message}"
            for point in failed
        ]
    found.append(
        "The paper's kernels were native Linux and Xen's domains on one machine of 2008. Here "
        "native memory is a control group's limit, so the kernel itself does not count in it; and "
        "native may itself be virtual. What holds or does not here says nothing against the "
        "paper's own runs."
    )
    return found
