"""The result of `vtax memory`, as a page and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vtax.core.page.format import plural, significant
from vtax.core.page.page import (
    Column,
    Depth,
    Page,
    Section,
    at,
    drawn,
    table,
    table_section,
    warnings,
)
from vtax.core.units import format_bytes
from vtax.memory.figures import figures, size_text
from vtax.memory.record import MemoryEnvironment, MemoryPoint, MemoryRecord

_STATES = {
    "running": "vtax was killed, or still runs; this is as of the last whole round",
    "interrupted": "it was interrupted",
    "budget": "the budget was used up",
}


def to_json(record: MemoryRecord) -> dict[str, Any]:
    """What `vtax memory --json` prints."""
    return record.model_dump(mode="json", include={"environments", "differences", "state"})


def page(record: MemoryRecord) -> Page:
    """The cliffs, whether they differ, the curves, and what needs attention."""
    return Page(
        "memory",
        (
            _cliffs(record),
            _differences(record),
            *drawn(figures(record)),
            Section(notes=warnings(remarks(record))),
            *at(Depth.FULL, _points(record)),
        ),
        f"{record.metric} ({record.unit}) at {len(record.sizes)} sizes, "
        f"{plural(record.runs, 'run')} each",
        f"Where {record.metric} falls off the edge of memory",
        (
            ("command", " ".join(record.argv)),
            ("sizes", f"{record.sizes[0]} to {record.sizes[-1]}, {len(record.sizes)} of them"),
            ("runs of each size", str(record.runs)),
            ("seed", str(record.seed)),
            ("state", record.state),
            *((each.spec, each.description) for each in record.environments),
        ),
    )


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


def _end_text(point: MemoryPoint) -> str:
    """How the runs of a size ended, in words."""
    if point.end == "oom":
        return "killed by the OOM killer"
    return "failed" if point.end == "failed" else "ran"


def _cliffs(record: MemoryRecord) -> Section:
    return Section(
        sentence="The largest size before performance falls, and between which sizes the edge lies "
        "with 95 % confidence. Program's memory: its resident set at that size.",
        table=table(
            ("environment", Column("memory", Depth.FULL), "falls past", "edge between", "before",
             "past it", "program's memory", Column("other processes", Depth.FULL)),
            [_row(each) for each in record.environments],
        ),
    )  # fmt: skip


def _differences(record: MemoryRecord) -> Section:
    found = table(
        ("cliffs of", "and of", Column("its cliff", Depth.FULL),
         Column("the other's", Depth.FULL), "are", "p"),
        [
            (each.a, each.b, significant(each.size_a, 4), significant(each.size_b, 4),
             each.verdict, "" if each.p is None else f"{each.p:.3g}")
            for each in record.differences
        ],
    )  # fmt: skip
    if not found.rows:
        return Section(sentence="One environment: nothing to compare.", depth=Depth.FULL)
    words = "Each round of runs has a cliff of its own. Permutation test of their means."
    return Section(sentence=words, table=found)


def _points(record: MemoryRecord) -> Section:
    rows = [
        (
            each.spec, str(point.size), str(point.n), _end_text(point),
            *(significant(value) for value in (point.median, point.low, point.high)),
            *(size_text(value) for value in (point.max_rss_bytes, point.swap_bytes)),
            *(significant(value) for value in (point.major_faults, point.minor_faults)),
        )
        for each in record.environments
        for point in each.points
    ]  # fmt: skip
    return table_section(
        "points",
        "Sizes",
        f"Median, smallest and largest of {record.metric} in {record.unit}; of the rest the median "
        "run.",
        ("environment", "size", "runs", "end", "median", "smallest", "largest", "resident set",
         "swap in use", "major faults", "minor faults"),
        rows,
    )  # fmt: skip


def _row(each: MemoryEnvironment) -> Sequence[str]:
    points = {point.size: point for point in each.points}
    limit, others = size_text(each.memory_bytes), size_text(each.others_bytes)
    if each.cliff is None:
        last = next((p.median for p in reversed(each.points) if p.median is not None), None)
        return each.spec, limit, "no cliff", "", _level(last), "", "", others
    past = next((p for p in each.points if p.size > (each.cliff.size or 0)), None)
    before = None if each.cliff.size is None else points[each.cliff.size].median
    return (
        each.spec,
        limit,
        "the smallest" if each.cliff.size is None else str(each.cliff.size),
        f"{each.cliff.low or 0} and {each.cliff.high}",
        _level(before),
        _past(past),
        size_text(each.user_bytes),
        others,
    )


def _past(point: MemoryPoint | None) -> str:
    if point is None:
        return ""
    return {"oom": "killed", "failed": "failed"}.get(point.end) or _level(point.median)


def _level(value: float | None) -> str:
    return "" if value is None else significant(value)
