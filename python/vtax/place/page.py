"""The result of `vtax place measure`, as a page and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vtax.core.page.page import Depth, Page, Section, at, drawn, filled, notes, warnings
from vtax.place import tables as place_tables
from vtax.place.figures import figures
from vtax.place.record import PlaceRecord


def to_json(record: PlaceRecord) -> dict[str, Any]:
    """What `vtax place measure --json` prints."""
    kept = ("backends", "loads", "hypothesis", "rivals", "findings", "does_not", "environments",
            "failures", "state")  # fmt: skip
    found = record.model_dump(mode="json", include=set(kept))
    return {name: found[name] for name in kept}


def page(record: PlaceRecord) -> Page:
    """What loads lose, every point, whether anything predicts it, and what needs attention."""
    losses = place_tables.elasticities(record)
    said = _said(record)
    return Page(
        "place measure",
        (
            *at(Depth.FULL, losses),
            *drawn(figures(record)),
            *_points(record),
            *_if_any(at(Depth.BRIEF, losses)),
            *_predictors(record),
            *at(Depth.FULL, place_tables.emulation(record)),
            *filled(place_tables.environments(record)),
            Section(notes=notes(said), depth=Depth.BRIEF, apart=True),
            Section(notes=warnings(place_tables.remarks(record)), apart=not said),
        ),
        place_tables.summary(record),
        "What guests lose when the threads that serve them are slowed",
        (
            ("slowed by", ", ".join(record.backends) or "nothing"),
            ("speeds", ", ".join(f"{speed:g} %" for speed in record.speeds)),
            ("each measurement", f"{record.seconds:g} s"),
            ("rounds", str(record.rounds)),
            ("seed", str(record.seed)),
            ("state", record.state),
            *((each.spec, each.description) for each in record.environments),
        ),
    )


def _points(record: PlaceRecord) -> Sequence[Section]:
    return filled(*(place_tables.points(record, n) for n in range(len(record.environments))))


def _predictors(record: PlaceRecord) -> Sequence[Section]:
    found = place_tables.hypothesis(record)
    return (found,) if place_tables.is_answered(record) else at(Depth.FULL, found)


def _if_any(sections: Sequence[Section]) -> Sequence[Section]:
    return [each for each in sections if each.table and each.table.rows]


def _said(record: PlaceRecord) -> Sequence[str]:
    """What a terminal says in lines instead of tables."""
    said = [f"{name} does not reproduce: {what}" for name, what in record.does_not.items()]
    if record.hypothesis and not place_tables.is_answered(record):
        said.insert(0, f"What predicts elasticity is not known: {record.hypothesis.reason}")
    return said
