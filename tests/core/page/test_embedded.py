"""Figures as data inside a page."""

from __future__ import annotations

import json
import math
from typing import Any

from vtax.core.page.embedded import embedded


def whole(value: Any, shared: list[Any]) -> Any:
    """What `plots.read` makes of the data."""
    if isinstance(value, list):
        return [whole(each, shared) for each in value]
    if not isinstance(value, dict):
        return value
    if "$" in value:
        return whole(shared[value["$"]], shared)
    return {key: whole(each, shared) for key, each in value.items()}


def test_what_repeats_is_kept_once_and_read_back() -> None:
    layout = {"font": {"color": "var(--text)", "family": "var(--font)"}, "margin": [1, 2, 3]}
    data = {"plots": [{"layout": layout, "n": n, "axis": layout["font"]} for n in range(5)]}
    source = str(embedded(data))
    assert source.count("var(--font)") == 1
    found = json.loads(source)
    shared = found.pop("shared")
    assert whole(found, shared) == data


def test_numbers_are_rounded_and_what_is_none_is_null() -> None:
    found = json.loads(embedded({"plots": [1.23456789012, math.nan, 3, True, None, "</script>"]}))
    assert found["plots"] == [1.234568, None, 3, True, None, "</script>"]
    assert "<" not in embedded({"plots": ["</script>"]})
