"""The study as a whole: measured, judged, drawn."""

from __future__ import annotations

import os

from vtax.formats.place import PlaceRecord
from vtax_studies.asymmetric_cores import data as m
from vtax_studies.asymmetric_cores.claims import RULES
from vtax_studies.asymmetric_cores.data import Data
from vtax_studies.asymmetric_cores.figures import drawn, tables
from vtax_studies.asymmetric_cores.measure import measure
from vtax_studies.asymmetric_cores.setup import CPU_BOUND, EMULATED
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
        frames={"points": m.frame(data)},
        setup=[*setup, *_setup(data, options)],
        cautions=_cautions(data, options),
    )


def _records(data: Data) -> list[PlaceRecord]:
    return [each for each in (data.served, data.slow_guest) if each is not None]


def _setup(data: Data, options: StudyOptions) -> list[tuple[str, str]]:
    described: dict[str, str] = {}
    for record in _records(data):
        for each in record.environments:
            service = ", ".join(each.service) or "none of its own"
            described.setdefault(each.spec, f"{each.description}; service: {service}")
    how = [
        ("Speeds", f"{', '.join(f'{speed:g}' for speed in record.speeds)} % of full speed")
        for record in _records(data)[:1]
    ]
    measured = [
        ("Measurements",
         f"{record.rounds} rounds of {record.seconds:g} s, each beside a control at full speed")
        for record in _records(data)[:1]
    ]  # fmt: skip
    return [*described.items(), *how, *measured, ("Random seed", str(options.seed))]


def _cautions(data: Data, options: StudyOptions) -> list[str]:
    records = _records(data)
    found = []
    if options.quick:
        found.append(
            "Made with --quick: two rounds of 1 s at one slow speed. It shows that it works, and "
            "no more."
        )
    if options.figure is not None:
        found.append(f"Made with --figure {options.figure}: no other is drawn.")
    found += [f"{name} is left out: {reason}" for name, reason in data.left_out.items()]
    found += [
        f"A core slowed by {name} is no slow core. It does not reproduce: {what}."
        for name, what in {n: w for each in records for n, w in each.does_not.items()}.items()
    ]
    for record in records:
        found += [f"failed: {text}" for text in record.failures]
        for each in record.environments:
            found += [f"{each.spec}: {text}" for text in (each.absent, *each.notes) if text]
            if EMULATED in each.description:
                found.append(
                    f"{each.spec} is emulated: its vCPU needs many times the CPU time of a real "
                    "one, its service does not, so that it is rather the guest that limits."
                )
        found += record.findings
    return [*dict.fromkeys(found), *_ALWAYS]


_ALWAYS = (
    f"{CPU_BOUND} stands in for SPEC CPU2006. The paper slows the guest's cores for SPEC, and "
    "dom0's for the others; so does this study. A quota or a hog takes the same share of all "
    "work, so that it is expected to keep 50 % here; with a lower clock memory is as fast as "
    "before, and work that waits for it loses less.",
    "The link is shaped by a token bucket filter: 100 % of it is 1 Gbit/s. The paper's 100 % is 10 "
    "Gbit/s.",
    "The paper's ab has four guests, here it has one with ten connections; netperf is iperf3 here. "
    "On few CPUs client, guest and service share them.",
    "The paper's text is not consistent: ab loses 14 % in section 3.1 and 19 % in 3.2, netperf TCP "
    "15 % and 20 %; table 1 varies domU's clock alone, section 2 dom0's; and a lower clock should "
    "not halve the instructions for each cycle by which section 3.1 measures SPEC. Its figures are "
    "not in the text that is available. What holds or does not here says nothing against the "
    "paper's own runs.",
)
"""What limits the comparison, whatever was measured."""
