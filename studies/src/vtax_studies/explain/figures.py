"""The figures and tables of the study; every miss has a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vtax.core.page.format import signed
from vtax.core.page.plotting import Figure
from vtax.prices.analysis import Interval
from vtax_studies.explain import data as m
from vtax_studies.explain.claims import PREDICTORS, environments, error_of, percent
from vtax_studies.explain.data import Compared, Data, Row
from vtax_studies.explain.setup import EXPLAINED, NINETIETH_PERCENT
from vtax_studies.model import StudyFigure, StudyTable
from vtax_studies.plots import Look, curve, line, lines
from vtax_studies.rule import Missing, some

COLOURS = [f"var(--env-{number})" for number in (1, 2, 3, 4, 5)]
HEIGHT = 320.0


def figure_1(data: Data) -> StudyFigure:
    """Predicted against measured time."""
    found = environments(some(data.rows))
    traces = []
    for colour, (name, rows) in zip(COLOURS, found.items(), strict=False):
        x, y = [row.measured_s for row in rows], [row.predicted_s for row in rows]
        dots = {"mode": "markers", "text": [row.program for row in rows], "hoverinfo": "text"}
        traces.append(line(x, y, name, colour, points=True) | dots | {"hovertemplate": None})
    times = [row.measured_s for row in data.rows]
    ends = [min(times), max(times)]
    traces.append(line(ends, ends, "as measured", "var(--rule)", dash="dot"))
    plot = lines(traces, "Measured (s)", "Predicted (s)", HEIGHT, legend_rows=1, log=True)
    plot["layout"]["xaxis"] |= {"type": "log", "exponentformat": "power", "dtick": 1}
    return StudyFigure(
        "1", "Predicted and measured time", "One dot for each program and environment. The "
        "prediction is by counts and prices alone, the programs were not run for it.", "",
        [Figure("Predicted against measured", "On the line: right.",
                "Predicted against measured time; the values are in the table.", plot)],
    )  # fmt: skip


def figure_2(data: Data) -> StudyFigure:
    """The distribution of errors, beside the rivals'."""
    traces = []
    for colour, (name, predict) in zip(COLOURS, PREDICTORS.items(), strict=False):
        told = [(predict(row), row.measured_s) for row in some(data.rows)]
        values = sorted(100.0 * m.error(each, took) for each, took in told if each is not None)
        shares = [100.0 * (at + 1) / len(values) for at in range(len(values))]
        traces.append(curve(Look(name, colour), values, shares))
    plot = lines(traces, "Error of the prediction (%)", "Predictions (%)", HEIGHT, legend_rows=1)
    plot["layout"]["xaxis"] |= {"type": "log", "exponentformat": "power", "dtick": 1}
    return StudyFigure(
        "2", "Errors of the bill and of naive rivals", "The share of the predictions, over all "
        "environments, that have at most this error |predicted / measured - 1|.", "",
        [Figure("Distribution of errors", "Further left and up: better.",
                "Distribution of errors; quantiles are in the table.", plot)],
    )  # fmt: skip


FIGURES = {"1": figure_1, "2": figure_2}


def errors_table(data: Data) -> StudyTable:
    """Quantiles of the errors by environment, for the bill and its rivals."""
    rows = []
    whole = {"all": list(some(data.rows))}
    for name, own in (environments(data.rows) | whole).items():
        for predictor in PREDICTORS:
            try:
                found = error_of(own, predictor)
            except Missing:
                continue
            worst = percent(found.maximum)
            shown = (str(found.n), percent(found.median), percent(found.ninetieth), worst)
            rows.append((name, predictor, *shown))
    return StudyTable(
        "errors", "Errors of predictions",
        "|predicted / measured - 1|. Share of system time: native time and native system time "
        "times (ratio of the prices of an empty call - 1). One price: native time and all calls "
        "times the mean price difference of the classes of calls that the program makes.",
        ("Environment", "By", "Programs", "Median", "90th percentile", "Maximum"), rows,
    )  # fmt: skip


def programs_table(data: Data) -> StudyTable:
    """Every program: its error and the share that is explained, by environment."""
    found = environments(some(data.rows))
    by_program: dict[str, dict[str, Row]] = {}
    for row in data.rows:
        by_program.setdefault(row.program, {})[row.environment] = row
    rows = [(program, *(_cell(own.get(name)) for name in found))
            for program, own in by_program.items()]  # fmt: skip
    return StudyTable(
        "programs", "Every program",
        "Natively and there, the prediction's error with its sign; then the share of the tax that "
        "the bill explains, with its interval. No tax: the difference's interval reaches zero.",
        ("Program", *found), rows,
    )  # fmt: skip


def _cell(row: Row | None) -> str:
    if row is None:
        return "not measured"
    off = signed(100.0 * (row.predicted_s / row.measured_s - 1.0), 2)
    times = f"{_ms(row.native_s)} to {_ms(row.measured_s)} ms"
    tax = "no tax" if row.explained is None else f"explained {_percents(row.explained)}"
    return f"{times}: {off} %; {tax}"


def misses_table(data: Data) -> StudyTable:
    """Everything that misses a target, by name."""
    rows = list(_misses(data))
    return StudyTable(
        "misses", "Every miss", "Predictions beyond the target of the 90th percentile, bills that "
        "explain less than 80 %, lines that miss what the tax falls by, A/A bills without zero.",
        ("What", "Environment", "Missed", "By"), some(rows, "nothing missed"),
    )  # fmt: skip


def _misses(data: Data) -> Iterator[tuple[str, str, str, str]]:
    for row in data.rows:
        if 100.0 * row.error > NINETIETH_PERCENT:
            yield row.program, row.environment, "prediction", percent(row.error)
        if row.explained is not None and row.explained.value < EXPLAINED:
            yield row.program, row.environment, "explained", f"{_percents(row.explained)}"
    for each in data.loops:
        if not each.within:
            told, took = _range(each.foretold), _range(each.measured)
            yield f"loop {each.name}", each.environment, "line", f"{told} ms, measured {took} ms"
    for name, bill in data.same.items():
        if not (bill.residual_low or 0.0) <= 0.0 <= (bill.residual_high or 0.0):
            low, high = _ms(bill.residual_low or 0.0), _ms(bill.residual_high or 0.0)
            yield name, bill.environment, "A/A", f"[{low}, {high}] ms"


def loops_table(data: Data) -> StudyTable:
    """Lines of the bill against what the tax falls by without their operation."""
    return _table(
        "loops", "Programs with known counts",
        "The lines of a loop by counts and prices, and by how much the tax falls without the loop.",
        some(data.loops),
    )  # fmt: skip


def changes_table(data: Data) -> StudyTable:
    """Changes of counts and prices, predicted and measured."""
    return _table(
        "changes", "Changes of a count or a price",
        "By how much the tax changes when a switch of the program changes its counts, or one of "
        "the environment its prices.", some(data.changes),
    )  # fmt: skip


def _table(name: str, title: str, caption: str, found: Sequence[Compared]) -> StudyTable:
    rows = [(each.name, each.environment, _range(each.foretold), _range(each.measured),
             "within" if each.within else "agrees" if each.agrees else "misses")
            for each in found]  # fmt: skip
    caption += " Within: the measured value lies in the predicted interval. Agrees: both intervals "
    caption += "together cover the gap."
    headings = ("What", "Environment", "Predicted (ms)", "Measured (ms)", "Verdict")
    return StudyTable(name, title, caption, headings, rows)


def _range(found: Interval) -> str:
    return f"{_ms(found.value)} [{_ms(found.low)}, {_ms(found.high)}]"


def _percents(found: Interval) -> str:
    low, high = (signed(100.0 * each, 2) for each in (found.low, found.high))
    return f"{signed(100.0 * found.value, 2)} [{low}, {high}] %"


def _ms(seconds: float) -> str:
    return signed(1e3 * seconds, 3)


TABLES = (errors_table, misses_table, programs_table, loops_table, changes_table)
