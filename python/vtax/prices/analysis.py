"""What an operation costs more in one environment than in another; pure functions.

An operation has a price in several contexts (a short path and a long one, 1 byte and 64 KiB).
Within a context, the rounds of a campaign are pairs: the difference of a round is free of what
both had alike. Between contexts nothing is averaged away: a program's own circumstances are not
known, so the interval of an operation reaches from the lowest to the highest of its contexts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from vtax.core.foreign_json import at
from vtax.prices.record import PricedEnvironment, PricedOperation

MACHINE_FACTS = (
    "kernel.release",
    "kernel.version",
    "cpu.model",
    "clock.clocksource",
    "virtualization.kind",
    "memory.transparent_hugepages",
    "mitigations",
)
"""Facts that change what operations cost: prices hold as long as these are the same."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its lowest and highest plausible value."""

    value: float
    low: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.value + other.value, self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.value - other.value, self.low - other.high, self.high - other.low)

    def __mul__(self, factor: float) -> Interval:
        """Times a factor that is not negative."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Difference:
    """What an operation costs more in an environment than in its baseline, in one context."""

    operation: PricedOperation
    """As its baseline has it."""
    there: PricedOperation
    """As the environment has it."""
    more_ns: Interval
    """The median of the rounds, with their smallest and largest."""

    @property
    def times(self) -> float | None:
        """How many times the baseline's price it is; None: the baseline's is zero."""
        base = median(self.operation.ns)
        return median(self.there.ns) / base if base > 0 else None


def differences(
    environment: PricedEnvironment, baseline: PricedEnvironment
) -> Sequence[Difference]:
    """What each operation that both could measure costs more, in each context."""
    there = {(each.name, each.context): each for each in environment.operations}
    return [
        Difference(own, found, _paired(found.ns, own.ns))
        for own in baseline.operations
        if (found := there.get((own.name, own.context))) is not None
    ]


def _paired(there: Sequence[float], here: Sequence[float]) -> Interval:
    pairs = [theirs - ours for theirs, ours in zip(there, here, strict=False)]
    return Interval(median(pairs), min(pairs), max(pairs))


@dataclass(frozen=True, slots=True)
class PriceList:
    """What operations cost more in an environment than in its baseline."""

    by_name: Mapping[str, Sequence[Difference]]

    @classmethod
    def of(cls, environment: PricedEnvironment, baseline: PricedEnvironment) -> PriceList:
        found: dict[str, list[Difference]] = {}
        for each in differences(environment, baseline):
            found.setdefault(each.operation.name, []).append(each)
        return cls(found)

    def more(self, name: str, size: float | None = None) -> Interval | None:
        """What one operation costs more, in nanoseconds; `size` is that of the program's own.

        The value is the median of the contexts, the interval reaches over all of them; with a size
        both lie on the lines between the sizes that were measured. None: it has no price.
        """
        found = self.by_name.get(name, ())
        sized = [each for each in found if each.operation.size is not None]
        if size is not None and len({each.operation.size for each in sized}) > 1:
            return _at_size(sized, size)
        usual = [each.more_ns for each in found if not each.operation.structural] or [
            each.more_ns for each in found
        ]
        return _over(usual) if usual else None

    def structural(self, name: str) -> Interval | None:
        """What the emptiest call of its class costs more; None: not measured."""
        found = [each for each in self.by_name.get(name, ()) if each.operation.structural]
        if found:
            return _over([each.more_ns for each in found])
        null = self.by_name.get("null", ())
        return _over([each.more_ns for each in null]) if null else None

    def largest(self, name: str) -> float:
        """The largest size that was measured; infinite without sizes."""
        found = self.by_name.get(name, ())
        return max((each.operation.size for each in found if each.operation.size), default=math.inf)

    def faults(self, name: str) -> float:
        """Page faults that one operation of the baseline takes, the median of the contexts."""
        found = [each.operation.faults for each in self.by_name.get(name, ())]
        return median(found) if found else 0.0

    def calls(self, name: str) -> float:
        """System calls that one operation makes, the median of the contexts."""
        found = [each.operation.calls for each in self.by_name.get(name, ())]
        return median(found) if found else 1.0

    def times(self, names: Iterable[str]) -> Sequence[float]:
        """How many times the baseline's price each context of these operations is."""
        found = (each.times for name in names for each in self.by_name.get(name, ()))
        return [each for each in found if each is not None]


def _over(contexts: Sequence[Interval]) -> Interval:
    return Interval(
        median(each.value for each in contexts),
        min(each.low for each in contexts),
        max(each.high for each in contexts),
    )


def _at_size(found: Sequence[Difference], size: float) -> Interval:
    """The price at a size, on the lines between the sizes that were measured; beyond them the last
    two say how it goes on. Contexts of the same size are one, as without sizes."""
    by_size: dict[float, list[Interval]] = {}
    for each in found:
        by_size.setdefault(each.operation.size or 0.0, []).append(each.more_ns)
    sizes = sorted(by_size)
    prices = [_over(by_size[each]) for each in sizes]

    def at(values: Sequence[float]) -> float:
        if size <= sizes[-1]:
            return float(np.interp(size, sizes, values))
        rise = (values[-1] - values[-2]) / (sizes[-1] - sizes[-2])
        return values[-1] + rise * (size - sizes[-1])

    value = at([each.value for each in prices])
    low, high = (at([getattr(each, end) for each in prices]) for end in ("low", "high"))
    return Interval(value, min(low, value), max(high, value))


def changed_facts(before: Mapping[str, Any], now: Mapping[str, Any]) -> Sequence[str]:
    """The facts that change prices and differ between two looks at an environment."""
    return [path for path in MACHINE_FACTS if at(before, path) != at(now, path)]
