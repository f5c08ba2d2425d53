"""What the study is made of."""

from __future__ import annotations

from collections.abc import Iterator

from vtax_studies.explain.claims import RULES
from vtax_studies.explain.data import Data
from vtax_studies.explain.figures import FIGURES, TABLES
from vtax_studies.explain.measure import measure
from vtax_studies.explain.setup import ROLES, SAME
from vtax_studies.model import Parts, StudyOptions


def _setup(data: Data, _options: StudyOptions) -> list[tuple[str, str]]:
    plan = data.plan
    bases = dict.fromkeys(
        bill.baseline for run in data.runs.values() for bill in run.bills.values()
    )
    return [
        ("Environments", ", ".join(plan.environments)),
        ("Compared with", ", ".join(bases)),
        ("A/A", f"{SAME} against native, in each program's campaign"),
        ("Programs", f"{len(data.runs)} of real ones, loops and changes"),
        ("Rounds", f"{plan.rounds}, in random order"),
        ("Counts", "two native runs of their own (eBPF)"),
    ]


def _cautions(_data: Data) -> Iterator[str]:
    yield (
        "Targets, programs, inputs and changes are vtax's own choice. What is called native may "
        "itself be virtual. Loops run what prices were made from in other circumstances."
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
