"""Where an environment begins to cost more, along a parameter of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FALL = 0.9
"""A fall is more than a tenth, as of `vtax memory` (docs/memory.md)."""


@dataclass(frozen=True, slots=True)
class Level:
    """Performance in percent of the baseline at a value, with its interval."""

    value: float
    low: float
    high: float


def past(levels: Sequence[Level]) -> float | None:
    """The value behind which the largest fall lies; None where nothing falls for good.

    Behind it every larger value's interval lies below 90 % of the lower end of its own interval.
    Levels are taken in the order of their values.
    """
    ordered = sorted(levels, key=lambda each: each.value)
    falls = [
        (max(each.high for each in ordered[at + 1 :]) / here.low, here.value)
        for at, here in enumerate(ordered[:-1])
        if here.low > 0
    ]
    lasting = [each for each in falls if each[0] < FALL]
    return min(lasting)[1] if lasting else None
