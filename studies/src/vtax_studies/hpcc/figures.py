"""Figures 1 to 4 and their tables, beside what the paper says about each."""

from __future__ import annotations

from vtax.audit.order_drift import Contrast
from vtax.core.page.format import significant
from vtax.core.page.plotting import Figure, Plot
from vtax_studies.hpcc import data as m
from vtax_studies.hpcc.claims import apart, change, ratio, share, words
from vtax_studies.hpcc.data import Data
from vtax_studies.hpcc.setup import (
    HPL,
    KVM,
    LATENCY,
    NATIVE,
    NESTED,
    RANDOM_ACCESS,
    SHADOW,
    STATED,
    TCG,
    UML,
    UPDATE_PLACES,
    UPDATES,
)
from vtax_studies.model import StudyFigure, StudyTable
from vtax_studies.plots import Look, Series, bars, curve, lines
from vtax_studies.rule import some

LOOKS = {
    NATIVE: Look(NATIVE, "var(--env-baseline)"),
    UML: Look(UML, "var(--env-1)"),
    TCG: Look(TCG, "var(--env-2)", "/", "dash"),
    KVM: Look(KVM, "var(--env-3)", ".", "dot"),
}
UPDATE_LOOKS = {
    NATIVE: Look(NATIVE, "var(--env-baseline)"),
    UML: Look(UML, "var(--env-1)"),
    NESTED: Look(NESTED, "var(--env-2)", "/", "dash"),
    SHADOW: Look(SHADOW, "var(--env-3)", ".", "dot"),
}
NO_UPDATES = "updates were not counted"
LEAST = 1e-4
HEIGHT = 260.0
MESSAGES = (
    LATENCY, "RandomlyOrderedRingLatency_usec", "AvgPingPongBandwidth_GBytes", RANDOM_ACCESS,
)  # fmt: skip


def figure_1(data: Data) -> StudyFigure:
    """Comparison of both clocks over the sizes of the table."""
    traces = []
    for name in _measured(data):
        found = m.clocks(data, name)
        traces.append(curve(LOOKS[name], list(found), [each.percent for each in found.values()]))
    plot = lines(
        traces, "Table of MPIRandomAccess (words)", "|T_cpu / T_wall - 1| (%)", HEIGHT,
        legend_rows=len(traces),
    )  # fmt: skip
    plot["layout"]["xaxis"] |= {"type": "log", "dtick": "D1"}
    return StudyFigure(
        "1",
        "CPU time against wall time of MPIRandomAccess",
        "Equation 1, the median of all runs of a size, by HPCC's own two times. Ranges, inversions "
        "and the clocks' steps are in the table.",
        STATED["1"],
        [_panel("Difference of both clocks", "Lower: the clocks agree.", plot)],
    )


def figure_2(data: Data) -> StudyFigure:
    """Equation 2, and the control that runs in ascending order again."""
    panels = [
        _drift_panel(data, Contrast.DESCENDING, "Equation 2, without its bars."),
        _drift_panel(data, Contrast.CONTROL, "The control: the same order after another boot."),
    ]
    return StudyFigure(
        "2",
        "HPL in descending against ascending order of sizes",
        "Change of HPL's time, each order in a freshly booted guest (natively there is nothing to "
        "boot); the mean over the rounds on logs. Intervals are in the table.",
        STATED["2"],
        panels,
        columns=2,
    )


def figure_3(data: Data) -> StudyFigure:
    """Equation 3 for HPL."""
    return _percent_figure(data, "3", "HPL", HPL)


def figure_4(data: Data) -> StudyFigure:
    """Equation 3 for MPIRandomAccess."""
    return _percent_figure(data, "4", "MPIRandomAccess", RANDOM_ACCESS)


def figure_updates(data: Data) -> StudyFigure:
    """Events of an update."""
    own = {(each.place, each.event): each.middle for each in some(data.updates, NO_UPDATES)}
    events = [
        event
        for event in dict.fromkeys(event for _, event in own)
        if any(own.get((place, event), 0) >= LEAST for place in UPDATE_PLACES)
    ]
    series = []
    for place in dict.fromkeys(place for place, _ in own):
        values = [own.get((place, event)) for event in events]
        texts = ["" if each is None else significant(each, 3) for each in values]
        series.append(Series(UPDATE_LOOKS[place], values, texts))
    plot = bars(some(events, NO_UPDATES), series, "For each update")
    return StudyFigure(
        UPDATES,
        "What an update of RandomAccess pays for",
        f"Events of more updates less those of fewer, the median of the pairs; events of which "
        f"there are {LEAST:g} or more somewhere. A guest's are counted by its host.",
        STATED[UPDATES],
        [_panel("Events for each update", "Fewer: cheaper.", plot)],
    )


FIGURES = {"1": figure_1, "2": figure_2, "3": figure_3, "4": figure_4, UPDATES: figure_updates}


def clocks_table(data: Data) -> StudyTable:
    """Figure 1 in numbers."""
    rows = [
        (
            name,
            words(table),
            str(each.inverted.total),
            apart(each),
            f"{significant(each.least, 2)} to {significant(each.most, 2)}",
            significant(each.step_percent, 2),
            share(each.inverted),
            share(each.unexplained),
        )
        for name in _measured(data)
        for table, each in m.clocks(data, name).items()
    ]
    return StudyTable(
        "cpu-against-wall",
        "Figure 1. CPU time against wall time of MPIRandomAccess",
        "Equation 1 in percent. Steps: what a step and a reading "
        "of both clocks are of the wall time. Inverted: "
        "CPU time above wall time, with Clopper and Pearson's 95 % interval.",
        ("Environment", "Table", "Runs", "Median", "Range", "Steps", "Inverted", "beyond steps"),
        rows,
    )


def drift_table(data: Data) -> StudyTable:
    """Figure 2 in numbers."""
    rows = []
    for name in _measured(data):
        found = m.drift(data, name)
        for size in data.sizes(name):
            cells = (change(found.sizes[each][size]) for each in Contrast)
            rows.append((name, f"N = {size}", *cells, ""))
        own = (change(found.overall[each]) for each in (Contrast.AGAIN, Contrast.CONTROL))
        rows.append(
            (name, "all", f"within a pass {change(found.within_pass)}", "", *own, found.text)
        )
    return StudyTable(
        "order-drift",
        "Figure 2. Change of HPL's time with the order of sizes",
        "Equation 2 without its bars, with 95 % intervals from the rounds.",
        ("Environment", "Size", *(each.value for each in Contrast), "Verdict"),
        rows,
    )


def percent_table(data: Data) -> StudyTable:
    """Figures 3 and 4 in numbers."""
    rows = []
    for name in data.guests():
        for size in data.sizes(name):
            for what, metric in (("HPL", HPL), ("MPIRandomAccess", RANDOM_ACCESS)):
                found = m.result(data, name, size, metric)
                best = significant(found.percent_of_baseline_best, 3)
                spread = significant(m.spread(found), 2) if found.n > 1 else ""
                rows.append((name, what, f"N = {size}", ratio(found), best, spread))
    return StudyTable(
        "percent-of-native",
        "Figures 3 and 4. Percent of native performance",
        "Equation 3 with its 95 % interval, by the best values as the paper combines, and the "
        "standard deviation in percent of the median.",
        ("Environment", "Kernel", "Size", "% of native", "Best", "Deviation (%)"),
        rows,
    )


def messages_table(data: Data) -> StudyTable:
    """Messages of two processes."""
    rows = [
        (name, metric, significant(found.median, 3), found.unit, ratio(found))
        for (name, metric), found in m.exchanged(data).items()
        if metric in MESSAGES and found.median is not None
    ]
    return StudyTable(
        "messages",
        "Messages between two processes",
        "HPCC as two processes on two CPUs, in one machine but for two guests, which a switch "
        "joins: latency and bandwidth of messages of 8 bytes and of 2 MB, and MPIRandomAccess, "
        "whose updates are messages.",
        ("Environment", "Metric", "Median", "Unit", "% of native"),
        rows,
    )


def updates_table(data: Data) -> StudyTable:
    """Events of an update in numbers."""
    rows = [
        (
            each.place,
            each.event,
            significant(each.middle, 3),
            f"{significant(min(each.pairs), 3)} to {significant(max(each.pairs), 3)}",
            str(len(each.pairs)),
        )
        for each in some(data.updates, NO_UPDATES)
        if any(each.pairs)
    ]
    return StudyTable(
        "updates",
        "What an update of RandomAccess pays for",
        "GUPS with a table of 64 MiB: events of more updates less those of fewer, for each update. "
        "What happens by the clock (timer interrupts) grows with the time of an update, on an "
        "emulated processor too.",
        ("Place", "Event", "For each update", "Range", "Pairs"),
        rows,
    )


def _measured(data: Data) -> list[str]:
    return some([name for name in data.places if data.observations[name]])


def _panel(title: str, meaning: str, plot: Plot) -> Figure:
    names = ", ".join(str(each["name"]) for each in plot["data"])
    return Figure(title, meaning, f"{title}, for {names}; the values are in the tables.", plot)


def _drift_panel(data: Data, contrast: Contrast, meaning: str) -> Figure:
    traces = []
    for name in _measured(data):
        found = m.drift(data, name).sizes[contrast]
        traces.append(curve(LOOKS[name], list(found), [each.percent for each in found.values()]))
    plot = lines(traces, "HPL's N", "Change of time (%)", HEIGHT, legend_rows=len(traces))
    return _panel(contrast.value.capitalize(), meaning, plot)


def _percent_figure(data: Data, number: str, what: str, metric: str) -> StudyFigure:
    sizes = sorted({size for name in data.guests() for size in data.sizes(name)})
    series = []
    for name in data.guests():
        own = {size: m.result(data, name, size, metric) for size in data.sizes(name)}
        values = [own[size].percent_of_baseline if size in own else None for size in sizes]
        texts = [ratio(own[size]) if size in own else "" for size in sizes]
        series.append(Series(LOOKS[name], values, texts))
    plot = bars([f"N = {size}" for size in sizes], series, "% of native performance")
    return StudyFigure(
        number,
        f"Percent of native performance: {what}",
        "Equation 3 by the rounds' ratios, with its 95 % interval; native runs on one CPU, as the "
        "guests have. Best values and standard deviations are in the table.",
        STATED[number],
        [_panel(f"{what}, percent of native", "100: as fast as native.", plot)],
    )


TABLES = (clocks_table, drift_table, percent_table, messages_table, updates_table)
