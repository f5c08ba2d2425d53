"""What the study is made of."""

from __future__ import annotations

from collections.abc import Iterator

from vtax_studies.hpcc.claims import RULES
from vtax_studies.hpcc.data import Data
from vtax_studies.hpcc.figures import FIGURES, TABLES
from vtax_studies.hpcc.measure import measure
from vtax_studies.hpcc.setup import FULL, NATIVE, PROCESSES, QUICK, ROLES
from vtax_studies.model import Parts, StudyOptions


def _setup(data: Data, options: StudyOptions) -> list[tuple[str, str]]:
    plan = QUICK if options.quick else FULL
    rounds = len({each.round for each in data.observations[NATIVE]})
    return [
        *((name, f"{each.spec}: {each.description}") for name, each in data.places.items()),
        ("Sizes", ", ".join(f"N = {size}" for size in plan.sizes)),
        ("Sizes where emulated", ", ".join(f"N = {size}" for size in plan.emulated_sizes)),
        ("Processes", f"1; for messages {PROCESSES}, N = {plan.message_size} (the paper: 8)"),
        ("Rounds", f"{rounds} begun of {plan.rounds} within {plan.budget_s:g} s, of 5 passes each"),
    ]


def _cautions(data: Data) -> Iterator[str]:
    for name, messages in data.failures.items():
        yield f"{name}: {len(messages)} runs gave nothing, the first: {messages[0]}"
    yield (
        "The paper's virtual machines are VMware Player, VirtualBox and KVM of 2011, with HPL from "
        "N = 1000 on; these are other ones, with smaller problems and one process, for messages "
        "two. What holds or does not here says nothing against the paper's own runs. Native may "
        "itself be virtual."
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
