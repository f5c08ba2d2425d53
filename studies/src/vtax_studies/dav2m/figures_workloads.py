"""Figures 2 and 3: what large pages save and how local accesses are, profiles and traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vtax.core.page.format import signed, significant
from vtax.core.page.plotting import Figure
from vtax_studies.dav2m import data as m
from vtax_studies.dav2m.data import Data, need
from vtax_studies.dav2m.setup import LOCALITY, MACHINE, MACHINE_TITLES
from vtax_studies.model import StudyFigure, StudyTable
from vtax_studies.plots import Look, Series, bars, level, line, lines
from vtax_studies.rule import Missing

DASHES = ("solid", "dash", "dot", "dashdot")
SMALL = Look("4K pages", "var(--env-1)")
LARGE = Look("2M pages", "var(--env-2)", "/")
GAIN = Look("time saved", "var(--env-3)")


def figure_2(data: Data) -> StudyFigure:
    """TLB misses with either page size, and what large pages gain."""
    need(data.pages, "native runs with small and large pages")
    return StudyFigure(
        "2",
        "Native TLB misses with small and large pages (model)",
        "Misses of both TLB levels per 1e9 instructions, on a logarithmic axis, and by how much "
        "shorter the modelled run is with large pages. The paper surveyed more benchmarks; these "
        "are the ones its text names.",
        "Many benchmarks gain 10 to 20 % with large pages; mcf and cactusADM do worse (section 3).",
        [panel for each in _both(data) for panel in (_misses(each), _gains(each))],
        columns=2,
    )


def _both(data: Data) -> Sequence[Data]:
    """The data, and those of traced programs where there are some with both page sizes."""
    return [each for each in m.with_traced(data) if not each.pages.is_empty()]


def _of(data: Data) -> str:
    return "" if data.programs is None else ", traced programs"


def _misses(data: Data) -> Figure:
    series = []
    for look, page in ((SMALL, "4K"), (LARGE, "2M")):
        rates = [m.native_miss_rate(data, name, page) for name in data.surveyed]
        drawn = [rate if rate > 0 else None for rate in rates]
        series.append(Series(look, drawn, [_count(rate) for rate in rates]))
    spoken = "; ".join(
        f"{name} {_count(m.native_miss_rate(data, name, '4K'))} with 4K pages and "
        f"{_count(m.native_miss_rate(data, name, '2M'))} with 2M pages"
        for name in data.surveyed
    )
    return Figure(
        f"TLB misses{_of(data)}",
        "per 1e9 instructions",
        f"Bars of modelled TLB misses per 1e9 instructions: {spoken}.",
        bars(data.surveyed, series, "modelled misses per 1e9 instructions", log=True),
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
    gains = [m.large_page_gain(data, name) for name in data.surveyed]
    spoken = "; ".join(f"{n} {signed(g)} %" for n, g in zip(data.surveyed, gains, strict=True))
    return Figure(
        f"Time saved by large pages{_of(data)}",
        "in % of the time with small ones",
        f"Bars of the modelled time that large pages save: {spoken}.",
        bars(data.surveyed, [Series(GAIN, gains)], "modelled time saved, %", beside=2),
    )


def figure_3(data: Data) -> StudyFigure:
    """Share of accesses over share of page-table entries."""
    need(data.locality, "references per page-table region")
    panels = [_covered(data, LOCALITY)]
    if data.traced is not None and not data.traced.locality.is_empty():
        panels.append(_covered(data.traced, [(name, "4K") for name in data.traced.focus]))
    return StudyFigure(
        "3",
        "Locality in the first level of the page table (model)",
        "Each 4 MiB region of the address space is one entry of the first level of a two-level "
        "page table. A curve that rises steeply has locality; the diagonal has none. Dotted: 20 % "
        "of the entries and 80 % of the accesses.",
        "About 20 % of the page table covers over 80 % of the accesses of mcf (4K pages) and vpr "
        "(large pages); swim's pattern is very random (section 3).",
        panels,
        columns=len(panels),
    )


def _covered(data: Data, workloads: Sequence[tuple[str, str]]) -> Figure:
    traces, spoken = [], []
    for at, (name, page) in enumerate(workloads):
        counts = m.regions(data, name, page)
        xs, ys = m.cumulative_share(counts)
        title = _title(data, name, page)
        colour = f"var(--env-{at % 5 + 1})"
        traces.append(line(xs, ys, title, colour, dash=DASHES[at % len(DASHES)], width=2.2))
        spoken.append(f"{title} {significant(m.top_share(counts), 3)} %")
    return Figure(
        f"Accesses covered{_of(data)}",
        "by the busiest part of the page table",
        f"Curves of the model; the busiest 20 % of the entries cover: {'; '.join(spoken)}.",
        lines(
            traces,
            "share of touched entries, busiest first, %",
            f"share of {'modelled' if data.programs is None else 'traced'} accesses, %",
            360,
            legend_rows=(len(traces) + 1) // 2,
            x_range=(0, 100),
            y_range=(0, 101),
            shapes=[_CORNER, level(80)],
        ),
    )


def _title(data: Data, name: str, page: str) -> str:
    if data.programs is not None:
        return name
    return f"{name}, {page} pages" if name != "scan" else "worst-case scan"


_CORNER = {
    "type": "line",
    "x0": 20,
    "x1": 20,
    "yref": "paper",
    "y0": 0,
    "y1": 1,
    "line": {"color": "var(--bad)", "width": 1.4, "dash": "dot"},
}


def traced_table(data: Data) -> StudyTable:
    """What each traced program costs in each mode. Raises Missing without traces."""
    traced = data.traced
    if traced is None or traced.modes.is_empty():
        raise Missing("no program was traced")
    modes = ("shadow", "nested", "dav2m", "vtax", "oracle")
    rows = []
    for name in traced.focus:
        native = m.mode_rows(traced, MACHINE, name)["native"]
        counts = (float(str(native[key])) / 1e6 for key in ("instructions", "references"))
        over = (m.overhead(traced, MACHINE, name, mode) for mode in modes)
        switches = m.number(traced, MACHINE, name, "dav2m", "switches")
        rows.append((name, *(f"{count:,.0f}" for count in counts), *map(_two, over),
                     f"{switches:.0f}", *_survey(traced, name)))  # fmt: skip
    return StudyTable(
        "traced",
        "Traced programs",
        f"Modelled on the {MACHINE_TITLES[MACHINE]}: overhead over native in percent; changes of "
        "the mode under DAV2M; the time that large pages save; and the share of the accesses to "
        "user addresses that the busiest fifth of the touched 4 MiB regions has; and, natively "
        "with small pages, the share of the page-table entries that have 80 % of the TLB misses "
        "(by the entry that maps the page), and of the reads of walks (entries of every level).",
        ("Program", "Million instructions", "Million references", *modes, "Switches of dav2m",
         "Large pages save %", "Busiest 20 % cover %", "Entries for 80 % of misses, %",
         "Entries for 80 % of reads, %"),
        rows,
    )  # fmt: skip


def _survey(data: Data, name: str) -> Iterator[str]:
    values: Sequence[Callable[[], float]] = (
        lambda: m.large_page_gain(data, name),
        lambda: m.top_share(m.regions(data, name, "4K")),
        lambda: m.covering_entries(data, name, "4K", "misses")[1],
        lambda: m.covering_entries(data, name, "4K", "reads")[1],
    )
    for value in values:
        try:
            yield _two(value())
        except Missing:
            yield ""


def _two(value: float) -> str:
    return signed(value, 3)
