"""The result of `vtax memory` on the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType

from vtax.formats.memory import MemoryEnvironment, MemoryPoint, MemoryRecord
from vtax.present.format import NOT_MEASURED, plural, significant
from vtax.present.terminal.tables import note, table, title
from vtax.units import format_bytes

_STATES = {
    "running": "vtax was killed, or still runs; this is as of the last whole round",
    "interrupted": "it was interrupted",
    "budget": "the budget was used up",
}


def to_json(record: MemoryRecord) -> dict[str, Any]:
    """What `vtax memory --json` prints."""
    return record.model_dump(mode="json", include={"environments", "differences", "state"})


def parts(record: MemoryRecord) -> list[RenderableType]:
    """The cliffs, whether they differ, and what needs attention."""
    found: list[RenderableType] = [
        title(
            f"{record.metric} ({record.unit}) at {len(record.sizes)} sizes, "
            f"{plural(record.runs, 'run')} each"
        ),
        table(
            ("environment", "falls past", "edge between", "before", "past it", "program's memory"),
            [_row(each) for each in record.environments],
        ),
    ]
    if record.differences:
        found.append(
            table(
                ("cliffs of", "and of", "are", "p"),
                [
                    (each.a, each.b, each.verdict, "" if each.p is None else f"{each.p:.3g}")
                    for each in record.differences
                ],
            )
        )
    found += [note(f"! {text}", "yellow") for text in remarks(record)]
    return found


def remarks(record: MemoryRecord) -> Sequence[str]:
    """What a reader must know before believing the result."""
    found = []
    if record.state != "complete":
        found.append(f"not all runs were made: {_STATES.get(record.state, record.state)}")
    for each in record.environments:
        found += [f"{each.spec}: {text}" for text in each.notes]
        if each.cliff is not None and each.cliff.size is None:
            found.append(
                f"{each.spec}: it is below the program's need at the smallest size; "
                "give it more with mem=, or begin with smaller --sizes"
            )
        last = each.points[-1] if each.points else None
        if last is not None and last.working_set_bytes is not None:
            used = format_bytes(round(last.working_set_bytes))
            found.append(f"{each.spec}: at {last.size} the program used {used} within a second")
        if failures := sum(point.failed for point in each.points):
            messages = (point.message for point in each.points if point.message)
            found.append(f"{each.spec}: {plural(failures, 'run')} failed: {next(messages, '')}")
    if any(each.verdict == "not known" for each in record.differences):
        found.append("with fewer than 4 runs no difference of cliffs can be significant: --reps 5")
    return found


def end_text(point: MemoryPoint) -> str:
    """How the runs of a size ended, in words."""
    if point.end == "oom":
        return "killed by the OOM killer"
    return "failed" if point.end == "failed" else "ran"


def _row(each: MemoryEnvironment) -> Sequence[str]:
    points = {point.size: point for point in each.points}
    if each.cliff is None:
        last = next((p.median for p in reversed(each.points) if p.median is not None), None)
        return each.spec, "no cliff", "", _level(last), "", ""
    past = next((p for p in each.points if p.size > (each.cliff.size or 0)), None)
    before = None if each.cliff.size is None else points[each.cliff.size].median
    return (
        each.spec,
        "the smallest" if each.cliff.size is None else str(each.cliff.size),
        f"{each.cliff.low or 0} and {each.cliff.high}",
        _level(before),
        _past(past),
        NOT_MEASURED if each.user_bytes is None else format_bytes(each.user_bytes),
    )


def _past(point: MemoryPoint | None) -> str:
    if point is None:
        return ""
    return {"oom": "killed", "failed": "failed"}.get(point.end) or _level(point.median)


def _level(value: float | None) -> str:
    return "" if value is None else significant(value)
