"""Sizes, durations and numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtax.core.errors import MisuseError
from vtax.core.units import (
    format_bytes,
    format_seconds,
    format_si,
    parse_count,
    parse_duration,
    parse_size,
)

TABLE = json.loads((Path(__file__).parents[1] / "data" / "units.json").read_text(encoding="utf-8"))
"""Texts that are accepted, with their values, and rejected; the Rust programs read the same."""
PARSERS: dict[str, Callable[[str], float]] = {
    "size": parse_size,
    "duration": parse_duration,
    "count": parse_count,
}


@pytest.mark.parametrize("kind", PARSERS)
def test_the_table_that_the_rust_programs_are_tested_against(kind: str) -> None:
    parse = PARSERS[kind]
    for text, value in TABLE[kind]["accepted"].items():
        assert parse(text) == pytest.approx(value, rel=1e-12), text
    for text in TABLE[kind]["rejected"]:
        with pytest.raises(MisuseError, match=re.escape(f"'{text}'")):
            parse(text)


@given(st.text(max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for parse in PARSERS.values():
        try:
            assert parse(text) >= 0
        except MisuseError as error:
            assert text in error.message and str(error).isprintable()


@given(st.integers(1, 1 << 50))
def test_formatted_bytes_parse_back_to_three_digits(count: int) -> None:
    text = format_bytes(count).replace(" ", "")
    number = float(re.sub("[A-Za-z]", "", text))
    unit = 1 << 10 * "BKMGTP".index(re.sub("[0-9.]", "", text)[0])
    assert number * unit == pytest.approx(count, rel=0.006)
    assert number < 1024 or unit == 1 << 50


@given(st.floats(1e-9, 1e14))
def test_formatted_si_reads_back(value: float) -> None:
    text = format_si(value, "flop/s")
    number, unit = text.split(" ")
    power = dict(zip("n\N{MICRO SIGN}m_kMGT", range(-9, 15, 3), strict=True))
    exponent = 0 if unit == "flop/s" else power[unit[0]]
    assert float(number) * 10.0**exponent == pytest.approx(value, rel=0.0051)
    assert "e" not in number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (1.5e-3, "1.5 ms"),
        (2.314, "2.31 s"),
        (0.99996, "1 s"),
        (119.6, "2 min"),
        (302.0, "5 min 2 s"),
        (5400.0, "1 h 30 min"),
        (3599.7, "1 h"),
        (float("nan"), "nan s"),
        (-300.0, "-5 min"),
    ],
)
def test_seconds_for_readers(value: float, text: str) -> None:
    assert format_seconds(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1000, "1000 B"),
        (1 << 30, "1 GiB"),
        (3 << 29, "1.5 GiB"),
        ((1 << 30) - 1, "1 GiB"),
        (640 << 10, "640 KiB"),
        (1012 << 20, "1012 MiB"),
    ],
)
def test_bytes_for_readers(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_si_has_the_unit_last() -> None:
    assert format_si(45.26e9, "flop/s") == "45.3 Gflop/s"
    assert format_si(3.0, "") == "3"
