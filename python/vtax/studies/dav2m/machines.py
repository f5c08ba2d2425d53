"""Machines changed for the study: dearer exits, more TLB entries, no walk caches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

Description = dict[str, Any]
"""A machine as its TOML file has it."""


def scaled(description: Mapping[str, Any], exit_factor: float, tlb_factor: float) -> Description:
    """The machine with its exits and the entries of its data TLBs multiplied.

    Arrays keep their ways unless they were fully associative or would have fewer entries than
    ways.
    """
    changed: Description = deepcopy(dict(description))
    changed["name"] = f"{changed['name']}-exit{exit_factor:g}-tlb{tlb_factor:g}"
    changed["costs"]["exit"] = max(1, round(changed["costs"]["exit"] * exit_factor))
    for level in ("l1", "l2"):
        for array in changed["tlb"].get(level, ()):
            entries = max(1, round(array["entries"] * tlb_factor))
            full = array["ways"] == array["entries"]
            array["ways"] = entries if full else min(array["ways"], entries)
            array["entries"] = entries
    return changed


def without_walk_caches(description: Mapping[str, Any]) -> Description:
    """The machine with nothing that lets a walk skip references."""
    changed: Description = deepcopy(dict(description))
    changed["name"] = f"{changed['name']}-no-walk-caches"
    changed["walk"] = {}
    return changed


def to_toml(description: Mapping[str, Any]) -> str:
    """The description as TOML, one line per key of the top level."""
    return "".join(f"{_text(key)} = {_value(value)}\n" for key, value in description.items())


def _text(text: str) -> str:
    """JSON's way of writing a string is TOML's, but for half code points and DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    match value:
        case Mapping():
            return "{ " + ", ".join(f"{_text(k)} = {_value(v)}" for k, v in value.items()) + " }"
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case str():
            return _text(value)
        case bool() | int() | float():
            # JSON and TOML write these alike, but for what no machine has: NaN and infinity.
            return json.dumps(value)
        case _:
            raise TypeError(f"{type(value).__name__} is not for a machine's description")
