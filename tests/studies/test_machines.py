"""Machines that the study changes, and switches that it scripts."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from vtax_studies.dav2m import simulate

MACHINE: dict[str, Any] = {
    "name": "test",
    "clock_hz": 2.0e9,
    "tlb": {
        "tagged": False,
        "l1": [{"pages": ["4K", "2M"], "entries": 48, "ways": 48}],
        "l2": [
            {"pages": ["4K"], "entries": 512, "ways": 4},
            {"pages": ["1G"], "entries": 16, "ways": 8},
        ],
    },
    "walk": {"latency": 1, "page_walk": [{"levels": [2], "entries": 24, "ways": 24}]},
    "costs": {"exit": 2000},
    "sources": {"tlb.l1": 'a "quoted" \\ source'},
}


def test_scaled_machines_stay_possible() -> None:
    found = simulate.scaled(MACHINE, 4.0, 0.25)
    assert found["costs"]["exit"] == 8000
    arrays = [*found["tlb"]["l1"], *found["tlb"]["l2"]]
    assert [(a["entries"], a["ways"]) for a in arrays] == [(12, 12), (128, 4), (4, 4)]
    assert MACHINE["costs"]["exit"] == 2000, "the original stays as it is"


@pytest.mark.parametrize("factor", [0.25, 0.5, 1.0, 2.0, 4.0, 8.0])
def test_sets_stay_a_power_of_two(factor: float) -> None:
    found = simulate.scaled(MACHINE, 1.0, factor)["tlb"]
    for array in (*found["l1"], *found["l2"]):
        sets, rest = divmod(array["entries"], array["ways"])
        assert rest == 0
        assert sets & (sets - 1) == 0


def test_without_walk_caches_nothing_skips_a_reference() -> None:
    assert simulate.without_walk_caches(MACHINE)["walk"] == {}
    assert MACHINE["walk"], "the original stays as it is"


def test_excess_is_against_the_mode_it_is_in() -> None:
    pytest.importorskip("vtax._native")
    from vtax_studies.dav2m.simulate import excess

    def rows(mode: str, cycles: list[float], paging: list[str]) -> pl.DataFrame:
        return pl.DataFrame({"mode": mode, "window": range(4), "cycles": cycles, "paging": paging})

    windows = pl.concat(
        [
            rows("shadow", [2e6] * 4, ["shadow"] * 4),
            rows("nested", [4e6] * 4, ["nested"] * 4),
            rows("Scripted", [2e6, 2e6, 7e6, 4e6], ["shadow", "shadow", "nested", "nested"]),
        ]
    )
    found = excess(windows, 2, 4, 2e9)
    assert found["milliseconds"].to_list() == pytest.approx([0, 3.5, 5.5])
    assert found["excess_ms"].to_list() == pytest.approx([0, 1.5, 1.5])
