"""The figures of `vtax memory`: performance, memory of kernel and program, swapping, faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vtax.core.page.charts import LEAST_WIDTH, bars, chart_layout, colour, line
from vtax.core.page.format import NOT_MEASURED, significant
from vtax.core.page.plotting import Figure, Plot, label
from vtax.core.units import format_bytes
from vtax.memory.record import MemoryEnvironment, MemoryPoint, MemoryRecord

_MIB = float(1 << 20)


@dataclass(frozen=True, slots=True)
class _Curve:
    """A quantity of points, drawn against the size."""

    title: str
    meaning: str
    unit: str
    value: Callable[[MemoryPoint], float | None]


_CURVES = (
    _Curve(
        "Resident set", "The program's largest resident set (the paper's figure 10).", "MiB",
        lambda point: _mib(point.max_rss_bytes),
    ),
    _Curve(
        "Working set", "What the program used within a second, the median of the seconds.", "MiB",
        lambda point: _mib(point.working_set_bytes),
    ),
    _Curve(
        "Swap in use", "The most that was swapped out at a time (figure 11).", "MiB",
        lambda point: _mib(point.swap_bytes),
    ),
    _Curve(
        "Swap traffic", "Written to swap and read back while the program ran.", "MiB",
        lambda point: _mib(_both(point.swapped_in_bytes, point.swapped_out_bytes)),
    ),
    _Curve(
        "Major faults", "Page faults of the program that waited for a disk (figure 12).", "faults",
        lambda point: point.major_faults,
    ),
    _Curve(
        "Minor faults", "Page faults of the program that did not (figure 13).", "faults",
        lambda point: point.minor_faults,
    ),
    _Curve(
        "Data TLB misses", "Misses of the program's loads (figure 14).", "misses",
        lambda point: point.dtlb_misses,
    ),
    _Curve(
        "Instruction TLB misses", "Misses of the program's code (figure 15).", "misses",
        lambda point: point.itlb_misses,
    ),
    _Curve(
        "Waiting for memory", "Time in which some task of the machine waited for memory (PSI).",
        "s", lambda point: point.stalled_s,
    ),
)  # fmt: skip


def figures(record: MemoryRecord) -> Sequence[Figure]:
    """Performance and kernel memory, and a curve for each quantity that some machine measured."""
    curves = [
        _figure(record, curve)
        for curve in _CURVES
        if any(curve.value(point) is not None for each in record.environments
               for point in each.points)
    ]  # fmt: skip
    return [_performance(record), _kernel(record), *curves]


def _performance(record: MemoryRecord) -> Figure:
    """The median, smallest and largest value of each size, and the edges."""
    data: list[Plot] = []
    for index, each in enumerate(record.environments):
        points = [point for point in each.points if point.median is not None]
        middle = [point.median or 0.0 for point in points]
        data.append(
            {
                **line(index, each.spec, [point.size for point in points], middle),
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [(p.high or 0.0) - m for p, m in zip(points, middle, strict=True)],
                    "arrayminus": [m - (p.low or 0.0) for p, m in zip(points, middle, strict=True)],
                    "thickness": 1,
                    "width": 3,
                },
            }
        )
    layout = chart_layout(f"{record.metric} ({label(record.unit)})", "size")
    layout["shapes"] = [_edge(index, each) for index, each in enumerate(record.environments)
                        if each.cliff]  # fmt: skip
    layout["annotations"] = [
        note for index, each in enumerate(record.environments) for note in _kills(index, each)
    ]
    return Figure(
        "Performance",
        "Median of the runs of each size, with the smallest and the largest (the paper's figure "
        "8). A band is the edge with its interval; a cross a size at which a run was killed.",
        "; ".join(_spoken(each) for each in record.environments) or "nothing was measured",
        {"data": data, "layout": layout, "meta": {"least_width": LEAST_WIDTH}},
    )


def _kernel(record: MemoryRecord) -> Figure:
    """The parts of each kernel, stacked."""
    parts = list(dict.fromkeys(part for each in record.environments for part in each.kernel_bytes))
    names = [label(each.spec) for each in record.environments]
    data = [
        bars(
            index, part, names, [_mib(each.kernel_bytes.get(part)) for each in record.environments],
            "MiB",
        )
        for index, part in enumerate(parts)
    ]  # fmt: skip
    layout = chart_layout("MiB", "")
    layout |= {"barmode": "stack", "xaxis": {"type": "category", "fixedrange": True}}
    spoken = "; ".join(
        f"{each.spec}: " + ", ".join(f"{part} {size_text(size)}"
                                     for part, size in each.kernel_bytes.items())
        for each in record.environments
    )  # fmt: skip
    return Figure(
        "Kernel memory",
        "Code and data of the kernel's image, and what it had besides while programs ran (the "
        "paper's figure 9). A part that the machine does not show is missing, not zero.",
        spoken,
        {"data": data, "layout": layout, "meta": {"least_width": LEAST_WIDTH}},
    )


def _figure(record: MemoryRecord, curve: _Curve) -> Figure:
    data, spoken = [], []
    for index, each in enumerate(record.environments):
        known = [(p.size, y) for p in each.points if (y := curve.value(p)) is not None]
        data.append(line(index, each.spec, [size for size, _ in known], [y for _, y in known]))
        most = max((y for _, y in known), default=None)
        spoken.append(f"{each.spec}: up to {significant(most, 3)} {curve.unit}")
    plot = {
        "data": data,
        "layout": chart_layout(curve.unit, "size"),
        "meta": {"least_width": LEAST_WIDTH},
    }
    return Figure(curve.title, f"{curve.meaning} Median of the runs.", "; ".join(spoken), plot)


def _edge(index: int, each: MemoryEnvironment) -> Plot:
    assert each.cliff is not None
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": each.cliff.low or 0,
        "x1": each.cliff.high,
        "y0": 0,
        "y1": 1,
        "fillcolor": colour(index),
        "opacity": 0.15,
        "line": {"width": 0},
    }


def _kills(index: int, each: MemoryEnvironment) -> Sequence[Plot]:
    return [
        {
            "text": "✕",
            "hovertext": f"{label(each.spec)}: killed at {point.size} ({point.killed} runs)",
            "x": point.size,
            "xref": "x",
            "yref": "paper",
            "y": 0.02 + 0.05 * index,
            "showarrow": False,
            "font": {"color": colour(index), "size": 13},
        }
        for point in each.points
        if point.killed
    ]


def _spoken(each: MemoryEnvironment) -> str:
    if each.cliff is None:
        return f"{each.spec}: no cliff"
    return f"{each.spec}: falls past {each.cliff.size or 'nothing'}"


def _both(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _mib(size: float | None) -> float | None:
    return None if size is None else size / _MIB


def size_text(size: float | None) -> str:
    """Bytes for a reader."""
    return NOT_MEASURED if size is None else format_bytes(round(size))
