"""Findings for a reader: a table, or JSON for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vtax.core.checks.model import Finding, State
from vtax.doctor.checks import purposes

if TYPE_CHECKING:
    from rich.console import RenderableType

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


WIDE = 110
"""The width in columns from which there is room to say what each thing is for."""


def parts(findings: Sequence[Finding], width: int = 0) -> list[RenderableType]:
    """The findings for `vtax.core.page.tables.show`.

    Where `width` allows it, they say what each thing is for.
    """
    from rich.text import Text

    from vtax.core.page import tables

    known = purposes() if width >= WIDE else None
    rows = []
    for finding in findings:
        found = Text(finding.detail)
        if finding.remedy:
            found.append(f"\n-> {finding.remedy}", style="bold")
        purpose = () if known is None else (known.get(finding.name, ""),)
        state = Text(WORDS[finding.state], style=_STYLES[finding.state])
        rows.append((finding.name, *purpose, state, found))
    headings = ("check", *(() if known is None else ("for",)), "state", "found")
    return [tables.table(headings, rows), tables.title(summary(findings))]


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
