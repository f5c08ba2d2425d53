"""Numbers, pairs and parameters as they are written on the command line."""

from __future__ import annotations

from collections.abc import Iterable

from vtax.core.errors import MisuseError
from vtax.core.specs import unknown
from vtax.core.units import parse_count
from vtax.paging.mode import Value

SIDES = ("guest", "host")


def count(option: str, text: str) -> int:
    """A count as `parse_count` reads it; raises MisuseError, naming the option, for other text."""
    try:
        return parse_count(text)
    except MisuseError as error:
        raise MisuseError(f"{option}: {error.message}", error.remedy) from error


def pairs(option: str, text: str | None) -> dict[str, str]:
    """The values of ``guest=...,host=...``; one side may be left out.

    Raises MisuseError, naming the option, for anything else.
    """
    values: dict[str, str] = {}
    for part in text.split(",") if text is not None else ():
        side, equals, value = (piece.strip() for piece in part.partition("="))
        if not (equals and value):
            raise MisuseError(f"{option}: '{part}' is not guest=... or host=...")
        if side not in SIDES:
            raise unknown(f"side of {option}", side, SIDES)
        if side in values:
            raise MisuseError(f"{option}: {side} is given twice")
        values[side] = value
    return values


def parameters(texts: Iterable[str]) -> dict[str, dict[str, Value]]:
    """Parameters of policies from ``POLICY.NAME=VALUE``.

    Raises MisuseError when a parameter has another form or is given twice.
    """
    found: dict[str, dict[str, Value]] = {}
    for text in texts:
        path, _, value = text.partition("=")
        policy, _, name = path.strip().partition(".")
        if not (policy and name and value.strip()):
            raise MisuseError(f"parameter '{text}' is not POLICY.NAME=VALUE")
        own = found.setdefault(policy, {})
        if name in own:
            raise MisuseError(f"parameter '{policy}.{name}' is given twice")
        own[name] = _value(value.strip())
    return found


def _value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    try:
        number = float(text)
    except ValueError:
        return text
    # A number like 1e9 more often counts something than not, and a whole number is also a real one.
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else number
