"""What the study is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vtax.core.page.format import significant
from vtax_studies.dav2m import traced
from vtax_studies.dav2m.claims import RULES
from vtax_studies.dav2m.data import Data
from vtax_studies.dav2m.differences import DIFFERS
from vtax_studies.dav2m.figures import FIGURES
from vtax_studies.dav2m.figures_workloads import traced_table
from vtax_studies.dav2m.kinds import kinds_table
from vtax_studies.dav2m.sensitivity import choices_table, conclusions_table
from vtax_studies.dav2m.setup import (
    CLOSE_PERCENT,
    INDIFFERENT_PERCENT,
    MACHINE,
    MACHINE_TITLES,
    SECOND_MACHINE,
)
from vtax_studies.dav2m.simulate import planned, run
from vtax_studies.model import Parts, Progress, StudyOptions
from vtax_studies.rule import FACTOR

CAUTIONS = (
    "Every number is a model's: no hardware ran, and all cycles are modelled.",
    "The benchmarks are synthetic profiles, made from what the paper's text says of them and tuned "
    "to it. Claims marked “fitted” are such statements, or ones for which profiles, or lengths of "
    "runs, were changed until they held; that they hold shows that the profiles do what they "
    "were made for, and nothing more.",
    "The pictures of the paper's figures are lost in the scan that was available; beside each "
    "figure stands what the paper's text says of it.",
)


def _measure(options: StudyOptions, progress: Progress) -> Data:
    """Simulate what the options ask for."""
    data = run(planned(options), progress)
    if not options.traced:
        return data
    found = traced.measure(options, data, progress)
    return replace(data, traced=found if found.programs else None, left_out=found.left_out)


def _setup(data: Data, options: StudyOptions) -> Iterator[tuple[str, str]]:
    machines = " and ".join(MACHINE_TITLES[name] for name in (MACHINE, SECOND_MACHINE))
    yield "Machines", f"models of the {machines}; no TLB tags"
    yield "Guest", "32-bit, two-level page tables with 4K pages, 2 GB of memory (section 4)"
    yield "Figure 2", "natively, a 64-bit system with four-level tables"
    yield "Nested paging", "four-level tables with 2M pages"
    yield "Shadow paging", "with caching, as Palacios does it: 4K pages"
    yield "Windows", "1e9 instructions"
    yield "Length", "each profile's whole run, computed from samples of its phases"
    if data.traced is not None:
        yield "Traced guest", f"emulated, {traced.MEMORY}, four-level tables, kernel with nopti"
        yield "Windows of a trace", f"its instructions over {traced.WINDOWS}"
        yield "Large pages of a trace", f"guest kernel with {traced.KERNEL['2M']}"
    if not data.modes.is_empty():
        error = data.modes["relative_error_percent"].max()
        if isinstance(error, float):
            yield (
                "Sampling error",
                (
                    f"at most {significant(error, 2)} % of a mode's cycles (95 % interval of the "
                    "batches; a longer warm-up is not covered)"
                ),
            )
    yield "Alike", f"two modes within {INDIFFERENT_PERCENT:g} %; the study's choice"
    yield "Virtually identical", f"within {CLOSE_PERCENT:g} % (section 1)"
    yield "Sizes", f"agree within a factor of {FACTOR:g}; the study's choice"
    yield "Seed of the random numbers", str(options.seed)


PARTS = Parts(
    measure=_measure,
    rules=RULES,
    figures=FIGURES,
    tables=(traced_table, kinds_table, conclusions_table, choices_table),
    setup=_setup,
    cautions=lambda data: CAUTIONS,
    differs=DIFFERS,
)
