"""The result of `vtax place measure` on the terminal, and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.text import Text

from vtax.formats.place import PlaceRecord
from vtax.present import place_tables
from vtax.present.terminal.tables import note, table, title


def to_json(record: PlaceRecord) -> dict[str, Any]:
    """What `vtax place measure --json` prints."""
    kept = ("backends", "loads", "hypothesis", "rivals", "findings", "does_not", "environments",
            "failures", "state")  # fmt: skip
    found = record.model_dump(mode="json", include=set(kept))
    return {name: found[name] for name in kept}


def parts(record: PlaceRecord) -> list[RenderableType]:
    """Points, what loads lose, whether anything predicts it, and what needs attention."""
    found: list[RenderableType] = [title(place_tables.summary(record))]
    shown = [
        *(place_tables.points(record, number) for number in range(len(record.environments))),
        place_tables.elasticities(record),
        *([place_tables.hypothesis(record)] if place_tables.is_answered(record) else []),
        place_tables.environments(record),
    ]
    for rows in shown:
        if rows.rows:
            found += [Text(""), title(rows.title), table(rows.headings, rows.rows)]
    found.append(Text(""))
    if record.hypothesis and not place_tables.is_answered(record):
        found.append(note(f"What predicts elasticity is not known: {record.hypothesis.reason}"))
    found += [note(f"{name} does not reproduce: {what}") for name, what in record.does_not.items()]
    found += [note(f"! {text}", "yellow") for text in place_tables.remarks(record)]
    return found
