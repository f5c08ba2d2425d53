"""The result of `vtax compare --param`, as a page and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vtax.compare.sweep.parameters import Parameter, said
from vtax.compare.sweep.record import ComparisonSweepRecord, SweepResult
from vtax.core.page.charts import LEAST_WIDTH, chart_layout, line
from vtax.core.page.format import plural, significant
from vtax.core.page.page import Depth, Page, Section, at, drawn, table, table_section, warnings
from vtax.core.page.plotting import Figure, Plot

_STATES = {
    "running": "vtax was killed, or still runs; this is what was measured by then",
    "interrupted": "it was interrupted",
    "budget": "the budget was used up",
    "failed": "it failed",
}
_MEANING = (
    "Performance in percent of the baseline at the same values: 50 is half as fast. The bar is the "
    "95 % interval."
)


def to_json(record: ComparisonSweepRecord) -> dict[str, Any]:
    """What `vtax compare --param --json` prints."""
    return record.model_dump(mode="json", include={"parameters", "points", "cliffs", "state"})


def page(record: ComparisonSweepRecord) -> Page:
    """The leading metric at each combination, where it falls, and every metric."""
    names = " and ".join(record.parameters)
    return Page(
        "sweep",
        (
            _lead(record),
            *drawn([each] if (each := _figure(record)) else []),
            _cliffs(record),
            Section(notes=warnings(_remarks(record))),
            *at(Depth.FULL, _all(record)),
        ),
        f"{plural(len(record.points), 'combination')} of {names}, "
        f"{plural(record.repetitions, 'repetition')} each",
        f"What {names} changes for {' '.join(record.workload)}",
        (
            ("command", " ".join(record.workload)),
            *((name, ", ".join(values)) for name, values in record.parameters.items()),
            *((f"{name}, drawn in each round", source) for name, source in record.drawn.items()),
            ("seed", str(record.seed)),
            ("state", record.state),
            *((each.label, each.description) for each in record.environments),
        ),
    )


def _lead(record: ComparisonSweepRecord) -> Section:
    """The leading metric: the baselines' medians, the others in percent of theirs."""
    columns = _names(record, "baseline", "measured")
    rows = []
    for point in record.points:
        cells = dict.fromkeys(point.environments.values(), "not measured")
        for each in point.results:
            if each.metric == record.lead:
                cells[point.environments[each.environment]] = _short(each, record)
        rows.append((*point.values.values(), *(cells.get(name, "") for name in columns)))
    return Section(
        sentence=f"{record.lead}: the baseline's median, and the performance of the others in "
        "percent of it, with 95 % interval.",
        table=table((*record.parameters, *columns), rows),
    )


def _names(record: ComparisonSweepRecord, *roles: str) -> Sequence[str]:
    """The names in the whole sweep of the environments with these roles."""
    labels = {each.label for each in record.environments if each.role in roles}
    named = (each for point in record.points for each in point.environments.items())
    return list(dict.fromkeys(name for label, name in named if label in labels))


def _short(each: SweepResult, record: ComparisonSweepRecord) -> str:
    if each.median is None:
        return "not measured"
    roles = {own.label: own.role for own in record.environments}
    if roles.get(each.environment) == "baseline" or each.percent_of_baseline is None:
        return f"{significant(each.median)} {each.unit}"
    if each.ci_low is None or each.ci_high is None:
        return f"{significant(each.percent_of_baseline, 3)} %"
    ends = f"{significant(each.ci_low, 3)}, {significant(each.ci_high, 3)}"
    return f"{significant(each.percent_of_baseline, 3)} % [{ends}]"


def _numbers(record: ComparisonSweepRecord) -> Sequence[float] | None:
    """The values of the one parameter, if they are numbers."""
    known = [Parameter(*each) for each in record.parameters.items()]
    return known[0].numbers if len(known) == 1 else None


def _figure(record: ComparisonSweepRecord) -> Figure | None:
    """Percent of the baseline along a parameter of numbers; None where nothing is to be drawn."""
    if (values := _numbers(record)) is None:
        return None
    data: list[Plot] = []
    spoken = []
    for index, name in enumerate(_names(record, "measured")):
        known = [
            (value, each)
            for value, point in sorted(zip(values, record.points, strict=True), key=lambda p: p[0])
            for each in point.results
            if (point.environments[each.environment], each.metric) == (name, record.lead)
            and each.percent_of_baseline is not None
        ]
        if known:
            data.append(_curve(index, name, known))
            ends = [significant(each.percent_of_baseline, 3) for _, each in (known[0], known[-1])]
            spoken.append(f"{name}: {ends[0]} to {ends[1]} %")
    if not data:
        return None
    (axis,) = record.parameters
    layout = chart_layout(f"{record.lead} (% of baseline)", axis)
    plot = {"data": data, "layout": layout, "meta": {"least_width": LEAST_WIDTH}}
    return Figure(f"Performance along {axis}", _MEANING, "; ".join(spoken), plot)


def _curve(index: int, label: str, known: Sequence[tuple[float, SweepResult]]) -> Plot:
    middle = [each.percent_of_baseline or 0.0 for _, each in known]
    above = [_or(each.ci_high, m) - m for (_, each), m in zip(known, middle, strict=True)]
    below = [m - _or(each.ci_low, m) for (_, each), m in zip(known, middle, strict=True)]
    error = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    own = line(index, label, [value for value, _ in known], middle)
    return {**own, "error_y": {**error, "thickness": 1, "width": 3}}


def _percent(value: float | None) -> str:
    return "" if value is None else significant(value, 3)


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _cliffs(record: ComparisonSweepRecord) -> Section:
    rows = [
        (each.environment, "no cliff" if each.past is None else f"{each.past:g}")
        for each in record.cliffs
    ]
    if not rows:
        return Section()
    (name,) = record.parameters
    words = (
        f"The largest {name} before performance in percent of the baseline falls by more than 10 "
        "%, by its intervals, for all larger values."
    )
    return table_section("cliffs", "Where it falls", words, ("environment", "falls past"), rows)


def _remarks(record: ComparisonSweepRecord) -> Sequence[str]:
    found = []
    if record.state != "complete":
        found.append(f"not all runs were made: {_STATES.get(record.state, record.state)}")
    for point in record.points:
        found += [f"{said(point.values)}: {text}" for text in dict.fromkeys(point.failures)]
    return found


def _all(record: ComparisonSweepRecord) -> Section:
    rows = [
        (
            *point.values.values(), point.environments[each.environment], each.metric, str(each.n),
            f"{significant(each.median)} {each.unit}",
            *map(_percent, (each.percent_of_baseline, each.ci_low, each.ci_high)),
            each.verdict.value,
        )
        for point in record.points
        for each in point.results
    ]  # fmt: skip
    return table_section(
        "all",
        "Every metric",
        "Medians, and performance in percent of the baseline with its 95 % interval.",
        (
            *record.parameters,
            "environment",
            "metric",
            "runs",
            "median",
            "%",
            "from",
            "to",
            "verdict",
        ),
        rows,
    )
