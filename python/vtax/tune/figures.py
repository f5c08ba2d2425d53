"""The figures of `vtax tune`: caches and registers, winners and libraries, CacheEdge."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from vtax.core.page.charts import LEAST_WIDTH, bars, chart_layout, colour, line
from vtax.core.page.format import bytes_text, significant
from vtax.core.page.plotting import Figure, Plot, label
from vtax.tune.record import TuneEnvironment, TuneRecord
from vtax.tune.tuning import CacheEdge, Curve

LATENCY = "latency"
_TICKS = (1 << 12, 1 << 15, 1 << 18, 1 << 21, 1 << 24, 1 << 27, 1 << 30)

_WIDE = 30
_NS = (0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)


def figures(record: TuneRecord) -> Sequence[Figure | None]:
    """All figures; None for one that has nothing to draw."""
    return _latency(record), _peaks(record), _bars(record), _edges(record), _chosen(record)


def _latency(record: TuneRecord) -> Figure | None:
    """Latencies of all environments in one figure, with the edges that were found."""
    curves = [(index, each, own) for index, each in enumerate(record.environments)
              for own in each.curves if own.name == LATENCY and own.points]  # fmt: skip
    if not curves:
        return None
    data: list[Plot] = []
    shapes: list[Plot] = []
    spoken = []
    for index, each, own in curves:
        known = [point for point in own.points if point.ns > 0 and point.bytes > 0]
        data.append(line(index, each.spec, [p.bytes for p in known], [p.ns for p in known]))
        shapes += _bands(index, own)
        edges = ", ".join(bytes_text(edge.bytes) for edge in own.edges) or "none"
        spoken.append(f"{each.spec}: edges at {edges}")
    layout = chart_layout("ns for a load", "working set")
    layout["xaxis"] |= {"type": "log", "tickvals": list(_TICKS),
                        "ticktext": [bytes_text(tick) for tick in _TICKS]}  # fmt: skip
    layout["yaxis"] |= {"type": "log", "rangemode": "normal", "tickvals": list(_NS)}
    layout["shapes"] = shapes
    return _figure(
        "Latency against working set",
        "Median latency of loads that wait for each other, both scales logarithmic. A band is a "
        "step that was found, with its 95 % interval: the end of a cache.",
        "; ".join(spoken),
        data,
        layout,
    )


def _bands(index: int, own: Curve) -> Sequence[Plot]:
    return [
        {
            "type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1,
            "x0": max(edge.low, 1.0), "x1": max(edge.high, 1.0),
            "fillcolor": colour(index), "opacity": 0.15, "line": {"width": 0},
        }
        for edge in own.edges
    ]  # fmt: skip


def _peaks(record: TuneRecord) -> Figure | None:
    """Register-to-register performance of each width (figure 2)."""
    found = [{own.name: own.value for own in each.probes if own.name.startswith("peak_")}
             for each in record.environments]  # fmt: skip
    names = list(dict.fromkeys(name for own in found for name, value in own.items()
                               if value is not None))  # fmt: skip
    if not names:
        return None
    data = [
        bars(index, each.spec, [label(name.removeprefix("peak_")) for name in names],
             [own.get(name) for name in names], "GFLOP/s")
        for index, (each, own) in enumerate(zip(record.environments, found, strict=True))
    ]  # fmt: skip
    spoken = "; ".join(
        f"{each.spec}: "
        + ", ".join(f"{name} {significant(own[name])}" for name in names if own.get(name))
        for each, own in zip(record.environments, found, strict=True)
    )
    return _figure(
        "Register-to-register peak",
        "What the floating-point unit does without memory, for each width of the registers (the "
        "paper's figure 2). A width that the processor lacks is missing.",
        spoken,
        data,
        _categories("GFLOP/s", data),
    )


def _bars(record: TuneRecord) -> Figure | None:
    """The winner and the libraries, by environment."""
    names = ["tuned", *dict.fromkeys(peer.name for each in record.environments
                                     for peer in each.peers)]  # fmt: skip
    values = [_rates(each) for each in record.environments]
    if not any(values):
        return None
    specs = [label(each.spec) for each in record.environments]
    data = [
        bars(index, name, specs, [own.get(name) for own in values], "GFLOP/s")
        for index, name in enumerate(names)
    ]
    spoken = "; ".join(
        f"{each.spec}: " + ", ".join(f"{name} {significant(rate)}" for name, rate in own.items())
        for each, own in zip(record.environments, values, strict=True)
    )
    return _figure(
        "Winner beside libraries",
        "A product of matrices with the parameters that were found there, by the best code with "
        "one instruction set only, and by the libraries that are installed (the paper's figure 6). "
        "Median of the rounds.",
        spoken,
        data,
        _categories("GFLOP/s", data),
    )


def _rates(each: TuneEnvironment) -> dict[str, float]:
    found = {} if each.winner is None else {"tuned": float(each.winner["gflops"])}
    return found | {peer.name: peer.gflops for peer in each.peers}


def _edges(record: TuneRecord) -> Figure | None:
    """Performance against CacheEdge (figures 3 and 4)."""
    found = swept(record)
    if not found:
        return None
    data = [
        line(index, each.spec, [p.bytes for p in own.points], [p.gflops for p in own.points])
        for index, each, own in found
    ]
    data += [
        {
            **line(index, f"{each.spec}, L1 only", _ends(own), [alone.gflops] * 2),
            "mode": "lines",
            "line": {"color": colour(index), "width": 1, "dash": "dot"},
        }
        for index, each, own in found
        if own.points and (alone := own.l1_only)
    ]
    layout = chart_layout("GFLOP/s", "CacheEdge")
    ticks = sorted({point.bytes for _, _, own in found for point in own.points})
    layout["xaxis"] |= {"type": "log", "tickvals": ticks[::2],
                        "ticktext": [bytes_text(tick) for tick in ticks[::2]]}  # fmt: skip
    spoken = "; ".join(f"{each.spec}: up to {_best(own)} GFLOP/s" for _, each, own in found)
    return _figure(
        "Performance against CacheEdge",
        "A large product with blocks of each size for the second cache (the paper's figures 3 and "
        "4); dotted: with blocks of the first cache only.",
        spoken,
        data,
        layout,
    )


def _chosen(record: TuneRecord) -> Figure | None:
    """How many runs would choose each CacheEdge (figure 5)."""
    found = swept(record)
    if not found:
        return None
    sizes = sorted({size for _, _, own in found for size in own.chosen if size is not None})
    names = ["L1 only", *map(bytes_text, sizes)]
    data, spoken = [], []
    for index, each, own in found:
        count = Counter(own.chosen)
        data.append(
            bars(index, each.spec, names, [count[None], *(count[s] for s in sizes)], "runs")
        )
        edge = ", ".join(f"{bytes_text(s)} by {count[s]}" for s in sizes if count[s]) or "none"
        spoken.append(f"{each.spec}: {edge} of {len(own.chosen)} runs")
    return _figure(
        "Chosen CacheEdge",
        "How many runs would choose each size (figure 5). Where several are as fast, noise chooses "
        "among them: selection variability.",
        "; ".join(spoken),
        data,
        _categories("runs"),
    )


def swept(record: TuneRecord) -> Sequence[tuple[int, TuneEnvironment, CacheEdge]]:
    """The environments in which CacheEdge was measured, with their numbers."""
    return [
        (index, each, each.cache_edge)
        for index, each in enumerate(record.environments)
        if each.cache_edge is not None
    ]


def _ends(own: CacheEdge) -> Sequence[float]:
    return own.points[0].bytes, own.points[-1].bytes


def _best(own: CacheEdge) -> str:
    return significant(max((point.gflops for point in own.points), default=None))


def _categories(y: str, data: Sequence[Plot] = ()) -> Plot:
    """The layout of groups of bars: logarithmic where the lowest bar would be too small to see."""
    layout = chart_layout(y, "")
    layout |= {"barmode": "group", "xaxis": {"type": "category", "fixedrange": True}}
    known = [value for each in data for value in each["y"] if value]
    if known and max(known) > _WIDE * min(known):
        ends = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
        ticks = [10.0**power for power in range(ends[0], ends[1] + 1)]
        layout["yaxis"] |= {"type": "log", "range": list(ends), "tickvals": ticks}
        layout["yaxis"]["title"] = {"text": f"{y}, logarithmic"}
    return layout


def _figure(title: str, meaning: str, spoken: str, data: Sequence[Plot], layout: Plot) -> Figure:
    plot = {"data": list(data), "layout": layout, "meta": {"least_width": LEAST_WIDTH}}
    return Figure(title, meaning, spoken, plot)
