"""The result of `vtax explain`, as a page and as JSON."""

from __future__ import annotations

from typing import Any

from vtax.core.formats.bill import Bill, BillRecord
from vtax.core.page import bill
from vtax.core.page.page import Page

_LINE = {"operation", "count", "price_delta_ns", "seconds", "low", "high", "kind", "structural_s",
         "group", "note", "sites"}  # fmt: skip


def to_json(record: BillRecord) -> dict[str, Any]:
    """What `vtax explain --json` prints."""
    return {
        "counted_by": record.counted_by,
        "counting_cost_percent": record.counting_cost_percent,
        "bills": [_bill(each) for each in record.bills],
    }


def _bill(own: Bill) -> dict[str, Any]:
    return own.model_dump(mode="json", exclude={"lines"}) | {
        "lines": [line.model_dump(mode="json", include=_LINE) for line in own.lines]
    }


def page(record: BillRecord) -> Page:
    """A bill for each environment."""
    return Page(
        "explain", tuple(bill.sections(record)), title=f"{record.name}: why it takes longer"
    )
