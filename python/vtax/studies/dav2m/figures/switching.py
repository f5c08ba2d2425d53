"""Figures 6, 11 and 12: what switches cost, how many there are, and where the time goes."""

from __future__ import annotations

from vtax.present.format import significant
from vtax.present.html.plotting import Figure
from vtax.studies.dav2m import measures as m
from vtax.studies.dav2m.data import Data, need
from vtax.studies.dav2m.figures.parts import Look, Series, bars, line, lines, look
from vtax.studies.dav2m.setup import FOCUS, MACHINE, MACHINE_TITLES
from vtax.studies.model import StudyFigure
from vtax.studies.rule import Missing

DIRECTIONS = {"s2n": "shadow to nested", "n2s": "nested to shadow"}
_SHORT = {"s2n": "to nested", "n2s": "to shadow"}
_COLOURS = {"s2n": "var(--env-2)", "n2s": "var(--env-1)"}
_DASHES = ("solid", "dash", "dot", "dashdot")


def figure_6(data: Data) -> StudyFigure:
    """What a switch costs until it has settled."""
    frame = need(data.transitions, "scripted switches")
    return StudyFigure(
        "6",
        "What a switch costs (model)",
        f"Time lost against having been in the new mode all along, in milliseconds of the "
        f"{MACHINE_TITLES[MACHINE]}'s clock: the change itself, refilled tables and extra TLB "
        "misses, added up from the switch on. Every reference of these stretches is followed. "
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
        dash = _DASHES[phases.index(phase) % len(_DASHES)]
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
    plot["layout"]["xaxis"]["range"] = [0, 100]
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
