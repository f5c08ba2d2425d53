"""A bill as sections of a page: its sentence, the waterfall, its lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from vtax.core.formats.bill import Bill, BillLine, BillRecord, Site
from vtax.core.page.charts import LEAST_WIDTH
from vtax.core.page.format import listing, percent, plural, signed, significant, with_unit
from vtax.core.page.page import (
    Cell,
    Column,
    Depth,
    Figure,
    Note,
    Section,
    Severity,
    Table,
    Tone,
)
from vtax.core.page.plotting import Plot, base_layout, label

SMALL = 0.005
"""Lines below this share of the tax are one line on a terminal and in the figure."""
SMALL_SITE = 0.01
"""Call sites below this share of their line's calls are in the record only."""
MOST_BARS = 12
UNEXPLAINED = "unexplained"
WHY = "why"
"""The name of a bill's sections."""
MOST_GROUPS = 4
MOST_REMEDIES = 5
_ROW_PX = 26


def sections(record: BillRecord) -> Sequence[Section]:
    """What each environment's bill says, its figure and its lines."""
    return [each for bill in record.bills for each in _bill(record, bill)]


def sentence(bill: Bill) -> str:
    """The bill in one sentence: the difference, its parts by group, and what is unexplained."""
    if bill.difference_s is None:
        share = 100.0 * bill.baseline_s / bill.predicted_s if bill.predicted_s > 0 else None
        return (
            f"{bill.environment} would take {_time(bill.predicted_s)} "
            f"[{_time(bill.predicted_low)} to {_time(bill.predicted_high)}] instead of "
            f"{_time(bill.baseline_s)}: {percent(share)} % of the baseline's speed, "
            f"by {_parts(bill)}"
        )
    more = "more" if bill.difference_s >= 0 else "less"
    said = f"{bill.environment} takes {_time(abs(bill.difference_s))} {more}"
    if not _clear(bill):
        return f"{said}, which may be nothing: {_span(bill)}"
    return f"{said}: {_parts(bill)}; {_unexplained(bill)}"


def _clear(bill: Bill) -> bool:
    """Whether the difference is more than noise."""
    low, high = bill.difference_low, bill.difference_high
    return low is not None and high is not None and (low > 0 or high < 0)


def _span(bill: Bill) -> str:
    if bill.difference_low is None or bill.difference_high is None:
        return "there are too few rounds"
    return f"the interval is {_time(bill.difference_low)} to {_time(bill.difference_high)}"


def _parts(bill: Bill) -> str:
    """The groups by their share of the tax, the dearest first, each with its dearest operation."""
    whole = _whole(bill)
    groups: dict[str, list[BillLine]] = {}
    for line in bill.lines:
        if line.seconds is not None:
            groups.setdefault(line.group, []).append(line)
    sums = {name: sum(line.seconds or 0.0 for line in lines) for name, lines in groups.items()}
    ranked = sorted(sums, key=lambda name: -abs(sums[name]))
    said = [
        f"{_percent(sums[name], whole)} {name}{_dearest(groups[name], sums[name])}"
        for name in ranked[:MOST_GROUPS]
        if whole and abs(sums[name] / whole) >= SMALL
    ]
    return "; ".join(said) or "nothing that was counted costs more"


def _dearest(lines: Sequence[BillLine], whole: float) -> str:
    """`, most of them stat`, where one operation is more than half of its group of several."""
    first = max(lines, key=lambda line: line.seconds or 0.0)
    alone = len(lines) == 1 or first.operation == first.group
    return "" if alone or (first.seconds or 0.0) <= whole / 2 else f", most of it {first.operation}"


def _unexplained(bill: Bill) -> str:
    return f"{_percent(bill.residual_s or 0.0, _whole(bill))} unexplained"


def _whole(bill: Bill) -> float:
    """What shares are of: the measured difference, or the predicted one."""
    if bill.difference_s is not None:
        return bill.difference_s
    return bill.predicted_s - bill.baseline_s


def _percent(part: float, whole: float) -> str:
    return f"{signed(100.0 * part / whole, 2)} %" if whole else "?"


def _time(seconds: float) -> str:
    return with_unit(seconds, "s")


def _bill(record: BillRecord, bill: Bill) -> Iterator[Section]:
    said = f"{sentence(bill)}."
    yield Section(f"Why: {bill.environment}", said, name=WHY, depth=Depth.FULL)
    yield Section(notes=(Note(said),), name=WHY, depth=Depth.BRIEF)
    yield Section(figure=waterfall(bill), depth=Depth.FULL, name=WHY)
    yield Section(table=_table(_joined(bill)), depth=Depth.BRIEF, name=WHY)
    yield Section(table=_table(bill.lines, _residual(bill)), depth=Depth.FULL, name=WHY)
    yield Section(notes=tuple(_sites(bill)), name=WHY)
    yield Section(notes=tuple(_remedies(bill)), name=WHY)
    yield Section(notes=tuple(_notes(record, bill)), name=WHY)


def _sites(bill: Bill) -> Iterator[Note]:
    for line in bill.lines:
        if line.sites:
            said = [
                f"{_percent(each.share, 1.0)} in {_function(each)}"
                for each in line.sites
                if each.share >= SMALL_SITE or each == line.sites[0]
            ]
            yield Note("; ".join(said), subject=line.operation)


def _function(site: Site) -> str:
    if site.function and not site.function.startswith("+"):
        return f"{site.function} ({site.module})"
    return site.module + site.function


def _remedies(bill: Bill) -> Iterator[Note]:
    for each in bill.remedies[:MOST_REMEDIES]:
        gain = f"saves {'at most ' if each.at_most else 'about '}{_time(each.gain_s)}"
        yield Note(f"{each.text} ({gain}; {each.source})", subject=each.operation)


def _notes(record: BillRecord, bill: Bill) -> Iterator[Note]:
    for text in bill.warnings:
        yield Note(text, Severity.WARNING, subject=bill.environment)
    if bill.host_cpu_s is not None and bill.baseline_host_cpu_s is not None:
        yield Note(
            f"one run takes {_time(bill.host_cpu_s)} of this host's CPU time, "
            f"{_time(bill.baseline_host_cpu_s)} in {bill.baseline}",
            subject=bill.environment,
        )
    cost = record.counting_cost_percent
    longer = "no" if cost is None or cost <= 0 else f"{percent(cost)} %"
    behind = "" if cost is None else f"; the program took {longer} longer while counted"
    yield Note(f"counted by {record.counted_by}{behind}")
    if record.sites_note:
        yield Note(record.sites_note)


def _joined(bill: Bill) -> Sequence[BillLine]:
    """The lines, of which small ones are one; then the residual."""
    whole = abs(_whole(bill)) or 1.0
    large = [
        line for line in bill.lines if line.seconds is None or abs(line.seconds) >= SMALL * whole
    ]
    large = large[:MOST_BARS]
    small = [line for line in bill.lines if line not in large]
    rest = [_rest(small)] if small else []
    return [*large, *rest, *_residual(bill)]


def _rest(lines: Sequence[BillLine]) -> BillLine:
    known = [line for line in lines if line.seconds is not None]
    return BillLine(
        operation=plural(len(lines), "smaller line"), group="", count=None, price_delta_ns=None,
        seconds=sum(line.seconds or 0.0 for line in known),
        low=sum(line.low or 0.0 for line in known), high=sum(line.high or 0.0 for line in known),
        kind="priced",
    )  # fmt: skip


def _residual(bill: Bill) -> Sequence[BillLine]:
    if bill.residual_s is None:
        return ()
    return [
        BillLine(
            operation=UNEXPLAINED, group="", count=None, price_delta_ns=None,
            seconds=bill.residual_s, low=bill.residual_low, high=bill.residual_high,
            kind="measured", note="the measured difference without all other lines",
        )
    ]  # fmt: skip


def _table(lines: Sequence[BillLine], more: Sequence[BillLine] = ()) -> Table:
    columns = (
        Column("operation"), Column("count"), Column("one costs more"), Column("seconds"),
        Column("from"), Column("to"), Column("structural", Depth.FULL), Column("known as"),
        Column("note", Depth.FULL),
    )  # fmt: skip
    return Table(columns, tuple(_row(each) for each in (*lines, *more)))


def _row(line: BillLine) -> tuple[Cell, ...]:
    price = "" if line.price_delta_ns is None else with_unit(line.price_delta_ns * 1e-9, "s")
    count = "" if line.count is None else f"{line.count:,.0f}"
    tone = Tone.DOUBTFUL if line.seconds is None else Tone.PLAIN
    return (
        Cell(line.operation),
        Cell(count),
        Cell(price),
        Cell("not priced" if line.seconds is None else _seconds(line.seconds), tone),
        Cell(_seconds(line.low)),
        Cell(_seconds(line.high)),
        Cell(_seconds(line.structural_s)),
        Cell(line.kind),
        Cell(line.note),
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else signed(round(value, 6), 3)


def waterfall(bill: Bill) -> Figure:
    """From the baseline's time over each line to the environment's own time."""
    lines = [line for line in _joined(bill) if line.seconds is not None]
    steps = [line.seconds or 0.0 for line in lines]
    begins = list(accumulate(steps, initial=bill.baseline_s))
    names = [bill.baseline, *(line.operation for line in lines), bill.environment]
    texts = [_time(bill.baseline_s), *map(_signed_time, steps), _time(begins[-1])]
    plot: Plot = {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                # Texts beside the bars would stand on the whiskers.
                "y": [f"{label(name)}  {text}" for name, text in zip(names, texts, strict=True)],
                "base": [0.0, *begins[:-1], 0.0],
                "x": [bill.baseline_s, *steps, begins[-1]],
                "hovertemplate": "%{y}<extra></extra>",
                "marker": {"color": ["var(--soft)", *map(_colour, lines), "var(--soft)"]},
                "error_x": _errors(lines),
            }
        ],
        "layout": {
            **base_layout(_ROW_PX * len(names) + 80),
            "margin": {"l": 240, "r": 24, "t": 8, "b": 44},
            "xaxis": {
                "title": {"text": "seconds", "standoff": 8},
                "gridcolor": "var(--grid)",
                "zeroline": False,
                "fixedrange": True,
                "rangemode": "tozero",
            },
            "yaxis": {"autorange": "reversed", "fixedrange": True, "type": "category"},
            "meta": {"least_width": LEAST_WIDTH},
        },
    }
    alternative = f"{sentence(bill)}. Lines: " + listing(
        [f"{line.operation} {significant(line.seconds, 3)} s" for line in lines], 20
    )
    return Figure(
        f"From {bill.baseline} to {bill.environment}",
        "Each bar is what one line of the bill adds to the program's time, with its interval.",
        alternative,
        plot,
    )


def _colour(line: BillLine) -> str:
    if line.operation == UNEXPLAINED:
        return "var(--env-5)"
    return "var(--env-1)" if (line.seconds or 0.0) >= 0 else "var(--env-3)"


def _errors(lines: Sequence[BillLine]) -> Plot:
    """How far each line may be off; the bars at both ends are sums, and have none."""
    above = [(line.high or 0.0) - (line.seconds or 0.0) for line in lines]
    below = [(line.seconds or 0.0) - (line.low or 0.0) for line in lines]
    return {
        "type": "data", "symmetric": False, "array": [0.0, *above, 0.0],
        "arrayminus": [0.0, *below, 0.0], "color": "var(--text)", "thickness": 1, "width": 3,
    }  # fmt: skip


def _signed_time(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else chr(0x2212)}{_time(abs(seconds))}"
