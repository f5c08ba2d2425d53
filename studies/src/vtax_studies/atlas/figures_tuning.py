"""Figures 2 to 7 and tables 3 to 5, beside what the paper says about each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from vtax.core.page.plotting import Figure
from vtax.tune.record import TuneEnvironment
from vtax_studies.atlas.claims_tuning import chosen, detected
from vtax_studies.atlas.data import Data
from vtax_studies.atlas.setup import (
    BARE,
    DETECTED,
    DOM0,
    DOMU,
    GENERATED,
    KVM,
    LARGE_MB,
    MODEL,
    NATIVE,
    SMALL_MB,
    STATED,
    UML,
    Place,
)
from vtax_studies.model import StudyFigure, StudyTable
from vtax_studies.plots import Look, Series, bars, curve, lines, value_text
from vtax_studies.rule import some

KIB = 1 << 10
UNTUNED = "nothing was tuned"
HEIGHT = 260.0
LOOKS = {
    NATIVE: Look(NATIVE, "var(--env-baseline)"),
    UML: Look(UML, "var(--env-1)", "/", "dash"),
    KVM: Look(KVM, "var(--env-2)", "-", "longdashdot"),
    BARE: Look(BARE, "var(--env-2)", ".", "dot"),
    DOM0: Look(DOM0, "var(--env-3)", "x", "dashdot"),
    MODEL: Look(MODEL, "var(--env-1)"),
    DOMU: Look(DOMU, "var(--env-4)", "\\", "longdash"),
}


def peaks(data: Data) -> StudyFigure:
    """Each instruction set's register peak."""
    names = sorted({p.name for each in data.tuned.values() for p in each.probes
                    if p.name.startswith("peak_") and p.value is not None})  # fmt: skip

    def value(found: TuneEnvironment, name: str) -> float | None:
        return next((probe.value for probe in found.probes if probe.name == name), None)

    return _bars(
        data, "2", "Register-to-register performance",
        "By vtax-agent probe: operands stay in registers.",
        [name.removeprefix("peak_") for name in names],
        lambda found: [value(found, name) for name in names],
    )  # fmt: skip


def l1_alone(data: Data) -> StudyFigure:
    """The large product with blocks for L1 only."""
    sizes = {each.cache_edge.size for each in data.tuned.values() if each.cache_edge}
    return _bars(
        data, "3", "DGEMM blocked for L1 only",
        "Emulated processors multiply smaller matrices.",
        [f"{size} rows" for size in sorted(sizes)],
        lambda found: [
            found.cache_edge.l1_only.gflops
            if found.cache_edge and found.cache_edge.l1_only and found.cache_edge.size == size
            else None
            for size in sorted(sizes)
        ],
    )  # fmt: skip


def edges(data: Data) -> StudyFigure:
    """Performance against CacheEdge."""
    panels = []
    for megabytes in (SMALL_MB, LARGE_MB):
        traces = [
            curve(
                LOOKS[place.kernel],
                [point.bytes / KIB for point in found.cache_edge.points],
                [point.gflops for point in found.cache_edge.points],
            )
            for place, found in data.tuned.items()
            if place.megabytes == megabytes and found.cache_edge
        ]
        if traces:
            plot = lines(traces, "CacheEdge (KiB)", "GFLOP/s", HEIGHT, legend_rows=len(traces))
            plot["layout"]["xaxis"] |= {"type": "log", "dtick": "D1"}
            text = f"Performance against CacheEdge with {megabytes} MB; table 4 has the choices."
            panels.append(Figure(f"{megabytes} MB", "Medians of the runs.", text, plot))
    return _figure("4", "DGEMM blocked for L2", "The block of A takes so much.", panels, columns=2)


def choices(data: Data) -> StudyFigure:
    """How often each edge was chosen."""
    sizes = sorted({size for each in data.tuned.values() if each.cache_edge
                    for size in each.cache_edge.chosen if size is not None})  # fmt: skip

    def counted(found: TuneEnvironment) -> Sequence[float | None]:
        if found.cache_edge is None:
            return [None] * len(sizes)
        counts = Counter(found.cache_edge.chosen)
        return [float(counts[size]) for size in sizes]

    return _bars(
        data, "5", "CacheEdge that each run chose",
        "Without runs in which blocking for L1 alone was fastest.",
        [f"{size / KIB:.0f} KiB" for size in sizes], counted, "Runs",
    )  # fmt: skip


def libraries(data: Data) -> StudyFigure:
    """Generated code by its instruction set, the winner, and the libraries."""
    tunings = (*data.tuned.values(), *data.single.values())
    names = list(dict.fromkeys(p.name for each in tunings for p in each.peers))
    restricted = [name for name in names if name in GENERATED]
    libraries = sorted(set(names) - set(restricted))

    def rates(found: TuneEnvironment) -> Sequence[float | None]:
        own = {routine.name: routine.gflops for routine in found.routines}
        peers = {peer.name: peer.gflops for peer in found.peers}
        return [
            *(peers.get(name) for name in restricted),
            next((own[name] for name in ("dgemm_nn", "sgemm_nn") if name in own), None),
            *(peers.get(name) for name in libraries),
        ]

    return _bars(
        data, "6", "Generated and hand-written kernels",
        "GEMM in turns: generated code that is scalar, that has SSE2 only, and the winner; then "
        "libraries with kernels by hand. In double precision where the title says no other.",
        [*restricted, "generated", *libraries], rates,
        tunings={"": data.tuned, ", single precision": data.single},
    )  # fmt: skip


def routines(data: Data) -> StudyFigure:
    """Every routine with its tuned parameters."""
    names = [each.name for found in data.tuned.values() for each in found.routines]
    names = list(dict.fromkeys(names))

    def rates(found: TuneEnvironment) -> Sequence[float | None]:
        own = {routine.name: routine.gflops for routine in found.routines}
        return [own.get(name) for name in names]

    return _bars(
        data, "7", "Routines with tuned parameters", "Medians of the rounds.", names, rates
    )


FIGURES: dict[str, Callable[[Data], StudyFigure]] = {
    "2": peaks, "3": l1_alone, "4": edges, "5": choices, "6": libraries, "7": routines,
}  # fmt: skip


def _bars(
    data: Data,
    number: str,
    title: str,
    caption: str,
    categories: Sequence[str],
    values: Callable[[TuneEnvironment], Sequence[float | None]],
    axis: str = "GFLOP/s",
    tunings: Mapping[str, Mapping[Place, TuneEnvironment]] | None = None,
) -> StudyFigure:
    """A figure with a panel for each size of memory and bars for its kernels.

    `tunings` are those to show by what their panels' titles add; None: those in double precision.
    """
    panels = []
    tunings = {"": data.tuned} if tunings is None else tunings
    for (added, tuned), megabytes in product(tunings.items(), (SMALL_MB, LARGE_MB)):
        own = {place: values(found) for place, found in tuned.items()
               if place.megabytes == megabytes}  # fmt: skip
        own = {place: found for place, found in own.items() if any(found)}
        if own:
            series = [
                Series(LOOKS[place.kernel], found, [value_text(each) for each in found])
                for place, found in own.items()
            ]
            memory = f"{megabytes} MB{added}"
            text = f"{title} with {memory}: {', '.join(place.name for place in own)}."
            plot = bars(categories, series, axis)
            panels.append(Figure(memory, caption, text, plot))
    return _figure(number, title, caption, panels, columns=2)


def _figure(
    number: str, title: str, caption: str, panels: Sequence[Figure], columns: int
) -> StudyFigure:
    panels = some(panels, UNTUNED)
    return StudyFigure(number, title, caption, STATED[number], panels, columns=columns)


def detection_table(data: Data) -> StudyTable:
    """Table 3."""
    rows = [
        (place.name, *(detected(found, name) for name in DETECTED))
        for place, found in data.tuned.items()
    ]
    return StudyTable(
        "detection", "Table 3. What detection finds",
        "The paper: L1 16 KB, pipeline 6 cycles, 15 registers, in every kernel.",
        ("Place", *DETECTED.values()), some(rows, UNTUNED),
    )  # fmt: skip


def edges_table(data: Data) -> StudyTable:
    """Table 4."""
    rows = [
        (
            place.name,
            f"{found.cache_edge.size}",
            f"{middle / KIB:.0f} KiB" if (middle := chosen(found.cache_edge)) else "L1 only",
            str(len(found.cache_edge.chosen)),
        )
        for place, found in data.tuned.items()
        if found.cache_edge
    ]
    return StudyTable(
        "cache-edge", "Table 4. Median of the chosen CacheEdge",
        "The paper: 1024, 1536, 1152, 1536, 1536, 1024 KB.",
        ("Place", "Rows", "CacheEdge", "Runs"), some(rows, UNTUNED),
    )  # fmt: skip


def parameters_table(data: Data) -> StudyTable:
    """Table 5."""
    rows = [
        (place.name, routine.routine, " ".join(f"{k}={v}" for k, v in routine.fields.items()))
        for place, found in data.tuned.items()
        for routine in found.searched
        if routine.routine in {"dgemm_nn", "dgemv_n", "dgemv_t", "dger"}
    ]
    return StudyTable(
        "parameters", "Table 5. Tuned parameters",
        "GEMM's four forms have one set. The paper: NB 36, MU 6, NU 1, KU 48 in every kernel.",
        ("Place", "Routine", "Parameters"), some(rows, UNTUNED),
    )  # fmt: skip


TABLES = (detection_table, edges_table, parameters_table)
