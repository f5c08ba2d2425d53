"""What a coarse clock, or a program that prints few digits, leaves unknown.

Rounding is a bounded error, the same in every run: where the noise is smaller than the step, more
runs give the same rounded value again, and their mean stays off by up to half a step. Only noise
that carries values over several steps (dither) averages rounding away (Widrow & Kollár 2008).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from vtax.core.statistics.statistics import CONFIDENCE, Estimate, Floats, median, student_t

_DIGITS = 11
"""Significant digits; with these, differences of seconds since 1970 keep the microseconds."""
_EXACT = 2.0**53
"""Whole numbers up to this one are exact as floats."""
_MOST = 1000.0
"""The largest log of a value: e to it is beyond every float."""
DITHER_SHARE = 0.5
"""Rounding averages away where at most this share of values is at one step, over three steps at
least."""


def resolution(values: Sequence[float]) -> float:
    """The step in which the values come, in their unit. There is at least one value.

    The step is the last decimal digit that any of the values has. Where values repeat and yet
    differ, the step is the largest number of which all are multiples, such as a clock's tick.
    """
    distinct = np.unique(_shown(values))
    unit = 10.0 ** min(_last_digit(float(value)) for value in distinct)
    if 1 < distinct.size < len(values) and distinct[-1] < _EXACT * unit:
        return unit * int(np.gcd.reduce(np.rint(distinct / unit).astype(np.int64)))
    return unit


def widened(found: Estimate, own: Sequence[float], base: Sequence[float]) -> Estimate:
    """The estimate with what the steps of both sides leave open; no interval is narrower than a
    step."""
    sides = [(values, _step(values, other)) for values, other in ((own, base), (base, own))]
    steps = [min(step / median(values), _MOST) for values, step in sides]
    bias = sum(
        step / 2 for (values, _), step in zip(sides, steps, strict=True) if not _dithers(values)
    )
    least = max(steps) / 2 / student_t(CONFIDENCE, found.df)
    return dataclasses.replace(found, error=max(found.error, least), bias=bias)


def _step(values: Sequence[float], other: Sequence[float]) -> float:
    own = resolution(values)
    # Equal values do not show their step, but the other side's values may.
    return max(own, resolution(other)) if np.ptp(_shown(values)) == 0 else own


def _dithers(values: Sequence[float]) -> bool:
    _, counts = np.unique(_shown(values), return_counts=True)
    return bool(counts.size >= 3 and counts.max() <= DITHER_SHARE * len(values))


def _shown(values: Sequence[float]) -> Floats:
    """The values without what a subtraction or a change of the unit leaves behind the last digit:
    0.15 and 0.15000000000000002 are one step."""
    array = np.asarray(values, dtype=np.float64)
    return np.array([float(f"{value:.{_DIGITS}g}") for value in array])


def _last_digit(value: float) -> int:
    """The decimal exponent of the last digit of the shortest text of the value."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    _, _, decimals = mantissa.partition(".")
    return int(exponent or 0) - len(decimals.rstrip("0"))
