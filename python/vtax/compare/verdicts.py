"""How a verdict is worded and shown. Colour only ever accompanies the word or the symbol."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from vtax.compare.repetitions import MOST
from vtax.core.formats.model import Better
from vtax.core.page.format import significant
from vtax.core.statistics.results import RepetitionsNeeded, Result, Verdict

SYMBOLS: Mapping[Verdict, str] = MappingProxyType(
    {
        Verdict.BASELINE: "=",
        Verdict.SLOWER: "▼",
        Verdict.FASTER: "▲",
        Verdict.EQUIVALENT: "≈",
        Verdict.INCONCLUSIVE: "?",
        Verdict.NOT_COMPARED: "\N{MIDDLE DOT}",
        Verdict.NOT_MEASURED: "\N{EN DASH}",
    }
)

ARROWS: Mapping[Better, str] = MappingProxyType({"higher": "↑", "lower": "↓"})
"""The arrow towards a metric's better values."""

RANKED: Sequence[Verdict] = (
    Verdict.SLOWER,
    Verdict.EQUIVALENT,
    Verdict.FASTER,
    Verdict.INCONCLUSIVE,
    Verdict.NOT_COMPARED,
    Verdict.NOT_MEASURED,
)
"""The order in which verdicts are counted for a reader."""


def css_class(verdict: Verdict) -> str:
    """The verdict as a class name."""
    return f"verdict-{verdict.value.replace(' ', '-')}"


def margin_text(margin_percent: float) -> str:
    """`2 %`: the margin without digits that say nothing."""
    return f"{significant(margin_percent).rstrip('0').rstrip('.') or '0'} %"


def phrase(result: Result, margin_percent: float) -> str:
    """The verdict as the end of a sentence, with what the one word leaves out."""
    said = _said(result, margin_percent)
    typical, mean = result.typical, result.mean
    if typical and mean and typical.verdict is not mean.verdict:
        said += f" (typical run {typical.verdict.value}, mean {mean.verdict.value})"
    if result.mixture is not None:
        said += f"; {result.mixture}"
    return said


def _said(result: Result, margin_percent: float) -> str:
    match result.verdict:
        case Verdict.EQUIVALENT:
            text = f"equivalent within {margin_text(margin_percent)}"
            if result.unseen_percent is None:
                return text
            rare = significant(result.unseen_percent, 2)
            return f"{text}; slow runs rarer than {rare} % would not have been seen"
        case Verdict.INCONCLUSIVE:
            return f"inconclusive{_needed(result)}"
        case Verdict.NOT_COMPARED:
            return f"not compared: {result.reason or 'the baseline has no value'}"
        case Verdict.NOT_MEASURED:
            return f"not measured: {result.reason or 'no reason was recorded'}"
        case verdict:
            return verdict.value


def needed_text(needed: RepetitionsNeeded) -> str:
    """How many rounds would decide, as text for a table."""
    if not needed.reachable:
        return "not reachable"
    return f"{needed.low} or more" if needed.high is None else f"{needed.low} to {needed.high}"


def _needed(result: Result) -> str:
    needed = result.repetitions_needed
    if needed is None:
        return ""
    if needed.reachable:
        return f" ({needed_text(needed)} repetitions would probably decide it)"
    # The noise falls with the root of the number of rounds; what is left is all that this machine
    # can do.
    floor = result.smallest_detectable_percent or 0.0
    floor *= math.sqrt(result.n / MOST)
    return f" (not to be decided here: even {MOST} repetitions resolve {significant(floor)} %)"
