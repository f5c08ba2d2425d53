"""What the study is made of."""

from __future__ import annotations

from collections.abc import Iterator

from vtax_studies.asymmetric_cores.claims import RULES
from vtax_studies.asymmetric_cores.data import Data
from vtax_studies.asymmetric_cores.figures import FIGURES, TABLES
from vtax_studies.asymmetric_cores.measure import measure
from vtax_studies.asymmetric_cores.setup import CPU_BOUND, EMULATED, ROLES
from vtax_studies.model import Parts, StudyOptions


def _setup(data: Data, options: StudyOptions) -> Iterator[tuple[str, str]]:
    described: dict[str, str] = {}
    for record in data.records():
        for each in record.environments:
            service = ", ".join(each.service) or "none of its own"
            described.setdefault(each.spec, f"{each.description}; service: {service}")
    yield from described.items()
    for record in data.records()[:1]:
        yield "Speeds", f"{', '.join(f'{speed:g}' for speed in record.speeds)} % of full speed"
        yield (
            "Measurements",
            f"{record.rounds} rounds of {record.seconds:g} s, each beside a control at full speed",
        )


def _cautions(data: Data) -> Iterator[str]:
    records = data.records()
    for name, what in {n: w for each in records for n, w in each.does_not.items()}.items():
        yield f"A core slowed by {name} is no slow core. It does not reproduce: {what}."
    for record in records:
        yield from (f"failed: {text}" for text in record.failures)
        for each in record.environments:
            yield from (f"{each.spec}: {text}" for text in (each.absent, *each.notes) if text)
            if EMULATED in each.description:
                yield (
                    f"{each.spec} is emulated: its vCPU needs many times the CPU time of a real "
                    "one, its service does not, so that it is rather the guest that limits."
                )
        yield from record.findings
    yield from _ALWAYS


_ALWAYS = (
    f"{CPU_BOUND} stands in for SPEC CPU2006. The paper slows the guest's cores for SPEC, and "
    "dom0's for the others; so does this study. A quota or a hog takes the same share of all "
    "work, so that it is expected to keep 50 % here; with a lower clock memory is as fast as "
    "before, and work that waits for it loses less.",
    "The link is shaped by a token bucket filter: 100 % of it is 1 Gbit/s. The paper's 100 % is 10 "
    "Gbit/s.",
    "The paper's ab has four guests; so has the switch of four here. Elsewhere ab has one guest "
    "and ten connections. netperf is iperf3 here. On few CPUs client, guest and service share "
    "them.",
    "The paper's text is not consistent: ab loses 14 % in section 3.1 and 19 % in 3.2, netperf TCP "
    "15 % and 20 %; table 1 varies domU's clock alone, section 2 dom0's; and a lower clock should "
    "not halve the instructions for each cycle by which section 3.1 measures SPEC. Its figures are "
    "not in the text that is available. What holds or does not here says nothing against the "
    "paper's own runs.",
)
"""What limits the comparison, whatever was measured."""

PARTS = Parts(
    measure=measure,
    rules=RULES,
    figures=FIGURES,
    tables=TABLES,
    setup=_setup,
    cautions=_cautions,
    roles=ROLES,
)
