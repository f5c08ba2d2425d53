"""Machines that the study changes, and switches that it scripts."""

from __future__ import annotations

import tomllib
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtax.studies.dav2m import machines

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
    found = machines.scaled(MACHINE, 4.0, 0.25)
    assert found["costs"]["exit"] == 8000
    arrays = [*found["tlb"]["l1"], *found["tlb"]["l2"]]
    assert [(a["entries"], a["ways"]) for a in arrays] == [(12, 12), (128, 4), (4, 4)]
    assert MACHINE["costs"]["exit"] == 2000, "the original stays as it is"


@pytest.mark.parametrize("factor", [0.25, 0.5, 1.0, 2.0, 4.0, 8.0])
def test_sets_stay_a_power_of_two(factor: float) -> None:
    found = machines.scaled(MACHINE, 1.0, factor)["tlb"]
    for array in (*found["l1"], *found["l2"]):
        sets, rest = divmod(array["entries"], array["ways"])
        assert rest == 0
        assert sets & (sets - 1) == 0


def test_descriptions_survive_toml() -> None:
    assert tomllib.loads(machines.to_toml(MACHINE)) == MACHINE
    assert tomllib.loads(machines.to_toml(machines.without_walk_caches(MACHINE)))["walk"] == {}


_TEXT = st.text("a0 \"\\'\n\t\x00\x7f.={}[]\u00e9\U0001f600", max_size=6)
_PLAIN = _TEXT | st.booleans() | st.integers(-(2**62), 2**62)
_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.lists(_PLAIN | _NUMBERS, max_size=3) | st.dictionaries(_TEXT, _PLAIN, max_size=3)


@settings(deadline=None)
@given(st.dictionaries(_TEXT, _VALUES, max_size=3))
def test_any_description_survives_toml(description: dict[str, Any]) -> None:
    assert tomllib.loads(machines.to_toml(description)) == description


def test_excess_is_against_the_mode_it_is_in() -> None:
    pytest.importorskip("vtax._native")
    from vtax.studies.dav2m.transitions import excess

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
