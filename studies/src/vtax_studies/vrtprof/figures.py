"""Figures 2 to 7, tables II and IV, and the pairs of figures 2 and 3, beside the paper's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from vtax.core.page.format import signed, significant
from vtax.core.page.page import Figure, HeatMap
from vtax.core.recorder.intervals import Recording
from vtax.core.recorder.ways import Axis, By, Per
from vtax.record.correlate.analysis import Matrix, difference
from vtax.record.correlate.page import change_figure, matrix_figure
from vtax.record.timeline.analysis import timeline
from vtax.record.timeline.page import timeline_figure
from vtax_studies.model import StudyFigure, StudyTable
from vtax_studies.rule import Missing, some
from vtax_studies.vrtprof import data as m
from vtax_studies.vrtprof.data import Data
from vtax_studies.vrtprof.setup import (
    CACHE_LINES,
    CONTAINER,
    EMULATED,
    EMULATED_SETTINGS,
    JVM,
    NATIVE,
    PAPER_OVERHEADS,
    PAPER_PAIRS,
    PHASE_EVENTS,
    SETTINGS,
    STAND_INS,
    STENCIL,
    TABLE_II,
    UML,
    XEN_COLUMNS,
    XEN_FIGURE,
)

BINS = 60
CACHE, DTLB, *_ = PHASE_EVENTS
_PICTURE = "The picture is not in the text that is available."


def figure_2(data: Data) -> StudyFigure:
    """The native matrix."""
    panel = _required(matrix_figure("Native", m.matrix(data.of(NATIVE))))
    return StudyFigure(
        "2",
        "Correlation matrix, native",
        "Averaged over all workloads and repetitions. The events are those that were counted most "
        "often; a kind of event that this machine does not have is not there (table II).",
        "Kernel dTLB misses with kernel branches 0.87, kernel stores with L2 lines 0.83; most "
        "others are below 0.3.",
        [panel],
    )


def figure_3(data: Data) -> StudyFigure:
    """The virtualized matrix, and what virtualization changes."""
    names = some(data.guests(), "no nested guest was recorded")
    ours = m.matrix(data.of(names[-1]))
    panels = [_required(matrix_figure(f"Virtualized, {names[-1]}", ours))]
    if data.recordings.get(NATIVE):
        changes = change_figure(difference(ours, m.matrix(data.of(NATIVE))))
        panels += [changes] if changes is not None else []
    return StudyFigure(
        "3",
        f"Correlation matrix, virtualized ({names[-1]}), and its difference to native",
        "The same of the nested guests' processes, as their emulated host sees them, with the "
        "events of virtualization. Difference: virtualized minus native, of the events of both.",
        "VM exits with context switches 0.59, with dTLB misses of programs 0.25; the kernel's CPI "
        "is more correlated with architectural events than natively.",
        panels,
    )


def _required(panel: HeatMap | None) -> HeatMap:
    if panel is None:
        raise Missing("fewer than two events were counted")
    return panel


def _exits(number: str, what: str, names: Sequence[str], column: str, data: Data) -> StudyFigure:
    """VM exits along the run, of environments with different numbers of guests."""
    workload = data.workload(STENCIL, names)
    recordings = data.labelled(workload, names)
    if not data.measured(recordings, [column]):
        raise Missing(f"{column} was not counted")
    return StudyFigure(
        number,
        f"VM exits {what}, {workload}",
        _axis_words(recordings, column),
        "The rate of VM exits of 433.milc for 1, 2, 4 and 8 guests: regular in all of them; at the "
        f"second peak inversely proportional to the number of guests. {_PICTURE}",
        [_lines(recordings, column)],
    )


def figure_4(data: Data) -> StudyFigure:
    """VM exits under KVM."""
    return _exits("4", "under KVM", data.guests(), "kvm.exits", data)


def figure_4_xen(data: Data) -> StudyFigure:
    """VM exits under Xen, by its own records."""
    return _exits(XEN_FIGURE, "under Xen", data.domus(), XEN_COLUMNS["XEN_VT_EXIT"], data)


class _Maker:
    """A timeline of a hardware event or, where that cannot be counted, of a software event.

    `paper`: the paper's event, `wanted`: the nearest portable one.
    """

    def __init__(
        self, number: str, program: str, paper: str, wanted: str, stand_in: str, what: str
    ) -> None:
        self.number, self.program, self.what = number, program, what
        self.paper, self.wanted, self.stand_in = paper, wanted, stand_in

    def __call__(self, data: Data) -> StudyFigure:
        workload = data.workload(self.program, [NATIVE])
        recordings = data.labelled(workload, [NATIVE, UML, CONTAINER, *data.guests()])
        known = [data.column(self.paper), self.wanted, self.stand_in]
        shown = next(iter(data.measured(recordings, known)), None)
        if shown is None:
            raise Missing(f"neither {self.wanted} nor {self.stand_in} was counted")
        words = _axis_words(recordings, shown)
        if shown == self.stand_in:
            why = data.why_absent(self.wanted)
            words = f"{self.what} are absent here ({self.wanted}: {why}). Shown is {words}"
        panels = [_lines(recordings, shown)]
        if emulated := self._emulated(data, shown):
            panels.append(emulated)
            words += " Second panel: an emulated arm64 machine, along its instructions."
        return StudyFigure(
            self.number,
            f"{shown}, {workload}",
            words,
            f"{self.what} in {_BENCHMARKS[self.number]}, natively and virtualized. {_PICTURE}",
            panels,
        )

    def _emulated(self, data: Data, shown: str) -> Figure | None:
        """The same event along the paper's own axis, in the machine whose clock counts
        instructions."""
        workload = STAND_INS[self.program]
        recordings = data.recordings.get(EMULATED, {}).get(workload, [])
        if not data.measured(recordings, [shown]):
            return None
        return replace(_lines(recordings, shown), title=f"{shown}, emulated, {workload}")


_BENCHMARKS = {"5": "433.milc", "6": "Pseudo JBB, which is flat", "7": "433.milc"}


def _axis_words(recordings: Sequence[Recording], name: str) -> str:
    axis = "instructions" if _instructions(recordings) else "time, for want of an instruction count"
    return (
        f"{name} along the {axis}; every environment by its own clock, the guests by that of "
        "their emulated host, whose seconds hold far less work. Thin lines: lowest and highest run."
    )


def _instructions(recordings: Sequence[Recording]) -> bool:
    return m.per_unit(recordings) is Per.GIGA_INSTRUCTION


def _lines(recordings: Sequence[Recording], name: str) -> Figure:
    event = next(e for one in recordings for e in one.events if e.name == name)
    axis = Axis.INSTRUCTIONS if _instructions(recordings) else Axis.TIME
    per = m.per_unit(recordings)
    made = timeline(recordings, [event], per=per, axis=axis, bins=BINS, by=By.CPU)
    return timeline_figure(made, name, {})


_LINES = (CACHE_LINES, CACHE, "sched.switches", "Cache lines of programs")
FIGURES: dict[str, Callable[[Data], StudyFigure]] = {
    "2": figure_2,
    "3": figure_3,
    "4": figure_4,
    XEN_FIGURE: figure_4_xen,
    "5": _Maker("5", STENCIL, *_LINES),
    "6": _Maker("6", JVM, *_LINES),
    "7": _Maker("7", STENCIL, "U_DTLB_MISSES", DTLB, "faults.user", "dTLB misses of programs"),
}


ABSENT = "absent"


def events(data: Data) -> StudyTable:
    """Table II: the paper's events, what counts the same here, and how often that occurred."""
    names = some(list(data.recordings), "nothing was recorded")
    rows = []
    for event in TABLE_II:
        columns = data.columns(event) or ("",)
        for column in columns:
            cells = [_rate(data, name, column) for name in names]
            reason = data.absent.get(column or event.name, event.note)
            rows.append((event.name, event.about, column or ABSENT, *cells, reason))
    return StudyTable(
        "II",
        "Table II. The paper's events and those counted here",
        "Counts per second of the time counted, over all workloads. Absent is absent: nothing "
        "takes the place of an event under its name. An emulated machine's seconds are by its own "
        "clock.",
        ("The paper's event", "What it counts", "Column here", *names, "Note"),
        rows,
    )


def _rate(data: Data, environment: str, column: str) -> str:
    value = m.rate(data.of(environment), column) if column else None
    return ABSENT if value is None else significant(value, 3)


def runtimes(data: Data) -> StudyTable:
    """Table IV: what recording costs."""
    found = [m.overheads(data, each.every) for each in SETTINGS]
    walls = [m.overheads(data, each.every, "wall_s") for each in SETTINGS]
    rows = []
    for name in found[0]:
        cells = [_percent(*each[name]) for each in found if name in each]
        cells += [_percent(*each[name]) for each in walls if name in each]
        rows.append((name, _bare(data, name), *cells))
    means = [m.mean(each) for each in (*found, *walls)]
    rows.append(("Geometric mean", "", *(f"{signed(value, 3)} %" for value in means)))
    rows += [
        (f"{name} (the paper's)", "", _plain(value), *[""] * (2 * len(SETTINGS) - 1))
        for name, value in PAPER_OVERHEADS.items()
    ]
    cpu = [f"CPU time, rows of {each.label}" for each in SETTINGS]
    wall = [f"wall clock, rows of {each.label}" for each in SETTINGS]
    return StudyTable(
        "IV",
        "Table IV. What recording costs",
        "Slow-down against the run without a recorder beside it: the median over repetitions, ± "
        "half the distance of the quartiles. Natively, of a fixed amount of work on one CPU, which "
        "the recorder's own thread and everything else on the machine share. The paper gives "
        "run times at its interval only; its mean is of the magnitudes.",
        ("Workload", "CPU time without", *cpu, *wall),
        rows,
    )


def emulated_runtimes(data: Data) -> StudyTable:
    """Table IV in instructions."""
    settings = [
        each
        for each in EMULATED_SETTINGS
        if data.emulated.is_empty() or each.every in data.emulated["setting"].to_list()
    ]
    found = [m.emulated_overheads(data, each.every) for each in settings]
    bare = data.emulated.filter(setting="").group_by("workload").agg(pl.median("instructions"))
    without = dict(bare.iter_rows())
    rows = [
        (
            name,
            f"{significant(without[name] / 1e6, 3)} million",
            *(_percent(*each[name]) for each in found if name in each),
        )
        for name in found[0]
    ]
    rows.append(("Geometric mean", "", *(f"{signed(m.mean(each), 3)} %" for each in found)))
    return StudyTable(
        "IV-emulated",
        "Table IV, emulated. What recording costs in instructions",
        "Instructions that the emulated arm64 machine executed during the workload's operations, "
        "the recorder's and the kernel's included, against the run without a recorder beside it: "
        "the median over repetitions, ± half their range. Exact, but no time: every instruction "
        "counts the same.",
        ("Workload", "Instructions without", *(f"rows of {s.label}" for s in settings)),
        rows,
    )


def _percent(value: float, around: float) -> str:
    return f"{signed(value, 2)} ± {significant(around, 2)} %"


def _plain(value: float) -> str:
    return f"{signed(value, 3)} %"


def _bare(data: Data, workload: str) -> str:
    own = data.overheads.filter(workload=workload, setting="")["cpu_s"].median()
    return "" if own is None else f"{significant(float(str(own)), 3)} s"


def pairs(data: Data) -> StudyTable:
    """The paper's strongest pairs of figures 2 and 3, beside the nearest pairs here."""
    guests = data.guests()
    native = m.matrix(data.of(NATIVE))
    virtual = m.matrix(data.of(guests[-1])) if guests else None
    rows = []
    for first, second, paper_native, paper_virtual in PAPER_PAIRS:
        ours = (data.column(first), data.column(second))
        rows.append(
            (
                f"{first}, {second}",
                "" if paper_native is None else f"{paper_native:.2f}",
                f"{paper_virtual:.2f}",
                ", ".join(name or ABSENT for name in ours),
                _found(native, *ours),
                _found(virtual, *ours) if virtual else ABSENT,
            )
        )
    return StudyTable(
        "pairs",
        "Pairs of figures 2 and 3",
        "Correlations that the paper prints, and those of the nearest columns here, given the "
        "intervals' length. A pair that was not counted is absent; brackets: not significant after "
        "correction for all pairs.",
        (
            "The paper's pair",
            "Paper, native",
            "Paper, 8 guests",
            "Columns here",
            "Native",
            guests[-1] if guests else "Guests",
        ),
        rows,
    )


def _found(matrix: Matrix, first: str, second: str) -> str:
    try:
        value, certain = m.pair(matrix, first, second)
    except Missing:
        return ABSENT
    return f"{value:.2f}" if certain else f"({value:.2f})"


TABLES = (events, runtimes, emulated_runtimes, pairs)
