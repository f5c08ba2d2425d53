"""The comparison on the terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

import report_data
from vtax.core.page.tables import plain
from vtax.core.statistics.results import Comparison, Verdict


def plain_table(comparison: Comparison, width: int) -> str:
    return plain(report_data.on_terminal(comparison), width=width)


@pytest.mark.parametrize("width", [80, 120])
def test_table_as_text(width: int, snapshot: SnapshotAssertion) -> None:
    assert plain_table(report_data.comparison(), width) == snapshot


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    table = plain_table(report_data.comparison(), width)
    assert max(map(cell_len, table.splitlines())) <= width
    assert report_data.UML in table


def test_every_verdict_is_there_at_every_width() -> None:
    for width in (60, 80, 120):
        table = plain_table(report_data.comparison(), width)
        rows = table.split("[95 % interval")[0]
        assert rows.count("▼") >= 40, width
        assert "not measured" in rows


def test_what_the_baseline_lacks_is_shown_as_it_was_measured() -> None:
    whole = report_data.comparison()
    counted = next(r for r in whole.results if r.environment == report_data.UML and r.median)
    counted = replace(
        counted,
        metric="kvm.exits",
        unit="count",
        median=4711.0,
        percent_of_baseline=None,
        verdict=Verdict.NOT_COMPARED,
    )
    table = plain_table(replace(whole, results=(*whole.results, counted)), 120)
    (row,) = [line for line in table.splitlines() if line.startswith("kvm.exits")]
    assert "·" in row and "4711" in row.replace(",", "").replace(" ", "")
    assert "· not compared" in table and "· not compared" not in plain_table(whole, 120)


def test_text_has_no_escape_sequences_and_a_terminal_has_colours() -> None:
    assert "\x1b" not in plain_table(report_data.comparison(), 80)
    sink = io.StringIO()
    terminal = Console(file=sink, force_terminal=True, color_system="standard", width=120)
    terminal.print(report_data.on_terminal(report_data.comparison()))
    assert "\x1b[31m" in sink.getvalue()


def test_foreign_text_cannot_steer_the_terminal() -> None:
    comparison, _ = report_data.hostile()
    table = plain_table(comparison, 120)
    assert "\x1b" not in table
    assert "\\x1b[31m" in table


def test_a_run_cut_short_says_so() -> None:
    cut = report_data.comparison(state="interrupted")
    assert "stopped by its user" in plain_table(cut, 100)


def test_nothing_but_a_baseline() -> None:
    full = report_data.comparison(environments=report_data.environments()[:1], order=())
    alone = replace(
        full,
        results=tuple(r for r in full.results if r.environment == report_data.BASELINE),
        flags=(),
    )
    table = plain_table(alone, 80)
    assert "HPL_Tflops" in table
    assert "0.0465 Tflop/s" in table


def test_no_results_at_all() -> None:
    empty = replace(report_data.comparison(), results=(), flags=())
    assert "hpcc small" in plain_table(empty, 80)
