"""Sizes, durations and numbers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtax.errors import MisuseError
from vtax.units import format_bytes, format_seconds, format_si, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("512k", 512 << 10),
        ("256M", 256 << 20),
        ("1G", 1 << 30),
        ("1GB", 1 << 30),
        ("1GiB", 1 << 30),
        ("1gib", 1 << 30),
        ("1.5G", 3 << 29),
        (" 2T ", 2 << 40),
        ("64 MiB", 64 << 20),
        ("100B", 100),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "G", "-1G", "0", "1,5G", "1X", "1GG", "0.3", "1iB", "9999999P", "\u0661M", "nan"]
)
def test_no_size_is_named(text: str) -> None:
    with pytest.raises(MisuseError, match=re.escape(f"'{text}'")):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("250ms", 0.25),
        ("1m500ms", 60.5),
        ("2d", 172800.0),
        ("1.5H", 5400.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "m", "5x", "30m1h", "5m5m", "-5s", "0", "1e3", "inf", "1 h", "400d", "5m3", "1,5s"]
)
def test_no_duration_is_named(text: str) -> None:
    with pytest.raises(MisuseError, match=re.escape(f"'{text}'")):
        parse_duration(text)


@given(st.text(max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for parse in (parse_size, parse_duration):
        try:
            assert parse(text) > 0
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
