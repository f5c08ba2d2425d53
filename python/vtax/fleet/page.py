"""Many hosts as a page and as JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from vtax.compare import trust, verdicts
from vtax.compare.page import BACKGROUND
from vtax.core.page.format import (
    listing,
    one_line,
    percent,
    percent_interval,
    plural,
    with_unit,
)
from vtax.core.page.page import (
    Cell,
    Depth,
    Note,
    Page,
    Section,
    Severity,
    Table,
    Tone,
    at,
    table,
    warnings,
)
from vtax.core.statistics.results import Verdict
from vtax.fleet.analysis import Change, Fleet, Measured, Outlier
from vtax.fleet.separation import shown

MOST_ROWS = 40
"""On a terminal; a report has all."""
MOST_FACTS = 5
_OWN = ("host", "command", "environment", "baseline", "lead", "run", "started_utc")
_OF_RESULT = (
    *("metric", "unit", "better", "n", "median", "median_low", "median_high"),
    *("percent_of_baseline", "ci_low", "ci_high", "verdict"),
)
_TONES = {Verdict.SLOWER: Tone.BAD, Verdict.FASTER: Tone.GOOD}


def to_json(fleet: Fleet) -> dict[str, Any]:
    """What `vtax fleet --json` prints: plain JSON values, `null` for what is not known."""
    return {
        "runs": fleet.runs,
        "left_out": fleet.left_out,
        "unreadable": list(fleet.unreadable),
        "measured": [_row_json(each) for each in fleet.measured],
        "outliers": [asdict(each) for each in fleet.outliers],
        "flags": {host: [asdict(f) for f in found] for host, found in fleet.flags.items()},
    }


def _row_json(each: Measured) -> dict[str, Any]:
    own = {name: getattr(each, name) for name in _OWN}
    result = {name: getattr(each.result, name) for name in _OF_RESULT}
    return own | result | {"change": None if each.change is None else asdict(each.change)}


def page(fleet: Fleet, metrics: Collection[str] = ()) -> Page:
    """Hosts by tax, outliers, flags, and what could not be read: of `metrics`, or of the metric
    that leads each comparison."""
    wanted = [each for each in fleet.measured if each.result.metric in metrics or
              (not metrics and each.lead)]  # fmt: skip
    hosts = {each.host for each in fleet.measured}
    said = f"{plural(len(hosts), 'host')} in {plural(fleet.runs, 'run')}"
    if fleet.left_out:
        said += f"; {plural(fleet.left_out, 'run')} of verbs that do not compare left out"
    missing = [f"no run has the metric {m}" for m in metrics if all(
        each.result.metric != m for each in wanted)]  # fmt: skip
    return Page(
        "fleet",
        (
            *_tables(wanted, {(o.environment, o.metric, o.command, h) for o in fleet.outliers
                              for h in o.percent}),
            Section(notes=(_legend(),), apart=True),
            *_outliers([o for o in fleet.outliers if o.metric in
                        {each.result.metric for each in wanted}]),
            *_flags(fleet),
            Section(notes=warnings([*missing, *fleet.unreadable]), apart=True),
        ),
        said,
        "What is left of native speed on each host",
    )  # fmt: skip


def _tables(
    measured: Sequence[Measured], outliers: Collection[tuple[str, str, str, str]]
) -> Iterator[Section]:
    def command(each: Measured) -> tuple[str, str]:
        return each.command, each.key

    for (name, _), group in groupby(sorted(measured, key=command), command):
        rows = [
            (
                each.host,
                each.environment,
                one_line(each.result.metric) + f" {verdicts.ARROWS[each.result.better]}",
                with_unit(each.result.median, one_line(each.result.unit)),
                _left(each),
                _change(each.change),
                "outlier" if (each.environment, each.result.metric, name, each.host) in outliers
                else "",
            )
            for each in sorted(group, key=_rank)
        ]  # fmt: skip
        found = table(("host", "environment", "metric", "median", "left, %", "change, %", ""), rows)
        yield from _cut(name, found)


def _cut(heading: str, found: Table) -> Iterator[Section]:
    """The table; on a terminal its first rows."""
    if len(found.rows) <= MOST_ROWS:
        yield Section(heading, table=found)
        return
    more = len(found.rows) - MOST_ROWS
    note = Note(f"{plural(more, 'more row')} with --report or --json", tone=Tone.QUIET)
    brief = Table(found.columns, found.rows[:MOST_ROWS])
    yield from at(Depth.BRIEF, Section(heading, table=brief, notes=(note,)))
    yield from at(Depth.FULL, Section(heading, table=found))


def _rank(each: Measured) -> tuple[bool, str, str, float, str]:
    """Baselines last; of an environment's hosts those with the highest tax first."""
    performance = each.performance
    value = performance.value if performance else float("inf")
    return each.baseline, each.environment, each.result.metric, value, each.host


def _left(each: Measured) -> Cell:
    result = each.result
    if each.baseline:
        return Cell("100", Tone.QUIET)
    if result.percent_of_baseline is None:
        return Cell("not compared", Tone.QUIET)
    sign, tone = verdicts.SYMBOLS[result.verdict], _TONES.get(result.verdict, Tone.PLAIN)
    return Cell(f"{_interval(result.percent_of_baseline, result.ci_low, result.ci_high)} {sign}",
                tone)  # fmt: skip


def _change(change: Change | None) -> Cell:
    if change is None:
        return Cell("")
    sign, tone = verdicts.SYMBOLS[change.verdict], _TONES.get(change.verdict, Tone.PLAIN)
    return Cell(f"{_interval(change.percent, change.low, change.high)} {sign}", tone)


def _interval(value: float, low: float | None, high: float | None) -> str:
    span = "no interval" if low is None or high is None else percent_interval(low, high)
    return f"{percent(value)} [{span}]"


def _legend() -> Note:
    shown = (Verdict.SLOWER, Verdict.FASTER, Verdict.EQUIVALENT, Verdict.INCONCLUSIVE)
    return Note(
        "left: performance in % of the baseline's; change: performance in % of that in the host's "
        "run before [95 % interval]",
        tone=Tone.QUIET,
        further=tuple(f"{verdicts.SYMBOLS[each]} {each}" for each in shown),
    )


def _outliers(outliers: Sequence[Outlier]) -> Iterator[Section]:
    if outliers:
        notes = tuple(note for each in outliers for note in _outlier(each))
        caution = Note("A difference of facts separates the hosts; it need not be the cause.",
                       tone=Tone.QUIET)  # fmt: skip
        yield Section("Outliers among hosts", notes=(*notes, caution))


def _outlier(found: Outlier) -> Iterator[Note]:
    spans = sorted(found.percent.values())
    span = percent(spans[0]) if len(spans) == 1 else percent_interval(spans[0], spans[-1])
    subject = f"{found.environment}, {found.metric} ({found.command})"
    yield Note(
        f"{listing(sorted(map(one_line, found.percent)))} at {span} % of the median of "
        f"{found.hosts} hosts: {found.side}",
        Severity.WARNING,
        subject=subject,
        sign="!",
    )
    for each in found.separations[:MOST_FACTS]:
        here, there = map(one_line, shown(each))
        own = f" of {listing([*map(one_line, each.hosts)])}" if len(each.hosts) < len(spans) else ""
        yield Note(
            f"{each.fact}{own} is {here}, of the others {there}; it separates as well "
            f"{percent(100 * each.chance)} % of all choices of {plural(len(each.hosts), 'host')}",
            subject="a difference of facts",
            sign="≠",
        )
    more = len(found.separations) - MOST_FACTS
    if more > 0:
        yield Note(f"{plural(more, 'more such fact')}: --json", tone=Tone.QUIET)
    if not found.separations:
        yield Note(f"none of {found.facts} facts separates them from the others")


def _flags(fleet: Fleet) -> Iterator[Section]:
    hidden = trust.HARMLESS | BACKGROUND
    rows = [
        (host, line.kind, line.environment, trust.line_text(line))
        for host, flags in sorted(fleet.flags.items())
        for group in trust.ranked(flag for flag in flags if flag.kind not in hidden)
        for line in trust.lines(group.flags)
    ]
    if rows:
        found = table(("host", "flag", "environment", "what was seen"), rows)
        yield from _cut("Flags of each host's latest runs", found)
