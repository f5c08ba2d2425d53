"""Machine facts side by side, whatever a guest may send."""

from __future__ import annotations

from typing import Any

import report_data
from vtax.compare import facts
from vtax.core.formats.model import EnvironmentRecord


def _machine(label: str, **found: Any) -> EnvironmentRecord:
    return EnvironmentRecord(
        label=label, spec=label, role="measured", baseline="b", description="", facts=found
    )


def _rows(*machines: EnvironmentRecord) -> dict[str, facts.FactRow]:
    sheet = facts.side_by_side(machines)
    return {row.path: row for group in sheet.groups for row in group.rows}


def test_rows_that_differ_are_marked() -> None:
    rows = _rows(*report_data.environments())
    assert rows["kernel.release"].differs
    assert not rows["kernel.machine"].differs
    assert not rows["uptime_s"].differs, "uptime differs always, which says nothing"


def test_flags_are_shown_as_differences() -> None:
    row = _rows(*report_data.environments())["cpu.flags"]
    assert row.cells[:3] == ("20 flags", "the same flags", "the same flags")
    assert row.cells[3].startswith("\N{MINUS SIGN} avx, avx2, avx512bw")
    assert row.cells[3].endswith("+ 3dnow, svm")


def test_missing_empty_and_reported_are_told_apart() -> None:
    rows = _rows(_machine("a", governor=None, agent="1"), _machine("b", agent="1"))
    assert rows["governor"].cells == ("\N{EN DASH}", "not reported")
    assert rows["agent"].cells == ("1", "1")


def test_numbers_carry_their_units() -> None:
    caches = [{"level": 1, "type": "Data", "size_bytes": 32768, "shared_by": 2}, "odd"]
    rows = _rows(
        _machine("a", memory={"total_bytes": 1 << 30}, cpu={"smt": True, "caches": caches})
    )
    assert rows["memory.total_bytes"].cells == ("1.00 GiB",)
    assert rows["cpu.smt"].cells == ("yes",)
    assert rows["cpu.caches"].cells == ("L1 data 32.0 KiB (shared by 2); odd",)


def test_facts_of_a_hostile_guest_are_bounded() -> None:
    deep: dict[str, Any] = {"x": "end"}
    for _ in range(500):
        deep = {"x": deep}
    wide = {f"k{index}": index for index in range(5000)}
    sheet = facts.side_by_side([_machine("a", deep=deep, wide=wide, long="y" * 100_000)])
    cells = [cell for group in sheet.groups for row in group.rows for cell in row.cells]
    assert len(cells) <= facts.MAX_ROWS
    assert max(map(len, cells)) <= facts.MAX_TEXT
    assert sheet.left_out > 4000


def test_facts_of_another_type_than_expected() -> None:
    rows = _rows(_machine("a", cpu="none", memory=[1, 2]), _machine("b", cpu={"flags": "sse"}))
    assert rows["cpu"].cells == ("none", "not reported")
    assert rows["memory"].cells == ("1, 2", "not reported")
    assert rows["cpu.flags"].cells == ("not reported", "sse")
