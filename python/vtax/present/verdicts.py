"""How a verdict is said and shown. Colour only ever accompanies the word or the symbol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from vtax.analysis.results import Result, Verdict
from vtax.present.format import plural, significant

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
    """The verdict as it ends a sentence."""
    match result.verdict:
        case Verdict.EQUIVALENT:
            return f"equivalent within {margin_text(margin_percent)}"
        case Verdict.INCONCLUSIVE:
            return f"inconclusive{_settle(result)}"
        case Verdict.NOT_COMPARED:
            return f"not compared: {result.reason or 'the baseline has no value'}"
        case Verdict.NOT_MEASURED:
            return f"not measured: {result.reason or 'no reason was recorded'}"
        case verdict:
            return verdict.value


def _settle(result: Result) -> str:
    if result.repetitions_to_settle is None:
        return ""
    return f" (about {plural(result.repetitions_to_settle, 'repetition')} would decide it)"
