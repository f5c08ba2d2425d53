"""Numbers and foreign text as the reader sees them."""

from __future__ import annotations

import pytest

from vtax.compare.families import family_of, grouped
from vtax.compare.verdicts import margin_text
from vtax.core.page import format as text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "not measured"),
        (0.0, "0"),
        (1.23456, "1.235"),
        (12.0, "12.00"),
        (12345.6, "12,346"),
        (9.99999, "10.00"),
        (0.00012345, "0.0001234"),
        (1.2344e-9, "1.234e-09"),
        (-3.5, "-3.500"),
        (float("nan"), "not a finite number"),
        (float("inf"), "not a finite number"),
    ],
)
def test_significant_digits(value: float | None, shown: str) -> None:
    assert text.significant(value) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.0463, "Tflop/s", "0.0463 Tflop/s"),
        (0.00143, "Tflop/s", "1.43 Gflop/s"),
        (0.0000012, "s", "1.20 µs"),
        (43210.0, "MB/s", "43.2 GB/s"),
        (3.0, "GUP/s", "3.00 GUP/s"),
        (0.002, "GUP/s", "2.00 MUP/s"),
        (12345.0, "widgets", "12,345 widgets"),
        (1e-30, "s", "1.00e-18 ps"),
        (None, "s", "not measured"),
    ],
)
def test_values_with_units(value: float | None, unit: str, shown: str) -> None:
    assert text.with_unit(value, unit) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(97.84, "97.8"), (100.0, "100.0"), (3.456, "3.46"), (0.0312, "0.0312"), (1234.5, "1,234")],
)
def test_percentages(value: float, shown: str) -> None:
    assert text.percent(value) == shown


def test_both_ends_of_an_interval_have_the_same_digits() -> None:
    assert text.percent_interval(9.5, 10.25) == "9.5\N{EN DASH}10.2"
    assert text.percent_interval(None, 10.0) == "not measured"


def test_bytes_and_seconds() -> None:
    assert text.bytes_text(1 << 30) == "1.00 GiB"
    assert text.bytes_text(512) == "512 B"
    assert text.bytes_text(None) == "unknown"
    assert text.seconds_text(0.85) == "0.850 s"
    assert text.seconds_text(200) == "3 min 20 s"
    assert text.seconds_text(7500) == "2 h 5 min"


def test_times_that_are_no_times_are_shown_as_they_stand() -> None:
    assert text.utc_text("2026-11-20T21:03:43+00:00") == "20 November 2026, 21:03 UTC"
    assert text.utc_text("yesterday") == "yesterday"
    assert text.utc_text(None) == "not finished"


def test_text_that_steers_a_terminal_becomes_visible() -> None:
    assert text.printable("a\x1b[31mb\u202ec\ud800") == "a\\x1b[31mb\\u202ec\\ud800"
    assert text.one_line("two\nlines\r") == "two lines\\r"


def test_margins_have_no_idle_digits() -> None:
    assert [margin_text(value) for value in (2.0, 0.5, 10.0, 0.0)] == [
        "2 %",
        "0.5 %",
        "10 %",
        "0 %",
    ]


def test_metrics_stand_with_their_family() -> None:
    names = {
        "HPL_Tflops": "HPL",
        "StarDGEMM_Gflops": "DGEMM",
        "MPIRandomAccess_LCG_GUPs": "RandomAccess",
        "SingleSTREAM_Triad": "STREAM",
        "RandomlyOrderedRingBandwidth_GBytes": "Latency and bandwidth",
        "MPIFFT_Gflops": "FFT",
        "wall_s": "Whole program",
        "frames": "Other metrics",
    }
    assert {name: family_of(name).title for name in names} == names
    assert [title.title for title, _ in grouped(["frames", "HPL_Tflops", "frames"])] == [
        "HPL",
        "Other metrics",
    ]
