"""The result of `vtax prices`, as a page and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from vtax.core.page.format import plural, significant, with_unit
from vtax.core.page.page import Cell, Column, Depth, Page, Section, Table, notes, table_section
from vtax.prices.analysis import Difference, differences
from vtax.prices.record import PricedEnvironment, PricesRecord


def to_json(record: PricesRecord) -> dict[str, Any]:
    """What `vtax prices --json` prints."""
    return record.model_dump(mode="json", include={"environments", "state", "rounds"})


def page(record: PricesRecord) -> Page:
    """A row for each operation and context, a column for each environment."""
    return Page(
        "prices",
        (
            *(_prices(own, record) for own in record.environments if own.baseline is None),
            *_absent(record),
        ),
        f"What one operation takes, the median of {plural(record.rounds, 'round')}; behind it how "
        "many times the baseline's",
        "What operations cost",
        (
            ("rounds", str(record.rounds)),
            ("seconds of a measurement", significant(record.seconds)),
            ("seed", str(record.seed)),
            ("state", record.state),
            *((each.label, each.description) for each in record.environments),
        ),
    )


def _prices(baseline: PricedEnvironment, record: PricesRecord) -> Section:
    others = [each for each in record.environments if each.baseline == baseline.label]
    found = [{_key(each): each for each in differences(own, baseline)} for own in others]
    rows = tuple(
        (
            Cell(own.name),
            Cell(own.context),
            Cell(_time(own.ns)),
            *(_there(each.get((own.name, own.context))) for each in found),
        )
        for own in baseline.operations
    )
    columns = ("operation", "in which case", baseline.label, *(each.label for each in others))
    return Section(baseline.label, table=Table(tuple(map(Column, columns)), rows))


def _key(each: Difference) -> tuple[str, str]:
    return each.operation.name, each.operation.context


def _time(ns: Sequence[float]) -> str:
    return with_unit(median(ns) * 1e-9, "s")


def _there(found: Difference | None) -> Cell:
    if found is None:
        return Cell("absent")
    times = found.times
    behind = "" if times is None else f" ({significant(times, 2)}\N{MULTIPLICATION SIGN})"
    return Cell(_time(found.there.ns) + behind)


def _absent(record: PricesRecord) -> Iterator[Section]:
    rows = [
        (own.label, each.name, each.context, each.reason)
        for own in record.environments
        for each in own.absent
    ]
    if not rows:
        return
    yield Section(
        notes=notes(
            [f"{plural(len(rows), 'operation')} could not be measured: the report says why"]
        ),
        depth=Depth.BRIEF,
    )
    headings = [Column(each) for each in ("environment", "operation", "in which case", "why")]
    whole = table_section("absent", "Not measured", "", headings, rows)
    yield Section(whole.heading, table=whole.table, name=whole.name, depth=Depth.FULL)
