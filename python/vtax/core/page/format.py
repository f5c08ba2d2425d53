"""Numbers and foreign text as a reader sees them. Absent stays absent: `None` is never a zero."""

from __future__ import annotations

import math
import re
from datetime import datetime

from vtax.core.units import plural as plural

NOT_MEASURED = "not measured"
DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"

_SCALES = {
    "p": 1e-12,
    "n": 1e-9,
    "u": 1e-6,
    "\N{MICRO SIGN}": 1e-6,
    "\N{GREEK SMALL LETTER MU}": 1e-6,
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
}
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SMALL_PREFIXES = ((1e-3, "m"), (1e-6, "\N{MICRO SIGN}"), (1e-9, "n"), (1e-12, "p"))
_SCALABLE = re.compile(
    r"(?P<prefix>[pnu\u00b5\u03bcmkKMGTP]?)(?P<stem>FLOPS?(/s)?|flops?(/s)?|UPS?(/s)?|B/s|s|Hz)"
)
_BIDI = frozenset("\u200e\u200f\u061c") | {
    chr(code) for block in (range(0x202A, 0x202F), range(0x2066, 0x206A)) for code in block
}


def significant(value: float | None, digits: int = 4) -> str:
    """`value` with this many significant digits, in plain notation where that stays readable."""
    if value is None:
        return NOT_MEASURED
    if not math.isfinite(value):
        return "not a finite number"
    if value == 0:
        return "0"
    text = f"{value:.{digits - 1}e}"
    exponent = int(text.partition("e")[2])
    if not -4 <= exponent < 7:
        return text
    if exponent >= digits - 1:
        return f"{value:,.0f}"
    return f"{float(text):,.{digits - 1 - exponent}f}"


def signed(value: float, digits: int = 2) -> str:
    """`significant` with a typographic minus, for values around zero."""
    return (
        significant(value, digits).replace("-", MINUS, 1)
        if value < 0
        else significant(value, digits)
    )


def with_unit(value: float | None, unit: str, digits: int = 3) -> str:
    """A value and its unit, with another SI prefix where the given one makes it unreadable."""
    if value is None or not math.isfinite(value):
        return significant(value)
    if 1e-2 <= abs(value) < 1e4 or value == 0:
        return f"{significant(value, digits)} {unit}".rstrip()
    match = _SCALABLE.fullmatch(unit)
    if match is None:
        return f"{significant(value, digits)} {unit}".rstrip()
    base = value * _SCALES[match["prefix"]]
    scale, prefix = _prefix_for(abs(base), small=match["stem"] == "s" or abs(base) < 1)
    return f"{significant(base / scale, digits)} {prefix}{match['stem']}"


def _prefix_for(magnitude: float, *, small: bool) -> tuple[float, str]:
    if small and magnitude >= 1:
        return 1.0, ""
    candidates = _SMALL_PREFIXES if small else _PREFIXES
    return next((pair for pair in candidates if magnitude >= pair[0]), candidates[-1])


def percent(value: float | None) -> str:
    """A percentage without its sign, with the digits that a reader can use."""
    return NOT_MEASURED if value is None else _percent_digits(value, _decimals(value))


def percent_interval(low: float | None, high: float | None) -> str:
    """`96.9-98.5` with an en dash; both ends with the same number of digits."""
    if low is None or high is None:
        return NOT_MEASURED
    decimals = _decimals(max(abs(low), abs(high)))
    return f"{_percent_digits(low, decimals)}{DASH}{_percent_digits(high, decimals)}"


def _decimals(value: float) -> int:
    magnitude = abs(value)
    if magnitude >= 1000:
        return 0
    if magnitude >= 9.995:
        return 1
    return 2 if magnitude >= 0.0995 else 4


def _percent_digits(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}" if math.isfinite(value) else "not a finite number"


def interval(low: float | None, high: float | None, digits: int = 4) -> str:
    """Both ends of an interval in the metric's unit."""
    if low is None or high is None:
        return NOT_MEASURED
    return f"{significant(low, digits)}{DASH}{significant(high, digits)}"


def bytes_text(count: float | None) -> str:
    """Memory in binary units, as memory is sold."""
    if count is None:
        return "unknown"
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(size) < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count:,.0f} B" if unit == "B" else f"{significant(size, 3)} {unit}"


def seconds_text(seconds: float | None) -> str:
    """A duration: `850 ms`, `4.21 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds is None:
        return "unknown"
    if not math.isfinite(seconds) or abs(seconds) < 100:
        return with_unit(seconds, "s")
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def utc_text(stamp: str | None) -> str:
    """An ISO time of `run.json` for a reader; any other text is shown as it stands."""
    if stamp is None:
        return "not finished"
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return stamp
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def listing(items: list[str] | tuple[str, ...], limit: int = 4) -> str:
    """`a, b, c and 5 more`."""
    if len(items) <= limit:
        return ", ".join(items)
    return f"{', '.join(items[: limit - 1])} and {len(items) - limit + 1} more"


def printable(text: str) -> str:
    """Text from a guest or a file, in which every character that could steer a terminal is made
    visible.

    Control characters, direction overrides and lone surrogates become ``\\x1b``-like escapes;
    newlines and tabs stay.
    """
    return "".join(
        character if _harmless(character) else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def _harmless(character: str) -> bool:
    code = ord(character)
    if code < 0x20 or 0x7F <= code < 0xA0:
        return character in "\n\t"
    return character not in _BIDI and not 0xD800 <= code < 0xE000


def one_line(text: str) -> str:
    """`printable` text on one line."""
    return " ".join(printable(text).split())
