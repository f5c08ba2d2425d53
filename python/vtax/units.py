"""Sizes, durations and numbers as people write and read them.

Sizes are bytes with binary multiples, because memory comes in them: ``1G``, ``1GB`` and ``1GiB``
are all 2**30. Durations are seconds. Counts have decimal multiples, and binary ones with an ``i``.

The Rust programs read the same (``crates/sys/src/terminal/units.rs``); ``tests/data/units.json`` is
the table that both are tested against.
"""

from __future__ import annotations

import math
import re

from vtax.errors import MisuseError

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]?)(i?b)?", re.IGNORECASE)
_SIZE_LETTERS = "kmgtp"
_LARGEST_SIZE = 1 << 60
"""No machine has more memory; a larger number is a slip of the keyboard."""

_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([mun]s|[dhms])")
_UNIT_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_PLAIN_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_LONGEST_S = 366 * 86400.0

_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)(?:([kmgt])(i?))?", re.IGNORECASE)
_COUNT_LETTERS = "kmgt"
_LARGEST_COUNT = 10**18

_SI_PREFIXES = {-9: "n", -6: "\N{MICRO SIGN}", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T"}

LEAST_QUANTITY, MOST_QUANTITY = 1e-100, 1e100
OUT_OF_RANGE = "not between 1e-100 and 1e100"


def is_quantity(value: float) -> bool:
    """Whether the value is 0, or of a size whose squares and ratios are floats too."""
    return value == 0 or LEAST_QUANTITY <= abs(value) <= MOST_QUANTITY


def parse_size(text: str) -> int:
    """The bytes of ``512k``, ``256M``, ``1.5G``, ``1GiB`` or a plain number.

    Raises MisuseError, naming the text, when it is not a size, 0, or not a whole number of bytes.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[3] and match[3].lower() == "ib" and not match[2]):
        raise MisuseError(f"'{text}' is not a size", "write for example 512M or 2G")
    shift = 10 * (_SIZE_LETTERS.index(match[2].lower()) + 1) if match[2] else 0
    # Through an integer where possible: a float cannot hold every large number of bytes.
    exact = int(match[1]) << shift if match[1].isdecimal() else float(match[1]) * (1 << shift)
    if not 0 < exact <= _LARGEST_SIZE:
        raise MisuseError(f"size '{text}' is not between 1 byte and 1024 PiB")
    if exact != int(exact):
        raise MisuseError(f"size '{text}' is not a whole number of bytes")
    return int(exact)


def parse_duration(text: str) -> float:
    """The seconds of ``90s``, ``5m``, ``1h30m``, ``250ms``, ``50us`` or a plain number of seconds.

    Raises MisuseError, naming the text, when it is not a duration, zero, or more than a year.
    """
    seconds = _seconds(text.strip().lower())
    if seconds is None:
        raise MisuseError(f"'{text}' is not a duration", "write for example 90s, 5m or 1h30m")
    if not 0 < seconds <= _LONGEST_S:
        raise MisuseError(f"duration '{text}' is not between 0 and 366 days")
    return seconds


def _seconds(text: str) -> float | None:
    if _PLAIN_NUMBER.fullmatch(text):
        return float(text)
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    units = [unit for _, unit in parts]
    # 1h30m, but neither 30m1h nor 5m5m: these are more often mistakes than meant.
    if units != sorted(set(units), key=lambda unit: -_UNIT_SECONDS[unit]):
        return None
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)


def parse_count(text: str) -> int:
    """A count such as ``1000000``, ``1e6``, ``1M``, ``2.5G`` or ``50Mi``.

    Raises MisuseError, naming the text, when it is no count, not whole, or above 1e18.
    """
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise MisuseError(f"'{text}' is not a number", "write for example 1000000 or 1M")
    power = _COUNT_LETTERS.index(match[2].lower()) + 1 if match[2] else 0
    factor = (1024 if match[3] else 1000) ** power
    exact = int(match[1]) * factor if match[1].isdecimal() else float(match[1]) * factor
    if exact > _LARGEST_COUNT or exact != int(exact):
        raise MisuseError(f"'{text}' is not a whole number up to 1e18")
    return int(exact)


def parse_percent(text: str) -> float:
    """The percentage of ``2%``, ``0.5 %`` or a plain number.

    Raises MisuseError, naming the text, when it is no percentage, or not between 0 and 100.
    """
    number = text.strip().removesuffix("%").rstrip()
    if not _PLAIN_NUMBER.fullmatch(number):
        raise MisuseError(f"'{text}' is not a percentage", "write for example 2%")
    if not 0 < float(number) < 100:
        raise MisuseError(f"percentage '{text}' is not between 0 and 100")
    return float(number)


def format_bytes(count: int) -> str:
    """``1 GiB``, ``1.5 GiB``, ``640 KiB``, ``12 B``: at least three digits, binary multiples."""
    for power in (5, 4, 3, 2, 1):
        # Start at the number that would otherwise be rounded to "1024" of the next smaller unit.
        if abs(count) >= (1 << 10 * power) * (1 - 1 / 2048):
            return f"{_digits(count / (1 << 10 * power))} {'KMGTP'[power - 1]}iB"
    return f"{count} B"


def format_seconds(seconds: float) -> str:
    """``1.5 ms``, ``2.31 s``, ``5 min 2 s``, ``1 h 30 min``: what a reader takes in at a glance."""
    if not math.isfinite(seconds) or abs(seconds) < 99.95:
        return format_si(seconds, "s")
    sign = "-" if seconds < 0 else ""
    whole = round(abs(seconds))
    if whole < 3600:
        return sign + _pair(whole // 60, "min", whole % 60, "s")
    minutes = round(whole / 60)
    return sign + _pair(minutes // 60, "h", minutes % 60, "min")


def format_si(value: float, unit: str) -> str:
    """A number with three digits and the unit with its SI prefix: ``1.23 Gflop/s``.

    A value that is not finite is written as it is.
    """
    if not math.isfinite(value):
        return f"{value} {unit}".rstrip()
    exponent = 0
    if value:
        rounded = float(f"{abs(value):.3g}")
        exponent = min(12, max(-9, 3 * math.floor(math.log10(rounded) / 3)))
    return f"{_digits(value / 10.0**exponent)} {_SI_PREFIXES[exponent]}{unit}".rstrip()


def _pair(larger: int, larger_unit: str, smaller: int, smaller_unit: str) -> str:
    rest = f" {smaller} {smaller_unit}" if smaller else ""
    return f"{larger} {larger_unit}{rest}"


def _digits(value: float) -> str:
    """Three significant digits (whole units from 1000 on), without an exponent or idle zeros."""
    if abs(value) >= 999.5:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    if "e" in text:
        text = f"{float(text):.12f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def plural(count: int, noun: str) -> str:
    """`1 metric`, `3 metrics`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
