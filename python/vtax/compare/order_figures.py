"""Figure 2: every single repetition in the order in which it ran, so that drift can be seen."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vtax.core.formats.model import Failure, Sample
from vtax.core.page.format import one_line, plural, seconds_text, significant
from vtax.core.page.palette import Style, styles
from vtax.core.page.plotting import NOTES, Figure, Plot, base_layout, label
from vtax.core.statistics.results import Comparison

PANEL_PX = 118
TITLE_PX = 26
BOTTOM_PX = 44
LEFT_PX = 64


def order_figures(comparison: Comparison, samples: Sequence[Sample]) -> list[Figure]:
    """One figure per metric; one panel per environment, each on its own scale."""
    by_metric: dict[str, dict[str, list[Sample]]] = {}
    for sample in samples:
        by_metric.setdefault(sample.metric, {}).setdefault(sample.environment, []).append(sample)
    order = dict.fromkeys([*(result.metric for result in comparison.results), *by_metric])
    return [
        _order_figure(comparison, metric, by_metric[metric])
        for metric in order
        if metric in by_metric
    ]


def _order_figure(
    comparison: Comparison, metric: str, found: Mapping[str, Sequence[Sample]]
) -> Figure:
    shown = [style for style in styles(comparison.record.environments) if style.label in found]
    panels = [
        _Panel(index, len(shown), style, sorted(found[style.label], key=lambda s: s.position))
        for index, style in enumerate(shown)
    ]
    unit = next(iter(found.values()))[0].unit
    last = max(len(comparison.record.order), 1 + max(s.position for p in panels for s in p.samples))
    plot: Plot = {
        "data": [trace for panel in panels for trace in panel.traces()],
        "layout": {
            **base_layout(len(panels) * (PANEL_PX + TITLE_PX) + BOTTOM_PX),
            "template": NOTES,
            "hovermode": "closest",
            "margin": {"l": LEFT_PX, "r": 12, "t": 2, "b": BOTTOM_PX},
            "xaxis": _order_axis(last, panels[-1].axis),
            "annotations": [
                *(panel.title(unit) for panel in panels),
                *(mark for panel in panels for mark in panel.failures(comparison)),
            ],
            **{f"yaxis{panel.suffix}": panel.value_axis() for panel in panels},
        },
    }
    return Figure(one_line(metric), unit, _spoken(metric, panels), plot)


def _order_axis(last: int, anchor: str) -> Plot:
    return {
        "title": {"text": "position in the order of the run", "standoff": 8},
        "range": [-0.7, last - 0.3],
        "anchor": anchor,
        "gridcolor": "var(--grid)",
        "zeroline": False,
        "rangemode": "nonnegative",
        "fixedrange": True,
        "nticks": 12,
    }


@dataclass(frozen=True, slots=True)
class _Panel:
    """The repetitions of one environment, as a strip of the figure with a title above."""

    index: int
    count: int
    style: Style
    samples: list[Sample]

    @property
    def suffix(self) -> str:
        """Plotly numbers axes from 2; the first has no number."""
        return "" if self.index == 0 else str(self.index + 1)

    @property
    def axis(self) -> str:
        return f"y{self.suffix}"

    def _paper(self, pixels: float) -> float:
        """A distance below this panel's upper edge as a height of the plot area."""
        step = PANEL_PX + TITLE_PX
        return max(0.0, 1 - (self.index * step + pixels) / (self.count * step))

    @property
    def _median(self) -> float:
        return statistics.median(sample.value for sample in self.samples)

    def value_axis(self) -> Plot:
        """The strip's own scale: environments may differ by orders of magnitude."""
        return {
            "domain": [self._paper(TITLE_PX + PANEL_PX - 4), self._paper(TITLE_PX)],
            "gridcolor": "var(--grid)",
            "zeroline": False,
            "fixedrange": True,
            "nticks": 4,
            "exponentformat": "SI",
        }

    def title(self, unit: str) -> Plot:
        text = f"<b>{label(self.style.label)}</b>  median {significant(self._median)} {label(unit)}"
        y = self._paper(TITLE_PX / 2)
        return {"text": text, "yref": "paper", "y": y, "xshift": 6 - LEFT_PX}

    def traces(self) -> list[Plot]:
        """The line of the median, and a dot per repetition."""
        positions = [sample.position for sample in self.samples]
        median_line = {
            "type": "scatter",
            "mode": "lines",
            "x": [min(positions) - 0.4, max(positions) + 0.4],
            "y": [self._median, self._median],
            "line": {"color": self.style.colour, "width": 1, "dash": "dash"},
            "hoverinfo": "skip",
        }
        dots = {
            "type": "scatter",
            "mode": "lines+markers",
            "x": positions,
            "y": [sample.value for sample in self.samples],
            "line": {"color": "var(--rule)", "width": 1},
            "marker": {
                "color": self.style.colour,
                "symbol": self.style.symbol,
                "size": 9,
                "line": {
                    "color": self.style.colour,
                    "width": 0 if self.style.role == "measured" else 2,
                },
            },
            # The same for every metric of the run, so that the page needs it only once.
            "customdata": [_hover(sample) for sample in self.samples],
            "hovertemplate": f"%{{customdata[0]}}<br>%{{y:,.4r}} {label(self.samples[0].unit)}<br>"
            "%{customdata[1]}<extra></extra>",
        }
        return [
            {**trace, "yaxis": self.axis, "meta": {"env": self.style.index}}
            for trace in (median_line, dots)
        ]

    def failures(self, comparison: Comparison) -> list[Plot]:
        """A cross at the bottom of the strip for each repetition that gave no value."""
        positions = {pair: index for index, pair in enumerate(comparison.record.order)}
        return [
            _cross(failure, positions[failure.environment, failure.repetition], self.axis)
            for failure in comparison.record.failures
            if failure.environment == self.style.label
            and (failure.environment, failure.repetition) in positions
        ]


def _cross(failure: Failure, position: int, axis: str) -> Plot:
    return {
        "text": "✕",
        "hovertext": f"repetition {failure.repetition} failed: {label(failure.message)}",
        "xref": "x",
        "x": position,
        "xanchor": "center",
        "yref": f"{axis} domain",
        "y": 0.02,
        "yanchor": "bottom",
        "font": {"color": "var(--bad)", "size": 14},
    }


def _hover(sample: Sample) -> list[str]:
    """Which repetition it is, and how long it took."""
    steal = "unknown" if sample.steal_s is None else seconds_text(sample.steal_s)
    return [
        f"<b>{label(sample.environment)}</b>, repetition {sample.repetition}, "
        f"boot {sample.boot}, position {sample.position}",
        f"wall {seconds_text(sample.wall_s)}, CPU {seconds_text(sample.cpu_s)}, steal {steal}",
    ]


def _spoken(metric: str, panels: Iterable[_Panel]) -> str:
    parts = (
        f"{one_line(panel.style.label)}: {plural(len(panel.samples), 'repetition')}"
        for panel in panels
    )
    return f"Every repetition of {one_line(metric)} in the order of the run. {'; '.join(parts)}."
