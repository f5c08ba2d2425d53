"""Figures 5 and 9: rates over the run, with and without DAV2M."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import polars as pl

from vtax.present.format import significant
from vtax.present.html.plotting import Figure, Plot
from vtax.studies.dav2m import measures as m
from vtax.studies.dav2m.data import Data, need
from vtax.studies.dav2m.figures.parts import level, line, lines, look
from vtax.studies.dav2m.setup import FOCUS, PHASED, THRESHOLD_TMISS, THRESHOLD_VEXIT
from vtax.studies.model import StudyFigure

SMALL_PX = 170
LARGE_PX = 260
X_TITLE = "instructions, 1e9"
WINDOW_TMISS = 10
"""`window_tmiss` in windows of 1e9 instructions: the threshold counts over so many (section 6)."""


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
    """A band for each stretch under nested paging."""
    at, last = 0, 0.0
    for mode, stretch in groupby(modes):
        at += len(list(stretch))
        if mode == "nested":
            yield {
                "type": "rect",
                "layer": "below",
                "x0": last,
                "x1": ends[at - 1],
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"width": 0},
                "fillcolor": "var(--band)",
            }
        last = ends[at - 1]
