"""Figures 7 and 8: DAV2M's states, with the transitions that the simulated runs made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from vtax.core.page.plotting import Figure, Plot, base_layout, label
from vtax_studies.dav2m import data as m
from vtax_studies.dav2m.data import Data
from vtax_studies.dav2m.setup import MACHINE, MACHINE_TITLES, PHASED, STATES, Arrow
from vtax_studies.model import StudyFigure
from vtax_studies.plots import band, line, lines, marks

PLACES = {"Shadow": (0.0, 1.0), "PreNested": (1.0, 1.0), "Prepaging": (1.0, 0.5),
          "Nested": (1.0, 0.0), "PreShadow": (0.0, 0.0)}  # fmt: skip
NESTED = ("PreNested", "Prepaging", "Nested")
"""The states in which nested paging is in force (section 6)."""
ASIDE, SHORT = 0.045, 0.16
"""How far an arrow lies beside the line between two states, and ends before them."""


EDGE, APART = 0.02, 0.04
"""Room beside a timeline, and the least between two numbers at one height, of its length."""


def figure_7(data: Data) -> StudyFigure:
    """The diagram of states, with how often each transition was taken."""
    arrows = m.arrows(data)
    words = "; ".join(
        f"{each.number}: {each.condition}" + (f" ({each.action})" if each.action else "")
        for each in arrows
    )
    return StudyFigure(
        "7",
        "DAV2M's states and how often it changed them (model)",
        f"Transitions by number, and the times that the runs took them on the "
        f"{MACHINE_TITLES[MACHINE]}; shaded: nested paging. {words}. The numbers are the study's: "
        "the paper's are lost.",
        "Five states; Prepaging lets the rate of TLB misses settle before Nested (section 6).",
        [_diagram(each, arrows) for each in m.with_traced(data) if not each.states.is_empty()],
        columns=2,
    )


def _diagram(data: Data, arrows: Sequence[Arrow]) -> Figure:
    counts: Counter[tuple[str, str]] = Counter()
    for name in data.focus:
        names = m.states(data, name)["state"].to_list()
        counts.update(pairwise(names))
    spoken = "; ".join(
        f"{each.number}, {each.origin} to {each.to}: {counts[each.origin, each.to]}"
        for each in arrows
    )
    xs, ys = zip(*PLACES.values(), strict=True)
    nodes: Plot = {"type": "scatter", "mode": "text", "hoverinfo": "skip", "x": xs, "y": ys,
                   "text": [f"<b>{name}</b>" for name in PLACES],
                   "textfont": {"size": 13, "color": "var(--text)"}}  # fmt: skip
    hidden = {"visible": False, "fixedrange": True}
    layout = {
        **base_layout(320),
        "margin": {"l": 6, "r": 6, "t": 6, "b": 6},
        "xaxis": {**hidden, "range": [-0.3, 1.3]},
        "yaxis": {**hidden, "range": [-0.15, 1.15]},
        "shapes": [band(0.75, 1.3)],
        "annotations": [
            note for each in arrows for note in _arrow(each, counts[each.origin, each.to])
        ],
    }
    return Figure(
        "Profiles" if data.programs is None else "Traced programs",
        f"sum of {', '.join(data.focus)}",
        f"Diagram of five states with the number of transitions in the model: {spoken}.",
        {"data": [nodes], "layout": layout},
    )


def _arrow(arrow: Arrow, count: int) -> Iterator[Plot]:
    """An arrow to the right of the line between two states, grey where it was not taken."""
    (x0, y0), (x1, y1) = PLACES[arrow.origin], PLACES[arrow.to]
    dx, dy = x1 - x0, y1 - y0
    # Across, a state's name takes more of the way than up and down.
    ends = SHORT + 0.05 * abs(dx) if dx else 0.12 / abs(dy) * 0.6
    right, down = ASIDE * (dy != 0), ASIDE * (dx < 0) - ASIDE * (dx > 0)
    start = (x0 + ends * dx + right, y0 + ends * dy + down)
    end = (x1 - ends * dx + right, y1 - ends * dy + down)
    colour = "var(--text)" if count else "var(--grid)"
    yield {"x": end[0], "y": end[1], "ax": start[0], "ay": start[1], "axref": "x", "ayref": "y",
           "text": "", "showarrow": True, "arrowhead": 2, "arrowwidth": 1.6,
           "arrowcolor": colour}  # fmt: skip
    middle = ((start[0] + end[0]) / 2 + 1.9 * right, (start[1] + end[1]) / 2 + 1.3 * down)
    yield {"x": middle[0], "y": middle[1], "showarrow": False,
           "text": f"{arrow.number}: {count:,}", "font": {"size": 12}}  # fmt: skip


def figure_8(data: Data) -> StudyFigure:
    """The states of DAV2M over the run of each benchmark that has phases."""
    arrows = m.arrows(data)
    return StudyFigure(
        "8",
        "DAV2M's states over the run (model)",
        f"States of DAV2M on the {MACHINE_TITLES[MACHINE]}; the numbers are those of figure 7's "
        "transitions; shaded: nested paging. A window is 1e9 instructions of a profile, and a "
        "two-hundredth of a trace.",
        "An example of the timing of transitions, in retired instructions (section 6).",
        [
            _timeline(each, name, arrows)
            for each in m.with_traced(data)
            for name in PHASED
            if not each.states.is_empty() and name in each.focus
        ],
        columns=2,
    )


def _timeline(data: Data, name: str, arrows: Sequence[Arrow]) -> Figure:
    rows = m.states(data, name)
    windows = m.windows(data, name, "dav2m")
    length = float(windows["instructions"].to_list()[0])
    end = float(windows["instructions"].sum()) / length
    starts = [float(at) / length for at in rows["instructions"].to_list()]
    names = rows["state"].to_list()
    heights = [STATES.index(state) for state in names]
    plot = lines(
        [
            line([*starts, end], [*heights, heights[-1]], "state", "var(--env-3)", shape="hv"),
            marks(starts[1:], heights[1:], _numbers(arrows, starts, names, end), "var(--env-3)"),
        ],
        "windows",
        "",
        230,
        x_range=(-EDGE * end, (1 + EDGE) * end),
        y_range=(-0.5, len(STATES) - 0.3),
        shapes=list(_nested([*starts, end], names)),
    )
    plot["layout"]["yaxis"] |= {"tickvals": list(range(len(STATES))), "ticktext": list(STATES)}
    spoken = ", ".join(f"{state} from {at:.4g}" for state, at in zip(names, starts, strict=True))
    return Figure(
        label(name if data.programs is None else f"{name}, traced"),
        "state of DAV2M",
        f"Step line of DAV2M's states in the model of {name}, by window: {spoken}.",
        plot,
    )


def _nested(ends: Sequence[float], names: Sequence[str]) -> Iterator[Plot]:
    """A band wherever nested paging is in force."""
    for nested, same in groupby(range(len(names)), key=lambda at: names[at] in NESTED):
        if nested:
            spans = list(same)
            yield band(ends[spans[0]], ends[spans[-1] + 1])


def _numbers(
    arrows: Sequence[Arrow], starts: Sequence[float], names: Sequence[str], end: float
) -> Iterator[str]:
    """The number of each transition; empty where it would lie over the last one into the state."""
    numbers = {(each.origin, each.to): str(each.number) for each in arrows}
    last: dict[str, float] = {}
    for start, (before, state) in zip(starts[1:], pairwise(names), strict=True):
        free = start - last.get(state, -end) >= APART * end
        if free:
            last[state] = start
        yield numbers.get((before, state), "") if free else ""
