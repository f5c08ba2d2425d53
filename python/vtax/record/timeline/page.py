"""What `vtax timeline` found, as a page and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vtax.core.page.format import plural, significant
from vtax.core.page.page import Figure, Page, Section, drawn, table_section, warnings
from vtax.core.page.palette import COLOURS
from vtax.core.page.plotting import Plot, base_layout, label
from vtax.core.recorder.ways import Axis
from vtax.record import flame
from vtax.record.flame import Graph
from vtax.record.timeline.analysis import Line, Timeline
from vtax.record.timeline.cpi import Layers
from vtax.record.timeline.phases import Phase

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_HEIGHT = 300
_LEAST_WIDTH = 560
"""In CSS pixels; in a narrower figure, a legend would leave no room for the lines."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_MISSING = "·"
_AXES = {Axis.INSTRUCTIONS: "retired by each series since the start", Axis.TIME: "since the start"}
SKETCH = 40
"""Characters of a line's sketch in a table."""

Phases = Mapping[str, tuple[Phase, ...]]
"""Phases by label."""


def title(timeline: Timeline) -> str:
    """`kvm.exits per 10⁹ instructions along the instructions`"""
    names = list(dict.fromkeys(line.event.name for line in timeline.lines))
    levels = all(line.event.is_level for line in timeline.lines)
    unit = "" if levels else f" {timeline.per.words}"
    return f"{', '.join(names)}{unit} along the {timeline.axis.value}"


def line_table(timeline: Timeline) -> Section:
    """One row for each line: its mean, its extremes and its shape."""
    rows = []
    for line in timeline.lines:
        known = line.values[np.isfinite(line.values)]
        ends = (float(known.min()), float(known.max())) if known.size else (math.nan, math.nan)
        numbers = (_number(value) for value in (line.mean, *ends))
        covered = f"{100 * line.coverage:.0f} %"
        rows.append(
            (line.event.name, line.label, *numbers, covered, str(line.runs), sketch(line.values))
        )
    headings = ("Event", "Run", "Mean", "Lowest bin", "Highest bin", "Measured", "Runs", "Shape")
    caption = (
        "Rates of bins. Measured: the share of the recorded intervals' length in which the event "
        "was counted."
    )
    return table_section("lines", "Lines", caption, headings, tuple(rows))


def bin_table(timeline: Timeline) -> Section:
    """One row for each bin: its end, and the value of every line."""
    headings = (f"Up to ({_axis_unit(timeline)[1]})", *(_name(line) for line in timeline.lines))
    scale = _axis_unit(timeline)[0]
    rows = tuple(
        (
            significant(float(timeline.edges[index + 1]) / scale, 4),
            *(_number(float(line.values[index])) for line in timeline.lines),
        )
        for index in range(timeline.edges.size - 1)
    )
    caption = "The rate of each bin; a question mark where the event was not measured."
    return table_section("bins", "Bins", caption, headings, rows)


def phase_table(timeline: Timeline, phases: Phases) -> Section:
    """One row for each phase, with the mean rate of each of the label's lines in it."""
    scale, unit = _axis_unit(timeline)
    names = list(dict.fromkeys(line.event.name for line in timeline.lines))
    rows = []
    for name, found in phases.items():
        for number, phase in enumerate(found, start=1):
            ends = (significant(edge / scale, 4) for edge in (phase.start, phase.end))
            means = (_number(mean) for mean in phase.means)
            rows.append((name, str(number), *ends, str(phase.bins), *means))
    headings = ("Run", "Phase", f"From ({unit})", f"To ({unit})", "Bins", *names)
    caption = (
        "Phases between change points of the mean (PELT on normal scores) that stand out of how "
        "the rates wander elsewhere; events side by side change together."
    )
    empty = "The axis is too short, or an event is nowhere measured."
    return table_section("phases", "Phases", caption if rows else empty, headings, tuple(rows))


def cpi_table(layers: Layers) -> Section:
    """One row for each layer that was counted."""
    totals: dict[tuple[str, str], int] = {}
    for layer in layers.layers:
        key = (layer.label, layer.method)
        totals[key] = totals.get(key, 0) + layer.cycles
    rows = tuple(
        (
            layer.label,
            layer.name,
            layer.method,
            f"{layer.cpi:.3f}",
            significant(layer.instructions, 4),
            significant(layer.cycles, 4),
            f"{100 * layer.cycles / totals[layer.label, layer.method]:.1f} %"
            if layer.method == "sampled"
            else "",
            str(layer.intervals),
        )
        for layer in layers.layers
    )
    headings = (
        "Run",
        "Layer",
        "How",
        "CPI",
        "Instructions",
        "Cycles",
        "Cycles' share",
        "Intervals",
    )
    caption = (
        "Cycles per instruction. Counted: by counters of that layer only (guest and user overlap). "
        "Sampled: each interval goes to the layer that ran at its end."
    )
    absent = "Absent. " + "; ".join(layers.absent) + "."
    return table_section("cpi", "CPI per layer", caption if rows else absent, headings, rows)


def sketch(values: Any) -> str:
    """`▁▁▆█▃`: the bins averaged to at most `SKETCH` characters, from zero to the highest."""
    parts = np.array_split(np.asarray(values, dtype=np.float64), min(SKETCH, len(values)))
    means = [float(part[np.isfinite(part)].mean()) if np.isfinite(part).any() else None
             for part in parts]  # fmt: skip
    top = max((mean for mean in means if mean is not None), default=0.0)
    return "".join(_block(mean, top) for mean in means)


def page(
    timeline: Timeline,
    phases: Phases,
    layers: Layers,
    graphs: Sequence[Graph],
    said: Sequence[str],
    settings: Sequence[tuple[str, str]],
) -> Page:
    """The lines, a figure for each event, the flame graphs of stacks, and the other tables; `said`
    is what limits them."""
    events = list(dict.fromkeys(line.event.name for line in timeline.lines))
    sections = (
        Section(notes=warnings(said)),
        line_table(timeline),
        *drawn(timeline_figure(timeline, name, phases) for name in events),
        *drawn(map(flame.figure, graphs)),
        *(flame.functions(each, number) for number, each in enumerate(graphs, 1)),
        phase_table(timeline, phases),
        cpi_table(layers),
        bin_table(timeline),
    )
    return Page("timeline", sections, title=title(timeline), settings=tuple(settings))


def timeline_figure(timeline: Timeline, name: str, phases: Phases) -> Figure:
    """The lines of one event, one for each label."""
    lines = [line for line in timeline.lines if line.event.name == name]
    scale, unit = _axis_unit(timeline)
    traces: list[Plot] = []
    shapes: list[Plot] = []
    for turn, line in enumerate(lines):
        colour, dash = f"var(--env-{turn % COLOURS + 1})", _DASHES[turn % len(_DASHES)]
        x = (timeline.centres / scale).tolist()
        if line.runs > 1:
            traces += [_trace(x, ends, line, colour, "dot", 0.8) for ends in (line.low, line.high)]
        traces.append(_trace(x, line.values, line, colour, dash, 1.8) | {"showlegend": True})
        shapes += [_cut(phase.start / scale, colour) for phase in phases.get(line.label, ())[1:]]
    is_level = lines[0].event.is_level
    y_title = lines[0].event.unit if is_level else f"{name} {timeline.per.words}"
    ranges = "Thin dotted lines: lowest and highest run. " if any(o.runs > 1 for o in lines) else ""
    meaning = (
        f"{plural(len(lines), 'line')} in {plural(timeline.edges.size - 1, 'bin')}. {ranges}"
        "Vertical lines: where a phase begins. Drag to zoom, double click to see all."
    )
    layout = _layout(f"{_AXES[timeline.axis]} ({unit})", y_title, shapes, len(lines))
    plot = {"data": traces, "layout": layout, "meta": {"least_width": _LEAST_WIDTH}}
    return Figure(name, meaning, _spoken(name, lines), plot)


def _layout(x_title: str, y_title: str, shapes: Sequence[Plot], entries: int) -> Plot:
    axis: dict[str, Any] = {"gridcolor": "var(--grid)", "zerolinecolor": "var(--rule)"}
    return {
        **base_layout(_HEIGHT + 20 * entries),
        "dragmode": "zoom",
        "showlegend": True,
        "margin": {"l": 6, "r": 14, "t": 14 + 20 * entries, "b": 44},
        "xaxis": {**axis, "title": {"text": label(x_title), "standoff": 8}},
        "yaxis": {
            **axis,
            "title": {"text": label(y_title), "standoff": 8},
            "automargin": True,
            "rangemode": "tozero",
            "exponentformat": "SI",
            "nticks": 6,
        },
        "shapes": list(shapes),
        "legend": {
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "orientation": "h",
            "itemwidth": 40,
            "traceorder": "normal",
        },
    }


def _trace(
    x: Sequence[float], y: Any, line: Line, colour: str, dash: str, width: float
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label(line.label),
        "x": list(x),
        "y": [float(value) for value in y],
        "showlegend": False,
        "legendgroup": label(line.label),
        "connectgaps": False,
        "line": {"color": colour, "width": width, "dash": dash},
        "hovertemplate": "%{x:.4~g}: %{y:.4~g}<extra>" + label(line.label) + "</extra>",
    }


def _cut(x: float, colour: str) -> Plot:
    line = {"color": colour, "width": 1, "dash": "dash"}
    ends = {"x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1}
    return {"type": "line", "xref": "x", **ends, "line": line, "opacity": 0.6, "layer": "below"}


def _spoken(name: str, lines: Sequence[Line]) -> str:
    means = ", ".join(f"{line.label} {_number(line.mean)} on average" for line in lines)
    return f"Timeline of {name}: {means}"


def _axis_unit(timeline: Timeline) -> tuple[float, str]:
    """The scale of the axis and the name of its unit."""
    end = float(timeline.edges[-1])
    if timeline.axis is Axis.TIME:
        return (1e9, "s") if end >= 1e9 else (1e6, "ms")
    return (1e9, "10⁹ instructions") if end >= 1e9 else (1e6, "10⁶ instructions")


def _name(line: Line) -> str:
    return f"{line.event.name} {line.label}"


def _number(value: float) -> str:
    return significant(value, 4) if math.isfinite(value) else "?"


def _block(mean: float | None, top: float) -> str:
    if mean is None:
        return _MISSING
    index = int(mean / top * len(_BLOCKS)) if top > 0 else 0
    return _BLOCKS[min(max(index, 0), len(_BLOCKS) - 1)]


def timeline_json(timeline: Timeline, phases: Phases, layers: Layers) -> dict[str, Any]:
    """The whole timeline; `null` where an event was not measured."""
    return {
        "axis": timeline.axis.value,
        "per": timeline.per.value,
        "edges": timeline.edges.tolist(),
        "lines": [
            {
                "event": line.event.name,
                "label": line.label,
                "runs": line.runs,
                "mean": _known(line.mean),
                "coverage": line.coverage,
                "values": [_known(value) for value in line.values],
                "low": [_known(value) for value in line.low],
                "high": [_known(value) for value in line.high],
            }
            for line in timeline.lines
        ],
        "phases": {
            name: [
                {
                    "start": phase.start,
                    "end": phase.end,
                    "bins": phase.bins,
                    "means": list(phase.means),
                }
                for phase in found
            ]
            for name, found in phases.items()
        },
        "cpi": [
            {
                "label": layer.label,
                "layer": layer.name,
                "method": layer.method,
                "cpi": layer.cpi,
                "instructions": layer.instructions,
                "cycles": layer.cycles,
                "intervals": layer.intervals,
            }
            for layer in layers.layers
        ],
        "cpi_absent": list(layers.absent),
    }


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
