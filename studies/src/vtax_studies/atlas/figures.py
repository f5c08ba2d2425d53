"""All figures; 8 to 15 and their tables, beside what the paper says about each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from vtax.core.page.format import significant
from vtax.core.page.page import HeatMap
from vtax.core.page.plotting import Figure
from vtax.memory.analysis import NO_TLB, PARTS
from vtax.memory.record import MemoryEnvironment, MemoryPoint
from vtax_studies.atlas import figures_tuning
from vtax_studies.atlas.data import Data, TlbMisses
from vtax_studies.atlas.figures_tuning import HEIGHT, LOOKS
from vtax_studies.atlas.setup import LARGE_MB, MODEL, SMALL_MB, STATED, Place
from vtax_studies.model import StudyFigure, StudyTable
from vtax_studies.plots import Series, bars, curve, lines, value_text
from vtax_studies.rule import Missing, some

MIB = 1 << 20
Maker = Callable[[Data], StudyFigure]


@dataclass(frozen=True, slots=True)
class Model:
    """How a figure shows what was modelled."""

    what: str
    misses: Callable[[TlbMisses], float]


def _curves(
    number: str, title: str, caption: str, axis: str, quantity: str, unit: float = 1.0
) -> Maker:
    """A maker of a figure that shows a quantity over the sizes, for each size of memory."""

    def make(data: Data) -> StudyFigure:
        panels = []
        for megabytes in (SMALL_MB, LARGE_MB):
            traces = []
            for place, found in data.of(megabytes).items():
                points = [point for point in found.points if point.n]
                values = [getattr(point, quantity) for point in points]
                if all(each is None for each in values):
                    continue
                sizes = [point.size for point in points]
                scaled = [None if each is None else each / unit for each in values]
                traces.append(curve(LOOKS[place.kernel], sizes, scaled))
            some(traces, f"no machine says its {quantity}")
            plot = lines(traces, "Rows of each matrix", axis, HEIGHT, legend_rows=len(traces))
            text = f"{title} with {megabytes} MB of memory; the values are in the tables."
            panels.append(Figure(f"{megabytes} MB", "Medians of the runs.", text, plot))
        return StudyFigure(number, title, caption, STATED[number], panels, columns=2)

    return make


def kernels(data: Data) -> StudyFigure:
    """What each kernel takes of its machine's memory."""
    own = data.of(SMALL_MB)
    names = [LOOKS[place.kernel].name for place in own]
    known = [{part for part, size in each.kernel_bytes.items() if size} for each in own.values()]
    kinds = [part for part in PARTS if part in set().union(*known)]
    series = [
        Series(
            LOOKS[place.kernel],
            [_mib(found, part) for part in kinds],
            [value_text(_mib(found, part)) for part in kinds],
        )
        for place, found in own.items()
    ]
    plot = bars(kinds, series, "MiB")
    caption = f"With {SMALL_MB} MB. Natively it is the host's kernel, outside the limit."
    text = f"Kernel memory by part, for {', '.join(names)}; the values are in the tables."
    panel = Figure("Kernel memory", "What is absent the machine does not show.", text, plot)
    return StudyFigure("9", "Memory of each kernel", caption, STATED["9"], [panel])


def _tlb(number: str, title: str, caption: str, quantity: str, model: Model) -> Maker:
    """A maker of a figure of misses by the PMU, and by the model."""

    def make(data: Data) -> StudyFigure:
        panels: list[Figure | HeatMap] = []
        with contextlib.suppress(Missing):
            panels += _curves(number, title, caption, "Misses", quantity)(data).panels
        if data.modelled:
            misses = [model.misses(each) for each in data.modelled.values()]
            trace = curve(LOOKS[MODEL], list(data.modelled), misses)
            plot = lines([trace], "Rows of each matrix", "Misses", HEIGHT, legend_rows=1)
            text = f"{title} by the model, of {min(data.modelled)} to {max(data.modelled)} rows."
            panels.append(Figure("Model", model.what, text, plot))
        found = some(panels, NO_TLB)
        return StudyFigure(number, title, caption, STATED[number], found, columns=2)

    return make


FIGURES: dict[str, Maker] = {
    **figures_tuning.FIGURES,
    "8": _curves(
        "8", "DGEMM as matrices outgrow the memory", "A fresh process for each run, sizes and "
        "places in random order.", "Mflop/s", "median",
    ),
    "9": kernels,
    "10": _curves(
        "10", "Largest resident set of the driver", "By wait4.", "MiB", "max_rss_bytes", MIB
    ),
    "11": _curves(
        "11", "Swap in use", "The most at a time; natively that of the driver's control group.",
        "MiB", "swap_bytes", MIB,
    ),
    "12": _curves("12", "Major faults of the driver", "By wait4.", "Faults", "major_faults"),
    "13": _curves("13", "Minor faults of the driver", "By wait4.", "Faults", "minor_faults"),
    "14": _tlb(
        "14", "Data TLB misses of the driver", "Misses of its loads, by the PMU.", "dtlb_misses",
        Model(
            "Modelled on 64 entries, from traces of the driver and the kernel below it.",
            lambda misses: misses.of_data,
        ),
    ),
    "15": _tlb(
        "15", "Instruction TLB misses of the driver", "By the PMU.", "itlb_misses",
        Model(
            "Modelled on 32 entries, from the blocks that the driver and the kernel below it "
            "execute in an emulator; the kernel's code is in pages of 2 MiB.",
            lambda misses: misses.of_instructions,
        ),
    ),
}  # fmt: skip


def edges_table(data: Data) -> StudyTable:
    """Figure 8 in numbers."""
    rows = []
    for place, found in data.found.items():
        if found.cliff is None:
            rows.append((place.name, "no cliff", "", "", ""))
            continue
        size, low, high = found.cliff.size, found.cliff.low, found.cliff.high
        points = {point.size: point for point in found.points}
        before = points[size].median if size is not None else None
        user = "" if found.user_bytes is None else f"{found.user_bytes / MIB:.0f} MiB"
        rows.append(
            (place.name, str(size or "the smallest"), f"{low or 0} to {high}",
             significant(before, 3), user)
        )  # fmt: skip
    return StudyTable(
        "edges",
        "Figure 8. Where performance falls",
        "The largest size before it, the 95 % interval of the edge, and the program's resident set "
        "there.",
        ("Place", "Falls past", "Edge", "Mflop/s before", "Program's memory"),
        some(rows),
    )


def points_table(data: Data) -> StudyTable:
    """Figures 8 and 10 to 13 in numbers."""
    rows = [_row(place, point) for place, found in data.found.items() for point in found.points]
    return StudyTable(
        "points",
        "Figures 8 and 10 to 13",
        "Medians; performance with its smallest and largest value.",
        ("Place", "Size", "Runs", "Mflop/s", "Range", "Resident MiB", "Swap MiB", "Major faults",
         "Minor faults"),
        some(rows),
    )  # fmt: skip


def _row(place: Place, point: MemoryPoint) -> tuple[str, ...]:
    span = f"{significant(point.low, 3)} to {significant(point.high, 3)}" if point.n > 1 else ""
    level = significant(point.median, 3) if point.n else point.end
    sizes = (
        "" if each is None else f"{each / MIB:.1f}"
        for each in (point.max_rss_bytes, point.swap_bytes)
    )
    faults = (
        "" if each is None else f"{each:,.0f}" for each in (point.major_faults, point.minor_faults)
    )
    return (place.name, str(point.size), str(point.n), level, span, *sizes, *faults)


def modelled_table(data: Data) -> StudyTable:
    """Figures 14 and 15 by the model in numbers."""
    rows = [
        (
            str(size),
            f"{misses.of_data:,.0f}",
            significant(misses.of_data / size**2, 3),
            f"{misses.of_instructions:,.0f}",
        )
        for size, misses in data.modelled.items()
    ]
    return StudyTable(
        "modelled",
        "Figures 14 and 15 by the model",
        "TLB misses of the driver and the kernel below it, on 64 entries for data and 32 for "
        "instructions.",
        ("Rows", "Data", "Over the rows squared", "Instructions"),
        some(rows),
    )


def kernel_table(data: Data) -> StudyTable:
    """Figure 9 in numbers."""
    rows = [
        (
            place.name,
            *(value_text(_mib(found, part)) for part in PARTS),
            value_text(None if found.others_bytes is None else found.others_bytes / MIB),
        )
        for place, found in data.found.items()
    ]
    return StudyTable(
        "kernels",
        "Figure 9. Memory of each kernel, and of all other processes (MiB)",
        "Natively that of the host. What is empty the machine does not show.",
        ("Place", *PARTS, "other processes"),
        some(rows),
    )


def _mib(found: MemoryEnvironment, part: str) -> float | None:
    size = found.kernel_bytes.get(part)
    return None if size is None else size / MIB


TABLES = (*figures_tuning.TABLES, edges_table, points_table, kernel_table, modelled_table)
