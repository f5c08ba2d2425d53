"""The report cards of an audit, as a page and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vtax.audit.analysis import YES_NO
from vtax.core.formats.model import AuditCard, AuditCheck, AuditVerdict
from vtax.core.page.format import one_line, significant
from vtax.core.page.page import Cell, Page, Section, Tone, table, warnings
from vtax.core.units import format_seconds

_TONES = {
    AuditVerdict.PASS: Tone.GOOD,
    AuditVerdict.WARN: Tone.DOUBTFUL,
    AuditVerdict.FAIL: Tone.BAD,
}


def to_json(cards: Sequence[AuditCard]) -> dict[str, Any]:
    """What `vtax audit --json` prints."""
    return {"environments": [card.model_dump(mode="json") for card in cards]}


def page(cards: Sequence[AuditCard]) -> Page:
    """A table for each environment, and what to do where a check does not pass."""
    return Page("audit", tuple(_section(card) for card in cards))


def _section(card: AuditCard) -> Section:
    headings = ("check", "verdict", "value", "range", "fails beyond", "makes doubtful")
    doubts = (
        f"{check.name}: {check.reason}; {check.remedy}"
        for check in card.checks
        if check.verdict in (AuditVerdict.WARN, AuditVerdict.FAIL)
    )
    found = table(headings, [_row(check) for check in card.checks])
    return Section(_headline(card), table=found, notes=warnings(doubts))


def _headline(card: AuditCard) -> str:
    shortest = card.shortest_duration_s
    what = (
        "how short a run may be is not known"
        if shortest is None
        else f"its clock times {format_seconds(shortest)} and more to 1 %"
    )
    return f"{one_line(card.spec)}: {card.verdict.value}; {what}"


def _row(check: AuditCheck) -> Sequence[str | Cell]:
    return (
        check.name,
        Cell(check.verdict.value, _TONES.get(check.verdict, Tone.PLAIN)),
        "not known" if check.value is None else _value(check.value, check.unit),
        ""
        if check.low is None or check.high is None
        else f"{significant(check.low, 3)} to {significant(check.high, 3)}",
        "" if check.unit == YES_NO else _value(check.threshold, check.unit),
        ", ".join(check.metrics),
    )


def _value(value: float, unit: str) -> str:
    if unit == YES_NO:
        return "yes" if value else "no"
    return f"{significant(value, 3)} {unit}"
