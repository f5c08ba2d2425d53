"""The result of `vtax tune` on the terminal, and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.text import Text

from vtax.formats.tune import TuneRecord
from vtax.present import tune_tables
from vtax.present.format import plural, seconds_text
from vtax.present.terminal.tables import note, table, title


def to_json(record: TuneRecord) -> dict[str, Any]:
    """What `vtax tune --json` prints."""
    kept = ("environments", "equivalence", "transfer", "state")
    found = record.model_dump(mode="json", by_alias=True, include=set(kept))
    return {name: found[name] for name in kept}


def parts(record: TuneRecord) -> list[RenderableType]:
    """Winners, what they are, what they lose elsewhere, what differs, and what needs attention."""
    how = f"parameters of {record.use}"
    if record.use is None:
        how = f"searched for {seconds_text(record.budget_s)} each ({record.search})"
    count = plural(len(record.environments), "environment")
    found: list[RenderableType] = [title(f"{count}, {how}")]
    shown = [
        tune_tables.winners(record),
        tune_tables.routines(record, few=True),
        tune_tables.probes(record, few=True),
        tune_tables.parameters(record),
        tune_tables.cache_edges(record, few=True),
        tune_tables.transfers(record, few=True),
        tune_tables.differences(record),
    ]
    for rows in shown:
        if rows.rows:
            found += [Text(""), title(rows.title), table(rows.headings, rows.rows)]
    found += [note(text) for text in tune_tables.starts(record)]
    found += [note(text) for text in tune_tables.verdict_counts(record)]
    found += [note(f"! {text}", "yellow") for text in tune_tables.remarks(record)]
    return found
