"""bench/error_rates.py: every cell of docs/statistics.md again, with fewer trials; and promises."""

from __future__ import annotations

import sys

import pytest
from scipy.stats import fisher_exact

from command_line import ROOT

sys.path.insert(0, str(ROOT / "bench"))

from error_rates import PAGE, TABLES, TRIALS, shown

FEWER = 60
UNLIKELY = 1e-5
"""The probability at which a cell may differ although both simulations are the same; there are
about 150 cells."""

CELLS = [(name, row, cells) for name in TABLES for row, *cells in shown(PAGE.read_text(), name)]


def test_the_page_has_every_row() -> None:
    rows = [(name, row.name) for name, table in TABLES.items() for row in table.rows]
    assert [(name, row) for name, row, _ in CELLS] == rows


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for name, table in TABLES.items() for place in range(len(table.rows))],
)
def test_the_page_says_what_comes_out(name: str, place: int) -> None:
    """Two shares of N trials differ by no more than chance allows (Fisher's test)."""
    row = TABLES[name].rows[place]
    _, *cells = shown(PAGE.read_text(), name)[place]
    for cell, (hits, trials) in zip(cells, TABLES[name].cells(row, FEWER, 2), strict=True):
        # Rows that count only campaigns in which something showed have fewer trials, which only
        # widens.
        there = round(TRIALS * trials / FEWER)
        printed = round(float(cell) / 100 * there)
        table = [[hits, trials - hits], [printed, there - printed]]
        assert fisher_exact(table).pvalue > UNLIKELY, f"{row.name}: {cell}"


def values(name: str, *rows: str) -> list[float]:
    return [
        float(cell)
        for table, row, cells in CELLS
        if table == name
        for cell in cells
        if not rows or any(each in row for each in rows)
    ]


@pytest.mark.parametrize("name", ["typical", "mean"])
def test_intervals_cover(name: str) -> None:
    assert min(values(name)) >= 93


def test_the_mean_covers_where_the_tail_showed() -> None:
    for _, row, cells in (each for each in CELLS if each[0] == "tails"):
        if row == "the mean covered":
            assert min(map(float, cells[2:])) >= 89
        if row == "covered where a slow run showed":
            assert min(map(float, cells)) >= 90
        if row.startswith("*equivalent*"):
            assert max(map(float, cells)) <= 5


def test_rounding_is_covered_and_hides_nothing() -> None:
    assert min(values("coarse", "covered")) >= 93
    assert max(values("coarse", "called")) <= 1


@pytest.mark.parametrize("name", ["control", "phases"])
def test_false_alarms_are_as_rare_as_promised(name: str) -> None:
    # 5 % and two standard errors of 1,000 trials.
    assert max(values(name)) <= 6.4


def test_a_metric_fails_by_chance_as_rarely_as_promised() -> None:
    independent = [row for _, row, _ in CELLS if row.startswith("no change") and "AR" not in row]
    # 2.5 % and two standard errors of 1,000 trials.
    assert max(values("against", *independent, "the edge")) <= 3.5
    assert values("against", "20 % slower")[-1] >= 99
