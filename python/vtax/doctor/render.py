"""Findings for a reader: a table on a terminal, lines in a log, JSON for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vtax.doctor.checks import registered
from vtax.doctor.model import Finding, State

if TYPE_CHECKING:
    from rich.table import Table

WORDS = {
    State.OK: "ok",
    State.DEGRADED: "degraded",
    State.MISSING: "missing",
    State.IMPOSSIBLE: "not possible here",
}
_STYLES = {
    State.OK: "green",
    State.DEGRADED: "yellow",
    State.MISSING: "red",
    State.IMPOSSIBLE: "dim",
}


def plain(findings: Sequence[Finding]) -> str:
    """One line for each finding and one for its remedy, in columns."""
    width = max((len(finding.name) for finding in findings), default=0)
    states = max(len(word) for word in WORDS.values())
    lines = []
    for finding in findings:
        lines.append(f"{finding.name:<{width}}  {WORDS[finding.state]:<{states}}  {finding.detail}")
        if finding.remedy:
            lines.append(f"{'':<{width}}  {'':<{states}}  -> {finding.remedy}")
    return "\n".join([*lines, summary(findings)])


WIDE = 110
"""Columns from which there is room to say what each thing is for."""


def table(findings: Sequence[Finding], width: int = WIDE) -> Table:
    """The same for a terminal, in colour, with what each thing is for where it is wide enough."""
    from rich.table import Table
    from rich.text import Text

    purposes = {check.name: check.purpose for check in registered()}
    result = Table(box=None, pad_edge=False, header_style="bold")
    titles = ("check", "for", "state", "found") if width >= WIDE else ("check", "state", "found")
    for title in titles:
        result.add_column(title, no_wrap=title in ("check", "state"))
    for finding in findings:
        found = Text(finding.detail)
        if finding.remedy:
            found.append(f"\n-> {finding.remedy}", style="bold")
        state = Text(WORDS[finding.state], style=_STYLES[finding.state])
        purpose = (purposes.get(finding.name, ""),) if width >= WIDE else ()
        result.add_row(finding.name, *purpose, state, found)
    return result


def summary(findings: Sequence[Finding]) -> str:
    """``14 ok, 3 degraded, ...``"""
    counts = Counter(finding.state for finding in findings)
    return ", ".join(f"{counts[state]} {WORDS[state]}" for state in State if counts[state])


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "findings": [
            {
                "name": finding.name,
                "state": finding.state.value,
                "detail": finding.detail,
                "remedy": finding.remedy,
            }
            for finding in findings
        ]
    }
