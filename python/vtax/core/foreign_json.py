"""JSON that another program wrote, or a file that anybody may have changed: one place reads it.

Whatever is wrong with it is a ValueError, so that a caller has one kind of fault to explain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

SMALLEST_INTEGER, LARGEST_INTEGER = -(1 << 63), (1 << 64) - 1
"""The range in which programs count. A larger number fits no float and no column of a table."""


def parse(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises ValueError for text that is not JSON, is nested too deep, has an integer beyond 64 bits
    or a number that no float holds. Half a surrogate pair, which cannot be written, becomes U+FFFD.
    """
    try:
        found = json.loads(
            text, parse_int=_integer, parse_float=_float, parse_constant=_no_constant
        )
        return _writable(found) if _may_have_halves(text) else found
    except RecursionError:
        raise ValueError("nested too deep") from None


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The value of a JSON object's text; raises ValueError for anything else."""
    found = parse(text)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def at(found: Any, path: str) -> Any:
    """The value at a path such as ``cpu.model``; None: there is none."""
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _integer(digits: str) -> int:
    number = int(digits)
    if not SMALLEST_INTEGER <= number <= LARGEST_INTEGER:
        raise ValueError(f"an integer of {len(digits)} digits")
    return number


def _float(digits: str) -> float:
    number = float(digits)
    if number - number != 0:
        raise ValueError(f"{digits:.40} is too large")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _may_have_halves(text: str | bytes) -> bool:
    if isinstance(text, bytes):
        return b"\\ud" in text or b"\\uD" in text
    return not text.isascii() or "\\ud" in text or "\\uD" in text


def _writable(found: Any) -> Any:
    if isinstance(found, str):
        return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(found, list):
        return [_writable(each) for each in found]
    if isinstance(found, dict):
        return {_writable(name): _writable(value) for name, value in found.items()}
    return found
