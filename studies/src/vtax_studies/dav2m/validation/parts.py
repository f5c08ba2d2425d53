"""What `--validate` is made of: a rule for each quantity, and the table of all counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median

import polars as pl

from vtax.core.page.format import significant
from vtax_studies.dav2m.validation.cycles import (
    HOST_PAGES,
    predicts_order,
    predicts_ratios,
    ratios,
)
from vtax_studies.dav2m.validation.measure import (
    MACHINE,
    MEMORY,
    QUANTITIES,
    Data,
    Quantity,
    measure,
)
from vtax_studies.model import Parts, StudyOptions, StudyTable
from vtax_studies.rule import Judgement, Missing, Rule, some, wrong

MANY, SOME = 1000.0, 30.0
"""Counts from which on the bounds of MANY and of SOME hold; smaller counts are not judged."""
BOUNDS = {MANY: 0.10, SOME: 0.25}
CAUTIONS = (
    "Predictions are a model's. Counts are stock KVM's, on an emulated processor.",
    "Every count is less that of `true` in the same place: starting and watching a program takes "
    "exits of its own.",
)


def bound(counted: float) -> float | None:
    """How far a prediction may be from the count, as a share; None where it is not judged."""
    return next((share for least, share in BOUNDS.items() if counted >= least), None)


def within(predicted: float, counted: float) -> bool | None:
    """Whether a prediction is near enough; None where the count is too small to say."""
    share = bound(counted)
    return None if share is None else abs(predicted / counted - 1) <= share


def predicts(quantity: Quantity, data: Data) -> Judgement:
    """Whether all predictions of the quantity that can be judged are within their bounds."""
    rows = _rows(data.counts.filter(pl.col("quantity") == quantity.name))
    judged = {name: within(value, count) for name, value, count, _ in rows}
    known = {name: holds for name, holds in judged.items() if holds is not None}
    if not known:
        raise Missing(f"no program has {SOME:g} or more")
    far = [name for name, holds in known.items() if not holds]
    reason = (
        f"Holds within {BOUNDS[MANY]:.0%} from {MANY:g} on, {BOUNDS[SOME]:.0%} from {SOME:g} on."
    )
    ours = f"{len(known) - len(far)} of {len(known)} programs"
    return Judgement(ours, not far, reason + wrong(far))


def counts_table(data: Data) -> StudyTable:
    """All counts."""
    rows = []
    for each in QUANTITIES:
        own = data.counts.filter(pl.col("quantity") == each.name)
        for name, value, count, spread in _rows(own):
            texts = (f"{value:,.0f}", f"{count:,.0f}", spread, _ratio(value, count))
            rows.append((name, each.name, *texts))
    return StudyTable(
        "validation",
        "Predicted and counted",
        "The median of the repetitions, less that of `true`; * is beyond its bound.",
        ("Program", "Quantity", "Predicted", "Counted", "from to", "Predicted / counted"),
        rows,
    )


def cycles_table(data: Data) -> StudyTable:
    """The ratios of 4K to huge pages."""
    rows = []
    for name, *predicted, measured in ratios(data.cycles):
        spread = f"{min(measured):.2f} to {max(measured):.2f}"
        middle = median(measured)
        texts = [f"{each:.2f} ({each / middle - 1:+.0%})" for each in predicted]
        rows.append((name, *texts, f"{middle:.2f}", spread))
    return StudyTable(
        "cycles",
        "Predicted cycles and measured time: 4K over huge pages",
        "On this machine. The model's, with its error, for each size of the host's pages.",
        ("Program", *(f"host {page}" for page in HOST_PAGES), "Measured", "from to"),
        some(rows, "no cycles were predicted"),
    )


def _ratio(predicted: float, counted: float) -> str:
    if counted < SOME:
        return "few"
    return f"{significant(predicted / counted, 2)}{'' if within(predicted, counted) else ' *'}"


def _rows(counts: pl.DataFrame) -> Iterator[tuple[str, float, float, str]]:
    """Program, prediction, median count, smallest and largest count."""
    for row in counts.iter_rows(named=True):
        found = row["counted"]
        spread = f"{min(found):,.0f} to {max(found):,.0f}"
        yield row["program"], row["predicted"], median(found), spread


def _setup(data: Data, options: StudyOptions) -> Sequence[tuple[str, str]]:
    return (
        ("Traced guest", f"emulated, {MEMORY}, Debian's kernel with nokaslr no5lvl nopti"),
        ("Counted guest", f"nested guest of the lab, {MEMORY}, the same kernel, host pages of 4K"),
        ("Simulated as", f"{MACHINE}, host pages of 4K"),
        ("Warm-up", "each program runs once before, in both guests"),
    )


_COUNTS: Sequence[Rule[Data]] = tuple(
    Rule(
        each.name.replace(" ", "-"),
        each.mode,
        f"The model predicts {each.name.removesuffix(' nested')}: {each.about}",
        "10 or 25 %",
        partial(predicts, each),
    )
    for each in QUANTITIES
)
_CYCLES: Sequence[Rule[Data]] = (
    Rule(
        "cycles-ratios",
        "time",
        "The model predicts what huge pages save, whatever the working set",
        "25 %",
        lambda data: predicts_ratios(data.cycles),
    ),
    Rule(
        "cycles-order",
        "time",
        "The model predicts which of two settings takes longer",
        "each pair",
        lambda data: predicts_order(data.cycles),
    ),
)

PARTS = Parts(
    measure=measure,
    rules=(*_COUNTS, *_CYCLES),
    figures={},
    tables=(counts_table, cycles_table),
    setup=_setup,
    cautions=lambda data: CAUTIONS,
)
