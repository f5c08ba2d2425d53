"""Figures 2 to 7: correlation matrices, and timelines of several environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vtax.analysis.correlation import difference
from vtax.analysis.intervals import By, Per, Recording
from vtax.analysis.timeline import Axis, timeline
from vtax.present.html.correlation import change_figure, matrix_figure
from vtax.present.html.plotting import Figure
from vtax.present.html.timelines import timeline_figure
from vtax.studies.model import StudyFigure
from vtax.studies.rule import Missing
from vtax.studies.vrtprof import measures as m
from vtax.studies.vrtprof.data import Data
from vtax.studies.vrtprof.setup import FLAT, NATIVE, PHASED, UML

BINS = 60
_PICTURE = "The picture is not in the text that is available."


def drawn(data: Data, only: str | None) -> list[StudyFigure]:
    """The figures that the data allows."""
    found = []
    for number, maker in FIGURES.items():
        if only not in (None, number):
            continue
        try:
            found.append(maker(data))
        except Missing:
            continue
    return found


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
    names = data.guests()
    if not names:
        raise Missing("no nested guest was recorded")
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


def _required(panel: Figure | None) -> Figure:
    if panel is None:
        raise Missing("fewer than two events were counted")
    return panel


def figure_4(data: Data) -> StudyFigure:
    """VM exits along the run."""
    recordings = data.labelled(PHASED, data.guests())
    if not data.measured(recordings, ["kvm.exits"]):
        raise Missing("kvm.exits was not counted")
    return StudyFigure(
        "4",
        f"VM exits, {PHASED}",
        _axis_words(recordings, "kvm.exits"),
        "The rate of VM exits of 433.milc for 1, 2, 4 and 8 guests: regular in all of them; at the "
        f"second peak inversely proportional to the number of guests. {_PICTURE}",
        [_lines(recordings, "kvm.exits")],
    )


class _Maker:
    """A timeline of a hardware event; where it cannot be counted, of a software event instead."""

    def __init__(self, number: str, workload: str, wanted: str, stand_in: str, what: str) -> None:
        self.number, self.workload, self.what = number, workload, what
        self.wanted, self.stand_in = wanted, stand_in

    def __call__(self, data: Data) -> StudyFigure:
        recordings = data.labelled(self.workload, [NATIVE, UML, *data.guests()])
        shown = next(iter(data.measured(recordings, [self.wanted, self.stand_in])), None)
        if shown is None:
            raise Missing(f"neither {self.wanted} nor {self.stand_in} was counted")
        words = _axis_words(recordings, shown)
        if shown != self.wanted:
            why = data.why_absent(self.wanted)
            words = f"{self.what} are absent here ({self.wanted}: {why}). Shown is {words}"
        return StudyFigure(
            self.number,
            f"{shown}, {self.workload}",
            words,
            f"{self.what} in {_SEED_BENCHMARKS[self.number]}, natively and virtualized. {_PICTURE}",
            [_lines(recordings, shown)],
        )


_SEED_BENCHMARKS = {"5": "433.milc", "6": "Pseudo JBB, which is flat", "7": "433.milc"}


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


FIGURES: dict[str, Callable[[Data], StudyFigure]] = {
    "2": figure_2,
    "3": figure_3,
    "4": figure_4,
    "5": _Maker("5", PHASED, "hw.cache_misses", "sched.switches", "Cache lines of programs"),
    "6": _Maker("6", FLAT, "hw.cache_misses", "sched.switches", "Cache lines of programs"),
    "7": _Maker("7", PHASED, "hw.dtlb_load_misses", "faults.user", "dTLB misses of programs"),
}
