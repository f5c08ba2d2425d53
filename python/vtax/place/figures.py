"""The figures of `vtax place measure`: sensitivity, CPU and throughput, Combined Usage."""

from __future__ import annotations

from collections.abc import Sequence

from vtax.core.page.charts import LEAST_WIDTH, bars, chart_layout, line
from vtax.core.page.format import significant
from vtax.core.page.plotting import Figure, Plot, label
from vtax.place import tables as place_tables
from vtax.place.record import PlaceLoad, PlacePoint, PlaceRecord

_DASHES = ("solid", "dash", "dot", "dashdot")
"""A dash for each way of slowing."""
_GUIDE = {"color": "var(--text)", "width": 1, "dash": "dot"}
_SPEED = "speed of the service threads, % of full"


def figures(record: PlaceRecord) -> Sequence[Figure | None]:
    """All figures; None for one that has nothing to draw."""
    return [
        *(sensitivity(record, each.spec) for each in record.environments),
        *(throughput(record, load) for load in record.loads),
        *(usage(record, load) for load in record.loads),
    ]


def sensitivity(record: PlaceRecord, spec: str) -> Figure | None:
    """Relative performance of all loads of an environment (figure 1); None: no slow points."""
    loads = [load for load in record.loads if load.environment == spec]
    data: list[Plot] = []
    for index, load in enumerate(loads):
        for dash, backend in _backends(record):
            points = _counted(load, backend)
            if len(points) > 1:
                drawn = line(
                    index,
                    f"{load.load}, {backend}",
                    [_speed(point) for point in points],
                    [point.relative_percent for point in points],
                )
                drawn["line"] |= {"dash": dash}
                data.append({**drawn, "error_y": _whiskers(points)})
    if not data:
        return None
    least = min(_speed(point) for load in loads for point in load.points)
    ends = [least, 100.0]
    data.append(
        {"type": "scatter", "mode": "lines", "name": "in proportion", "x": ends, "y": ends,
         "line": _GUIDE, "hoverinfo": "skip"}
    )  # fmt: skip
    layout = chart_layout("throughput, % of the control", _SPEED)
    layout["xaxis"] |= {"autorange": "reversed"}
    highest = max(y for each in data for y in each["y"])
    # With two rounds an interval may be many times as long as the figure is high.
    layout["yaxis"] |= {"range": [0, 1.15 * max(100.0, highest)]}
    spoken = "; ".join(f"{load.load}: {_lost(load)}" for load in loads)
    return _figure(
        f"Sensitivity of loads: {label(spec)}",
        "Throughput against the speed that the service threads really had, in percent of controls "
        "at full speed that ran beside each point, with 95 % interval (the paper's figure 1).",
        spoken,
        data,
        layout,
    )


def throughput(record: PlaceRecord, load: PlaceLoad) -> Figure | None:
    """CPU utilisation and throughput against speed (figures 2 to 4); None: no slow points."""
    data: list[Plot] = []
    factor, unit = place_tables.scale(load.points[0].unit)
    for dash, backend in _backends(record):
        points = _counted(load, backend)
        speeds = [_speed(point) for point in points]
        if len(points) > 1:
            drawn = line(
                0, f"throughput, {backend}", speeds, [factor * p.throughput for p in points]
            )
            drawn["line"] |= {"dash": dash}
            used = line(
                1, f"service CPU, {backend}", speeds, [p.service_cpu_percent for p in points]
            )
            used["line"] |= {"dash": dash}
            data += [drawn, {**used, "yaxis": "y2"}]
    if not data:
        return None
    layout = chart_layout(f"throughput, {label(unit)}", _SPEED)
    layout["xaxis"] |= {"autorange": "reversed"}
    layout["yaxis2"] = {
        "title": {"text": "CPU of the service, %"}, "overlaying": "y", "side": "right",
        "rangemode": "tozero", "tickmode": "auto", "nticks": 5, "showgrid": False,
        "fixedrange": True, "zeroline": False,
    }  # fmt: skip
    layout["margin"] |= {"r": 64}
    spoken = "; ".join(
        f"at {point.speed_asked_percent:g} % ({point.backend}) "
        f"{significant(factor * point.throughput)} {unit}"
        for point in load.points
    )
    return _figure(
        f"CPU and throughput of {label(load.load)}: {label(load.environment)}",
        "Throughput (left) and CPU time of the service threads in percent of a core (right) "
        "against their speed (figures 2 to 4).",
        spoken,
        data,
        layout,
    )


def usage(record: PlaceRecord, load: PlaceLoad) -> Figure | None:
    """Combined Usage against speed (figures 5 to 7); None: fewer than two points have a value."""
    points = [point for point in load.points if point.combined_usage_percent is not None]
    if len(points) < 2:
        return None
    # One group for each way of slowing, and in it one bar for each speed.
    x = [
        [label(point.backend or "nothing slowed") for point in points],
        [f"{point.speed_asked_percent:g} %" for point in points],
    ]
    values = (
        ("service CPU", [point.service_cpu_percent for point in points]),
        ("link", [point.device_percent for point in points]),
    )
    data = [{**bars(index, name, [], own, "%"), "x": x} for index, (name, own) in enumerate(values)]
    layout = chart_layout("Combined Usage, %", _SPEED)
    title = layout["xaxis"]["title"]
    layout |= {"barmode": "stack"}
    layout["xaxis"] = {"type": "multicategory", "fixedrange": True, "title": title}
    layout["margin"] |= {"b": 84}
    layout["shapes"] = [
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 100, "y1": 100, "line": _GUIDE}
    ]
    spoken = "; ".join(
        f"at {point.speed_asked_percent:g} % ({point.backend or 'not slowed'}) "
        f"{significant(point.combined_usage_percent, 3)} %"
        for point in points
    )
    return _figure(
        f"Combined Usage of {label(load.load)}: {label(load.environment)}",
        "CPU of the service threads plus use of the link (figures 5 to 7). The paper expects loads "
        "above 100 % to mind a slow core less.",
        spoken,
        data,
        layout,
    )


def _backends(record: PlaceRecord) -> Sequence[tuple[str, str]]:
    """Each way of slowing with its dash."""
    return [(_DASHES[i % len(_DASHES)], name) for i, name in enumerate(record.backends)]


def _counted(load: PlaceLoad, backend: str) -> Sequence[PlacePoint]:
    """A backend's points, without those that are kept apart."""
    return [
        point
        for point in load.points
        if point.backend == backend and point.relative_percent is not None and not point.marks
    ]


def _speed(point: PlacePoint) -> float:
    """The speed that was obtained, where it was measured, otherwise the one asked for."""
    found = point.speed_obtained_percent
    return point.speed_asked_percent if found is None else found


def _whiskers(points: Sequence[PlacePoint]) -> Plot:
    middle = [point.relative_percent or 0.0 for point in points]
    return {
        "type": "data",
        "symmetric": False,
        "array": [None if p.high is None else p.high - m
                  for p, m in zip(points, middle, strict=True)],
        "arrayminus": [None if p.low is None else m - p.low
                       for p, m in zip(points, middle, strict=True)],
        "thickness": 1,
        "width": 3,
    }  # fmt: skip


def _lost(load: PlaceLoad) -> str:
    if load.elasticity is None:
        return "not known"
    return f"loses {load.elasticity:.2f} % of throughput for each % of speed"


def _figure(title: str, meaning: str, spoken: str, data: Sequence[Plot], layout: Plot) -> Figure:
    plot = {"data": list(data), "layout": layout, "meta": {"least_width": LEAST_WIDTH}}
    return Figure(title, meaning, spoken, plot)
