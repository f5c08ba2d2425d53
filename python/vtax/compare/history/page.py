"""A run against an earlier one, as part of a page and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from vtax.compare.history.changes import Change, Changes
from vtax.compare.page import TONES
from vtax.compare.verdicts import ARROWS, SYMBOLS, margin_text
from vtax.core.page.format import percent, percent_interval, plural, with_unit
from vtax.core.page.page import Cell, Note, Page, Section, Severity, Tone, table
from vtax.core.statistics.results import Verdict

AGAINST = "against"
"""The name of the section."""


def to_json(found: Changes) -> dict[str, Any]:
    """What `--json` has as `against`."""
    return asdict(found) | {"worse": len(found.worse), "is_whole": found.is_whole}


def page(found: Changes) -> Page:
    """The changes alone."""
    return Page(AGAINST, (section(found),))


def section(found: Changes) -> Section:
    """Every metric of every environment, then what to know."""
    headings = ("environment", "metric", "before", "now", "performance, % of before", "verdict")
    rows = (
        (each.environment, f"{each.metric} {ARROWS[each.better]}", *_values(each), _verdict(each))
        for each in found.changes
    )
    notes = tuple(_notes(found))
    return Section(_heading(found), table=table(headings, rows), notes=notes, name=AGAINST)


def summary(found: Changes) -> str:
    """`1 of 8 metrics worse by more than 3 %`."""
    of = plural(len(found.changes), "metric")
    return f"{len(found.worse)} of {of} worse by more than {margin_text(found.margin_percent)}"


def line(each: Change, found: Changes) -> str:
    """What is to be said of one change, without its environment and metric."""
    if each.low is None:
        return f"{each.verdict.value}: {each.reason}"
    share = f"{percent(each.percent)} % [{percent_interval(each.low, each.high)}]"
    said = f"performance is {share} of that in {found.against}"
    margin = margin_text(found.margin_percent)
    ends = {
        Verdict.SLOWER: f" by more than {margin}",
        Verdict.FASTER: f" by more than {margin}",
        Verdict.EQUIVALENT: f" within {margin}",
    }
    return f"{said}: {each.verdict.value}{ends.get(each.verdict, '')}"


def _heading(found: Changes) -> str:
    return f"Against {found.against}"


def _values(each: Change) -> tuple[str, str, str]:
    before, after = (
        f"{with_unit(value, each.unit)} (n = {n})" if n else "not measured"
        for value, n in ((each.before, each.n_before), (each.after, each.n_after))
    )
    if each.low is None:
        return before, after, ""
    return before, after, f"{percent(each.percent)} [{percent_interval(each.low, each.high)}]"


def _verdict(each: Change) -> Cell:
    tone = TONES.get(each.verdict, Tone.QUIET)
    return Cell(f"{SYMBOLS[each.verdict]} {each.verdict.value}", tone)


def _notes(found: Changes) -> Iterator[Note]:
    yield Note(f"{summary(found)}, with the whole 95 % interval")
    if found.commit or found.commit_before:
        now, then = (each or "not known" for each in (found.commit, found.commit_before))
        yield Note(f"commit {now}{' in both runs' if now == then else f', was {then}'}")
    if found.unlike:
        yield Note(f"unlike then: {'; '.join(found.unlike)}", Severity.WARNING)
    reasons: dict[tuple[str, str], list[str]] = {}
    for each in found.changes:
        if each.reason is not None:
            key = each.environment, f"{each.verdict.value}: {each.reason}"
            reasons.setdefault(key, []).append(each.metric)
    for (label, reason), metrics in reasons.items():
        which = metrics[0] if len(metrics) == 1 else plural(len(metrics), "metric")
        yield Note(f"{which} {reason}", subject=label)
    if not found.is_whole:
        yield Note("not everything that was measured then could be judged", Severity.WARNING)
