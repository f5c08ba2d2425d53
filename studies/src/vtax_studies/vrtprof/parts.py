"""What the study is made of."""

from __future__ import annotations

from collections.abc import Iterator

from vtax.core.page.format import plural
from vtax_studies.model import Parts, StudyOptions
from vtax_studies.vrtprof.claims import RULES
from vtax_studies.vrtprof.data import Data
from vtax_studies.vrtprof.emulated import SPEC
from vtax_studies.vrtprof.figures import FIGURES, TABLES
from vtax_studies.vrtprof.measure import measure
from vtax_studies.vrtprof.setup import (
    COPIES,
    EMULATED,
    EMULATED_SETTINGS,
    EVENTS,
    EVERY,
    EVERY_COUNTED,
    FULL,
    GUESTS,
    KERNEL_PART,
    MANY_COPIES,
    QUICK,
    ROLES,
    STAND_INS,
    XEN_EVENTS,
)


def _setup(data: Data, options: StudyOptions) -> list[tuple[str, str]]:
    plan = QUICK if options.quick else FULL
    copies = MANY_COPIES if GUESTS[MANY_COPIES] in data.recordings else COPIES
    return [
        ("Workloads", ", ".join(work.name for work in plan.workloads)),
        (
            "Real programs",
            f"{', '.join(f'{program} instead of {other}' for program, other in STAND_INS.items())} "
            "in figures 4 to 7 where they ran; a fixed amount of work; under KVM one copy, and "
            "not in a quick study",
        ),
        ("Copies", f"{copies} at once in every environment, shared out to its guests"),
        ("Repetitions", f"{plan.repetitions} of {plan.seconds:g} s each, in random order"),
        (
            "Events",
            f"{EVENTS}, and with a PMU the programs' and the kernel's parts of table II's hardware "
            f"events, which take turns; of domUs {XEN_EVENTS}",
        ),
        ("Interval", f"{EVERY}; {EVERY_COUNTED} instructions where this machine counts them"),
        ("Overheads", f"{plan.overhead_repetitions} repetitions, natively on one CPU"),
        (
            "Emulated",
            f"{SPEC}, {plural(plan.repetitions, 'repetition')} of one copy, rows of "
            f"{' and '.join(each.label for each in EMULATED_SETTINGS)}; the events and "
            f"{', '.join(KERNEL_PART)}",
        ),
    ]


def _cautions(data: Data) -> Iterator[str]:
    hardware = [name for name in data.absent if name.startswith("hw.")]
    if hardware:
        yield (
            "This machine has no hardware counters, or its hypervisor keeps them: every hardware "
            "event is absent, the kernel's and the programs' parts too, rates are per second "
            "instead of per instruction, and nothing stands in for a hardware event under its name."
        )
    if data.guests() and not data.kvm_here:
        yield (
            "Guests run under real KVM on an emulated processor: their exits are true counts, "
            "their rates per second are those of a machine that is far slower than this one."
        )
    if data.domus():
        yield (
            "domUs run under real Xen on an emulated processor, and share one physical CPU: what "
            "Xen recorded are true counts, their rates per second those of a machine that is far "
            "slower than this one."
        )
    if EMULATED in data.recordings:
        yield (
            f"What is called emulated is of an emulated arm64 machine ({SPEC}). Its counters of "
            "instructions and cycles are real to the recorder, its processor is none: it has no "
            "caches and no pipeline, and what it counts is not time."
        )


PARTS = Parts(
    measure=measure,
    rules=RULES,
    figures=FIGURES,
    tables=TABLES,
    setup=_setup,
    cautions=_cautions,
    roles=ROLES,
)
