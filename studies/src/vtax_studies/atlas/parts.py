"""What the study is made of."""

from __future__ import annotations

from collections.abc import Iterator

from vtax_studies.atlas import claims_tuning
from vtax_studies.atlas import data as m
from vtax_studies.atlas.claims import RULES
from vtax_studies.atlas.data import Data
from vtax_studies.atlas.figures import FIGURES, TABLES
from vtax_studies.atlas.measure import measure
from vtax_studies.atlas.setup import FULL, QUICK, ROLES
from vtax_studies.model import Parts, StudyOptions


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
         f"{plan.emulated_runs} of {', '.join(map(str, plan.emulated_sizes))}; the first "
         f"{plan.emulated_columns} columns of each product"),
    ]  # fmt: skip


def _cautions(data: Data) -> Iterator[str]:
    for place, each in data.tuned.items():
        yield from (f"{place.name}, tuning: {text}" for text in (*each.failures, *each.notes))
    for place, found in data.found.items():
        for point in found.points:
            if point.failed:
                size, message = point.size, point.message
                yield f"{place.name}: {point.failed} runs of size {size} failed: {message}"
    yield (
        "The paper's kernels were native Linux and Xen's domains on one machine of 2008. Where "
        "nothing is emulated, native memory is a control group's limit, so the kernel itself does "
        "not count in it; and native may itself be virtual. Where the machine is emulated, one "
        "distribution's kernel is all three, and times are the emulator's: counts, sizes and "
        "choices are what carries over. What holds or does not here says nothing against the "
        "paper's own runs."
    )


PARTS = Parts(
    measure=measure,
    rules=(*claims_tuning.RULES, *RULES),
    figures=FIGURES,
    tables=TABLES,
    setup=_setup,
    cautions=_cautions,
    roles=ROLES,
)
