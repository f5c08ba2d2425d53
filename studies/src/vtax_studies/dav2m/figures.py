"""The paper's figures again, each from the study's data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

import polars as pl

from vtax.core.page.format import signed, significant
from vtax.core.page.plotting import Figure, Plot
from vtax_studies.dav2m import data as m
from vtax_studies.dav2m.data import Data, need
from vtax_studies.dav2m.figures_states import figure_7, figure_8
from vtax_studies.dav2m.figures_workloads import DASHES, figure_2, figure_3
from vtax_studies.dav2m.sensitivity import sensitivity
from vtax_studies.dav2m.setup import (
    FOCUS,
    MACHINE,
    MACHINE_TITLES,
    PHASED,
    SECOND_MACHINE,
    THRESHOLD_TMISS,
    THRESHOLD_VEXIT,
)
from vtax_studies.model import StudyFigure
from vtax_studies.plots import Look, Series, band, bars, level, line, lines
from vtax_studies.rule import Missing

LOOKS = {
    "native": Look("native", "var(--env-baseline)"),
    "shadow": Look("shadow", "var(--env-1)", dash="solid"),
    "nested": Look("nested", "var(--env-2)", dash="dash"),
    "dav2m": Look("DAV2M", "var(--env-3)"),
    "vtax": Look("vtax's own policy (not in the paper)", "var(--env-4)", "/"),
    "oracle": Look("oracle (not in the paper)", "var(--env-5)", "/"),
}


def look(mode: str) -> Look:
    """A mode's look; unknown ones are grey."""
    return LOOKS.get(mode, Look(mode, "var(--env-control)", "x"))


EXTRA = ("vtax", "oracle")
"""Modes that are not in the paper: vtax's own policy and the offline optimum."""


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


DIRECTIONS = {"s2n": "shadow to nested", "n2s": "nested to shadow"}
_SHORT = {"s2n": "to nested", "n2s": "to shadow"}
_COLOURS = {"s2n": "var(--env-2)", "n2s": "var(--env-1)"}


def figure_6(data: Data) -> StudyFigure:
    """What a switch costs until its transients are over."""
    frame = need(data.transitions, "scripted switches")
    return StudyFigure(
        "6",
        "What a switch costs (model)",
        f"Time lost against having been in the new mode all along, in milliseconds of the "
        f"{MACHINE_TITLES[MACHINE]}'s clock: the change itself, refilled tables and extra TLB "
        "misses, added up from the switch on. Every reference of these runs is followed. "
        "Beside it, where each benchmark's curve ends.",
        "A switch from shadow to nested paging takes about half as long as the reverse on gcc; "
        "the dearest takes at most 100 ms, transients included (section 5).",
        [_over_time(frame.filter(benchmark="gcc").to_dicts()), _by_benchmark(data)],
        columns=2,
    )


def _over_time(rows: list[dict[str, object]]) -> Figure:
    if not rows:
        raise Missing("not simulated: switches of gcc")
    curves: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        key = (str(row["direction"]), str(row["phase"]))
        point = (float(str(row["milliseconds"])), float(str(row["excess_ms"])))
        curves.setdefault(key, []).append(point)
    phases = list(dict.fromkeys(phase for _, phase in curves))
    traces, spoken = [], []
    for (direction, phase), points in curves.items():
        points.sort()
        xs, ys = zip(*points, strict=True)
        name = f"{_SHORT[direction]}, {phase}"
        dash = DASHES[phases.index(phase) % len(DASHES)]
        traces.append(line(xs, ys, name, _COLOURS[direction], dash=dash, width=2.2))
        spoken.append(f"{name} {significant(ys[-1], 3)} ms")
    return Figure(
        "gcc, by phase",
        "time lost since the switch",
        f"Curves of modelled time lost by a switch in gcc; they end at: {'; '.join(spoken)}.",
        lines(
            traces,
            "milliseconds since the switch",
            "modelled milliseconds lost",
            300,
            legend_rows=(len(traces) + 1) // 2,
        ),
    )


def _by_benchmark(data: Data) -> Figure:
    series, spoken = [], []
    for direction, words in DIRECTIONS.items():
        values = [m.transition_cost(data, name, direction) for name in FOCUS]
        series.append(Series(Look(words, _COLOURS[direction]), values))
        pairs = zip(FOCUS, values, strict=True)
        spoken.append(f"{words}: " + ", ".join(f"{n} {significant(v, 2)}" for n, v in pairs))
    return Figure(
        "Every benchmark",
        "its dearest switch",
        f"Bars of the modelled cost of the dearest switch in milliseconds: {'; '.join(spoken)}.",
        bars(FOCUS, series, "modelled milliseconds lost"),
    )


def figure_11(data: Data) -> StudyFigure:
    """Switches per benchmark."""
    counts = [m.number(data, MACHINE, name, "dav2m", "switches") for name in FOCUS]
    spoken = ", ".join(f"{n} {c:.0f}" for n, c in zip(FOCUS, counts, strict=True))
    shown = Series(look("dav2m"), counts, [f"{count:.0f}" for count in counts])
    return StudyFigure(
        "11",
        "Transitions during the run under DAV2M (model)",
        f"Changes of the paging mode on the {MACHINE_TITLES[MACHINE]}.",
        "13 on gcc, very little switching on the others; at most one where the mode does not "
        "matter (section 7).",
        [
            Figure(
                "Transitions",
                "over the whole run",
                f"Bars of the number of changes of mode in the model: {spoken}.",
                bars(FOCUS, [shown], "changes of mode in the model"),
            )
        ],
    )


def figure_12(data: Data) -> StudyFigure:
    """Share of time in either mode."""
    shadow = [m.time_share(data, name, "shadow") for name in FOCUS]
    nested = [100 - share for share in shadow]
    spoken = ", ".join(f"{n} {significant(s, 3)} %" for n, s in zip(FOCUS, shadow, strict=True))
    texts = ([f"{share:.0f}" if share >= 8 else "" for share in part] for part in (shadow, nested))
    series = [
        Series(look(mode), values, words)
        for mode, values, words in zip(m.STATIC, (shadow, nested), texts, strict=True)
    ]
    plot = bars(FOCUS, series, "share of modelled cycles under DAV2M, %")
    plot["layout"] |= {"barmode": "stack", "bargap": 0.3, "height": 26 * len(FOCUS) + 76}
    # Sums are 100 but for rounding; plotly hides the text of a bar that ends past the axis.
    plot["layout"]["xaxis"]["range"] = [0, 100.1]
    for mode, trace in zip(m.STATIC, plot["data"], strict=True):
        trace |= {"textposition": "inside", "insidetextanchor": "middle"}
        trace["textfont"] = {"size": 11, "color": f"var(--on-{mode})"}
    return StudyFigure(
        "12",
        "Share of time in each mode under DAV2M (model)",
        f"By the mode at the end of each window, on the {MACHINE_TITLES[MACHINE]}.",
        "The three sets of benchmarks are evident; in the third DAV2M decides both ways (section "
        "7).",
        [
            Figure(
                "Time in each mode",
                "in % of modelled cycles",
                f"Stacked bars; share of the modelled time under shadow paging: {spoken}.",
                plot,
            )
        ],
    )


SMALL_PX = 170
LARGE_PX = 260
X_TITLE = "instructions, 1e9"
WINDOW_TMISS = 10
"""`window_tmiss` in windows of 1e9 instructions: the threshold counts over this many (section
6)."""


def figure_5(data: Data) -> StudyFigure:
    """CPI, exits and TLB misses of every benchmark over its run."""
    need(data.windows, "windows of the focused benchmarks")
    panels = [panel for name in FOCUS for panel in _row(data, name)]
    return StudyFigure(
        "5",
        "CPI, shadow-paging exits and TLB misses over the run (model)",
        "One row per benchmark: smoothed CPI (ten steps) under shadow (solid) and nested paging "
        "(dashed); paging exits under shadow paging; TLB misses under nested paging. Dotted lines "
        "are DAV2M's starting thresholds.",
        "Four bursts of exits explain gzip's CPI; swim's high miss rate explains its cost under "
        "nested paging (section 4). Fixed thresholds suit swim, would switch gcc continuously and "
        "would keep zeusmp in the wrong mode (section 6).",
        panels,
        columns=3,
    )


def _row(data: Data, name: str) -> Iterator[Figure]:
    shadow, nested = (m.windows(data, name, mode) for mode in m.STATIC)
    traces = [
        line(
            _end(rows),
            rows["smoothed_cpi"].to_list(),
            mode,
            look(mode).colour,
            dash=look(mode).dash,
        )
        for mode, rows in (("shadow", shadow), ("nested", nested))
    ]
    lowest = min(float(str(rows["smoothed_cpi"].min())) for rows in (shadow, nested))
    highest = max(float(str(rows["smoothed_cpi"].max())) for rows in (shadow, nested))
    room = 0.1 * max(highest - lowest, 0.1)
    yield Figure(
        f"{name}: CPI",
        "modelled; lower is better",
        f"Modelled CPI of {name}: under shadow paging {_spread(shadow, 'smoothed_cpi')}, under "
        f"nested paging {_spread(nested, 'smoothed_cpi')}.",
        lines(
            traces,
            X_TITLE,
            "modelled CPI",
            SMALL_PX,
            legend_rows=1,
            x_range=(0, _end(shadow)[-1]),
            y_range=(lowest - room, highest + room),
        ),
    )
    parts = (
        ("paging exits", "under shadow paging", shadow, "exit_rate", "shadow", THRESHOLD_VEXIT),
        ("TLB misses", "under nested paging", nested, "miss_rate", "nested", THRESHOLD_TMISS),
    )
    for what, mode_words, rows, column, mode, threshold in parts:
        rates = rows[column].to_list()
        yield Figure(
            f"{name}: {what}",
            f"{mode_words}, per 1e9 instructions",
            f"Modelled {what} of {name} {mode_words} per 1e9 instructions: "
            f"{_spread(rows, column)}; the starting threshold is {threshold:,.0f}.",
            lines(
                [line(_end(rows), rates, what, look(mode).colour)],
                X_TITLE,
                "modelled, per 1e9",
                SMALL_PX + 22,
                x_range=(0, _end(rows)[-1]),
                y_range=(0, 1.12 * max(threshold, *rates)),
                shapes=[level(threshold)],
            ),
        )


def _end(rows: pl.DataFrame) -> list[float]:
    return [end / 1e9 for end in rows["end"].to_list()]


def _spread(rows: pl.DataFrame, column: str) -> str:
    found = rows[column]
    low, middle, high = (float(str(value)) for value in (found.min(), found.median(), found.max()))
    return (
        f"{significant(low, 3)} to {significant(high, 3)}, median {significant(middle, 3)}"
        if high > low
        else significant(middle, 3)
    )


def figure_9(data: Data) -> StudyFigure:
    """Thresholds and rates under DAV2M."""
    need(data.windows, "windows of the focused benchmarks")
    return StudyFigure(
        "9",
        "DAV2M's thresholds in action (model)",
        "Rates per 1e9 instructions in the mode in which DAV2M watches them (solid), and the "
        "threshold at that time (dotted), on logarithmic axes. Shaded: nested paging. A window "
        "counts for the mode at its end, so a shorter probe is not seen; nor is a rate of zero.",
        "The thresholds are adjusted dynamically on two benchmarks that would otherwise likely "
        "oscillate (section 6).",
        [panel for name in PHASED for panel in _thresholds(data, name)],
        columns=2,
    )


def _thresholds(data: Data, name: str) -> Iterator[Figure]:
    rows = m.windows(data, name, "dav2m").with_columns(
        limit_vexit=pl.col("threshold_vexit"),
        limit_tmiss=pl.col("threshold_tmiss") / WINDOW_TMISS,
    )
    ends, modes = _end(rows), rows["paging"].to_list()
    parts = (
        ("paging exits", "shadow", "exit_rate", "limit_vexit"),
        ("TLB misses", "nested", "miss_rate", "limit_tmiss"),
    )
    for what, mode, column, limit in parts:
        rates = [
            rate if paging == mode and rate > 0 else None
            for rate, paging in zip(rows[column].to_list(), modes, strict=True)
        ]
        traces = [
            line(ends, rates, what, look(mode).colour, points=True),
            line(ends, rows[limit].to_list(), "threshold", "var(--bad)", dash="dot", shape="hv"),
        ]
        yield Figure(
            f"{name}: {what}",
            f"watched under {mode} paging",
            f"Modelled {what} of {name} per 1e9 instructions under {mode} paging and the "
            f"threshold, which goes {_spread(rows, limit)}.",
            lines(
                traces,
                X_TITLE,
                "modelled, per 1e9",
                LARGE_PX,
                legend_rows=1,
                log=True,
                x_range=(0, ends[-1]),
                shapes=list(_shade(ends, modes)),
            ),
        )


def _shade(ends: Sequence[float], modes: Sequence[str | None]) -> Iterator[Plot]:
    """A band wherever the mode is nested paging."""
    at, last = 0, 0.0
    for mode, same in groupby(modes):
        at += len(list(same))
        if mode == "nested":
            yield band(last, ends[at - 1])
        last = ends[at - 1]


FIGURES: Mapping[str, Callable[[Data], StudyFigure]] = {
    "2": figure_2,
    "3": figure_3,
    "4": figure_4,
    "5": figure_5,
    "6": figure_6,
    "7": figure_7,
    "8": figure_8,
    "9": figure_9,
    "10": figure_10,
    "11": figure_11,
    "12": figure_12,
    "sensitivity": sensitivity,
}
