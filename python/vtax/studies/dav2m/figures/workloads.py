"""Figures 2 and 3: what page size and locality do to native runs."""

from __future__ import annotations

from vtax.present.format import signed, significant
from vtax.present.html.plotting import Figure
from vtax.studies.dav2m import measures as m
from vtax.studies.dav2m.data import Data, need
from vtax.studies.dav2m.figures.parts import Look, Series, bars, level, line, lines
from vtax.studies.dav2m.setup import LOCALITY, SURVEYED
from vtax.studies.model import StudyFigure

SMALL = Look("4K pages", "var(--env-1)")
LARGE = Look("2M pages", "var(--env-2)", "/")
GAIN = Look("time saved", "var(--env-3)")
_DASHES = ("solid", "dash", "dot", "dashdot")


def figure_2(data: Data) -> StudyFigure:
    """TLB misses with either page size, and what large pages gain."""
    need(data.pages, "native runs with small and large pages")
    return StudyFigure(
        "2",
        "Native TLB misses with small and large pages (model)",
        "Misses of both TLB levels per 1e9 instructions, on a logarithmic axis, and by how much "
        "shorter the modelled run is with large pages. The seed surveyed more benchmarks; these "
        "are the ones its text names.",
        "Many benchmarks gain 10 to 20 % with large pages; mcf and cactusADM do worse (section 3).",
        [_misses(data), _gains(data)],
        columns=2,
    )


def _misses(data: Data) -> Figure:
    series = []
    for look, page in ((SMALL, "4K"), (LARGE, "2M")):
        rates = [m.native_miss_rate(data, name, page) for name in SURVEYED]
        drawn = [rate if rate > 0 else None for rate in rates]
        series.append(Series(look, drawn, [_count(rate) for rate in rates]))
    spoken = "; ".join(
        f"{name} {_count(m.native_miss_rate(data, name, '4K'))} with 4K pages and "
        f"{_count(m.native_miss_rate(data, name, '2M'))} with 2M pages"
        for name in SURVEYED
    )
    return Figure(
        "TLB misses",
        "per 1e9 instructions",
        f"Bars of modelled TLB misses per 1e9 instructions: {spoken}.",
        bars(SURVEYED, series, "modelled misses per 1e9 instructions", log=True),
    )


def _count(rate: float) -> str:
    """A count of events with two digits: `8.2M`, `750`, `below 1`."""
    if 0 < rate < 1:
        return "below 1"
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{significant(rate / size, 2)}{unit}"
    return significant(rate, 2)


def _gains(data: Data) -> Figure:
    gains = [m.large_page_gain(data, name) for name in SURVEYED]
    spoken = "; ".join(f"{n} {signed(g)} %" for n, g in zip(SURVEYED, gains, strict=True))
    return Figure(
        "Time saved by large pages",
        "in % of the time with small ones",
        f"Bars of the modelled time that large pages save: {spoken}.",
        bars(SURVEYED, [Series(GAIN, gains)], "modelled time saved, %", beside=2),
    )


def figure_3(data: Data) -> StudyFigure:
    """Share of accesses over share of page-table entries."""
    need(data.locality, "references per page-table region")
    traces, spoken = [], []
    for at, (name, page) in enumerate(LOCALITY):
        counts = m.regions(data, name, page)
        xs, ys = m.cumulative_share(counts)
        title = f"{name}, {page} pages" if name != "scan" else "worst-case scan"
        colour = f"var(--env-{at + 1})"
        traces.append(line(xs, ys, title, colour, dash=_DASHES[at], width=2.2))
        spoken.append(f"{title} {significant(m.top_share(counts), 3)} %")
    corner = {
        "type": "line",
        "x0": 20,
        "x1": 20,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": "var(--bad)", "width": 1.4, "dash": "dot"},
    }
    plot = lines(
        traces,
        "share of touched entries, busiest first, %",
        "share of modelled accesses, %",
        360,
        legend_rows=2,
        x_range=(0, 100),
        y_range=(0, 101),
        shapes=[corner, level(80)],
    )
    return StudyFigure(
        "3",
        "Locality in the first level of the page table (model)",
        "Each 4 MiB region of the address space is one entry of the first level of a two-level "
        "page table. A curve that rises steeply has locality; the diagonal has none. Dotted: 20 % "
        "of the entries and 80 % of the accesses.",
        "About 20 % of the page table covers over 80 % of the accesses of mcf (4K pages) and vpr "
        "(large pages); swim's pattern is very random (section 3).",
        [
            Figure(
                "Accesses covered",
                "by the busiest part of the page table",
                f"Curves of the model; the busiest 20 % of the entries cover: {'; '.join(spoken)}.",
                plot,
            )
        ],
    )
