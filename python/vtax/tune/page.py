"""The result of `vtax tune`, as a page and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vtax.core.page.format import plural, seconds_text
from vtax.core.page.page import Depth, Page, Section, at, drawn, filled, notes, warnings
from vtax.tune import tables as tune_tables
from vtax.tune.figures import figures, swept
from vtax.tune.record import TuneRecord


def to_json(record: TuneRecord) -> dict[str, Any]:
    """What `vtax tune --json` prints."""
    kept = ("environments", "equivalence", "transfer", "state")
    found = record.model_dump(mode="json", by_alias=True, include=set(kept))
    return {name: found[name] for name in kept}


def page(record: TuneRecord) -> Page:
    """Winners, what they are, what they lose elsewhere, what differs, and what needs attention."""
    searched = f"{record.search}, {record.budget_s:g} s in each environment"
    said = (*tune_tables.starts(record), *tune_tables.verdict_counts(record))
    return Page(
        "tune",
        (
            *filled(tune_tables.winners(record)),
            *drawn(figures(record)),
            *_tables(record),
            Section(notes=(*notes(said), *warnings(tune_tables.remarks(record)))),
        ),
        _sentence(record),
        "What an autotuner finds in each environment",
        (
            ("search", f"none: {record.use}" if record.use else searched),
            ("precision", record.precision),
            ("rows of the matrices", str(record.size)),
            ("threads", str(record.threads)),
            ("rounds", str(record.rounds)),
            ("margin", f"{record.margin_percent:g} %"),
            ("seed", str(record.seed)),
            ("state", record.state),
            *((each.spec, each.description) for each in record.environments),
        ),
    )


def _sentence(record: TuneRecord) -> str:
    how = f"parameters of {record.use}"
    if record.use is None:
        how = f"searched for {seconds_text(record.budget_s)} each ({record.search})"
    return f"{plural(len(record.environments), 'environment')}, {how}"


def _tables(record: TuneRecord) -> Sequence[Section]:
    """The tables below the winners: where there is little room, their few rows that matter."""
    short, long = Depth.BRIEF, Depth.FULL
    edges = [tune_tables.cache_edges(record)] if swept(record) else []
    found = (
        *at(short, tune_tables.routines(record, few=True), tune_tables.probes(record, few=True)),
        *filled(tune_tables.parameters(record)),
        *at(long, tune_tables.routines(record), tune_tables.probes(record), *edges),
        *at(short, tune_tables.cache_edges(record, few=True)),
        *at(short, tune_tables.transfers(record, few=True), tune_tables.differences(record)),
        *at(long, tune_tables.transfers(record), tune_tables.equivalence(record)),
    )
    return [each for each in found if each.depth is not short or (each.table and each.table.rows)]
