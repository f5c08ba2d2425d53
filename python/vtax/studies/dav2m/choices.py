"""What each open point of DAV2M changes."""

from __future__ import annotations

from collections.abc import Iterator

from vtax.present.format import significant
from vtax.studies.dav2m.data import Data, need
from vtax.studies.dav2m.setup import CHOICES, DEFAULTS, PHASED
from vtax.studies.model import StudyTable


def table(data: Data) -> StudyTable:
    """Switches and overhead of gzip and gcc with one choice changed at a time."""
    need(data.choices, "variants of DAV2M")
    headings = ["Parameter", "Left open by the paper", "Setting"]
    for name in PHASED:
        headings += [f"{name}: switches", f"{name}: overhead (model)"]
    return StudyTable(
        "choices",
        "What each open choice of DAV2M changes",
        "The paper's text and pseudo-code leave these points open. Each row changes one of them "
        "and keeps the others at vtax's defaults.",
        headings,
        list(_rows(data)),
    )


def _rows(data: Data) -> Iterator[list[str]]:
    yield ["all", "", "defaults", *_cells(data, "", "")]
    for choice in CHOICES:
        setting = f"{choice.shown} (default {DEFAULTS[choice.parameter]})"
        cells = _cells(data, choice.parameter, choice.shown)
        yield [choice.parameter, choice.question, setting, *cells]


def _cells(data: Data, parameter: str, setting: str) -> Iterator[str]:
    for name in PHASED:
        rows = data.choices.filter(benchmark=name, parameter=parameter, setting=setting).to_dicts()
        if rows:
            yield f"{rows[0]['switches']:.0f}"
            yield f"{significant(rows[0]['overhead_percent'], 3)} %"
        else:
            yield from ("not simulated", "not simulated")
