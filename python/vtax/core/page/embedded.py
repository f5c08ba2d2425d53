"""The figures' data inside a page: JSON that ends no element, and has what repeats only once."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markupsafe import Markup

DIGITS = 7
"""Significant digits of a number: more than a screen has pixels."""
_WORTH_SHARING = 20
"""Characters; a reference takes about ten."""


def embedded(data: dict[str, Any]) -> Markup:
    """`data` and what it shares, for the script element that `plots.read` reads.

    Figures of one page have most of their layout in common: it is in the list `shared`, and
    `{"$": N}` stands for its entry N.
    """
    from markupsafe import Markup

    source = _Pool(_plain(data)).source()
    for character in "<>&":
        source = source.replace(character, f"\\u{ord(character):04x}")
    return Markup(source)


def _plain(data: Any) -> Any:
    """The data with `null` for every number that is none, which JSON cannot express."""
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    if isinstance(data, float):
        return float(f"{data:.{DIGITS}g}") if math.isfinite(data) else None
    return data


class _Pool:
    """The lists and objects of some data that are equal and worth sharing."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data
        self._texts: dict[int, str] = {}
        """The JSON of each list and object by its identity; the data keeps them alive."""
        self._read(data)
        counts = Counter(self._texts.values())
        repeated = [text for text, n in counts.items() if n > 1 and len(text) > _WORTH_SHARING]
        self._shared = {text: number for number, text in enumerate(repeated)}

    def source(self) -> str:
        """The data as JSON, with the list `shared`."""
        pool: dict[str, Any] = {}
        own = {name: self._part(value, pool) for name, value in self._data.items()}
        return _json({**own, "shared": [pool[text] for text in self._shared]})

    def _read(self, data: Any) -> str:
        if isinstance(data, dict):
            text = ",".join(f"{_json(key)}:{self._read(value)}" for key, value in data.items())
            text = f"{{{text}}}"
        elif isinstance(data, list):
            text = f"[{','.join(map(self._read, data))}]"
        else:
            return _json(data)
        self._texts[id(data)] = text
        return text

    def _part(self, data: Any, pool: dict[str, Any]) -> Any:
        """The data with references; what they refer to is put into the pool."""
        if not isinstance(data, dict | list):
            return data
        text = self._texts[id(data)]
        number = self._shared.get(text)
        if number is not None and text in pool:
            return {"$": number}
        made: Any = (
            {key: self._part(value, pool) for key, value in data.items()}
            if isinstance(data, dict)
            else [self._part(value, pool) for value in data]
        )
        if number is None:
            return made
        pool[text] = made
        return {"$": number}


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
