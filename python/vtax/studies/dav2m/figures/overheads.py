"""Figures 4 and 10: modelled execution time beyond native."""

from __future__ import annotations

from collections.abc import Sequence

from vtax.present.format import signed
from vtax.present.html.plotting import Figure
from vtax.studies.dav2m import measures as m
from vtax.studies.dav2m.data import Data, need
from vtax.studies.dav2m.figures.parts import Series, bars, look
from vtax.studies.dav2m.setup import FOCUS, MACHINE, MACHINE_TITLES, SECOND_MACHINE
from vtax.studies.model import StudyFigure

EXTRA = ("vtax", "oracle")
"""Not in the seed: vtax's own policy and the offline optimum."""


def figure_4(data: Data) -> StudyFigure:
    """Nested and shadow paging over native."""
    need(data.modes, "the focused benchmarks under every mode")
    return StudyFigure(
        "4",
        "Nested and shadow paging compared with native (model)",
        "Modelled cycles beyond native, in percent of native; lower is better.",
        "Neither mode is consistently superior (section 4); they differ by up to 105 % (section "
        "1); nested paging costs zeusmp 8 % more than shadow paging (section 6).",
        [_panel(data, MACHINE, ("nested", "shadow"))],
    )


def figure_10(data: Data) -> StudyFigure:
    """DAV2M beside both static modes, on both machines."""
    need(data.modes, "the focused benchmarks under every mode")
    machines = [m for m in (MACHINE, SECOND_MACHINE) if m in set(data.modes["machine"])]
    present = set(data.modes["mode"])
    modes = ("nested", "shadow", "dav2m", *(mode for mode in EXTRA if mode in present))
    return StudyFigure(
        "10",
        "DAV2M and the static modes on two processors (model)",
        "Modelled cycles beyond native, in percent of native; lower is better. Hatched bars are "
        "vtax's own additions and not part of the paper's figure.",
        "DAV2M is virtually identical to the best static mode for every benchmark on both machines "
        "(section 7), and within 5 to 8 % of native for a range of benchmarks (abstract).",
        [_panel(data, machine, modes) for machine in machines],
        columns=2,
    )


def _panel(data: Data, machine: str, modes: Sequence[str]) -> Figure:
    values = {mode: [m.overhead(data, machine, name, mode) for name in FOCUS] for mode in modes}
    series = [Series(look(mode), found) for mode, found in values.items()]
    spoken = "; ".join(
        f"{name}: " + ", ".join(f"{look(mode).name} {signed(values[mode][at])}" for mode in modes)
        for at, name in enumerate(FOCUS)
    )
    title = MACHINE_TITLES[machine]
    return Figure(
        title,
        "overhead over native, %",
        f"Bars of the modelled overhead over native in percent on the {title}: {spoken}.",
        bars(FOCUS, series, "modelled overhead over native, %"),
    )
