"""Whether the numbers can be believed: the flags of a run, grouped by kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vtax.compare.explain import Explanation, explain
from vtax.core.formats.model import ComparisonRecord
from vtax.core.page.format import listing, one_line, plural
from vtax.core.statistics.results import Flag

_STATES = {
    "running": "This run was cut short: its writer ended before the run did (killed, or the "
    "machine went down). Everything that finished is here.",
    "interrupted": "This run was stopped by its user. Everything that finished is here.",
    "budget": "This run stopped when its time budget was used up. Everything that finished is "
    "here.",
    "failed": "This run ended with a failure. Everything that finished is here.",
}


RANKED = (
    "not-believed", "assumed-direction", "timer-inversion", "left-processes", "clock-verdict",
    "aa-control", "clock-disagreement", "emulator-time", "audit", "several-matches",
    "failures", "duet-overlap", "steal", "drift", "too-short", "cut-short", "few-repetitions",
    "one-boot", "one-node", "steal-unknown",
)  # fmt: skip
"""Kinds of flags, from those that could turn the answer round to those that could blur it."""
HARMLESS = frozenset({"absent-values", "coarse-values", "duet", "fits-cache", "host-time",
                      "noise-floor", "short-kernel", "unit-converted"})  # fmt: skip
"""Kinds that cannot change a verdict: the interval has them in it, or they say what was measured
and not how well."""


@dataclass(frozen=True, slots=True)
class FlagGroup:
    """All flags of one kind."""

    kind: str
    explanation: Explanation
    flags: tuple[Flag, ...]

    @property
    def is_harmless(self) -> bool:
        """Whether it cannot change a verdict."""
        return self.kind in HARMLESS

    @property
    def sentence(self) -> str:
        """What was seen, as one line: the first finding, and how many more there are."""
        first = self.flags[0]
        where = f"{one_line(first.environment)}: {one_line(first.message)}"
        more = len(self.flags) - 1
        return f"{where} (and {plural(more, 'more finding')})" if more else where


@dataclass(frozen=True, slots=True)
class FlagLine:
    """The flags of one kind in one environment, as a line."""

    kind: str
    environment: str
    metrics: tuple[str, ...]
    message: str
    more: int
    """The number of further, different messages."""


def grouped(flags: Iterable[Flag]) -> list[FlagGroup]:
    """The flags by kind, each flag once, kinds in the order of their first flag."""
    kinds: dict[str, dict[Flag, None]] = {}
    for flag in flags:
        kinds.setdefault(flag.kind, {})[flag] = None
    return [FlagGroup(kind, explain(kind), tuple(found)) for kind, found in kinds.items()]


def ranked(flags: Iterable[Flag]) -> list[FlagGroup]:
    """The flags by kind, first the kind that could change the answer most; an unknown kind stands
    before those that could not change it."""
    places = {kind: place for place, kind in enumerate(RANKED)}

    def rank(group: FlagGroup) -> int:
        return len(RANKED) + group.is_harmless if group.kind not in places else places[group.kind]

    return sorted(grouped(flags), key=rank)


def lines(flags: Iterable[Flag]) -> list[FlagLine]:
    """One line per kind and environment."""
    return [line for group in grouped(flags) for line in _lines_of(group)]


def _lines_of(group: FlagGroup) -> list[FlagLine]:
    by_environment: dict[str, list[Flag]] = {}
    for flag in group.flags:
        by_environment.setdefault(flag.environment, []).append(flag)
    return [
        FlagLine(
            kind=group.kind,
            environment=environment,
            metrics=tuple(flag.metric for flag in found if flag.metric is not None),
            message=found[0].message,
            more=len({flag.message for flag in found}) - 1,
        )
        for environment, found in by_environment.items()
    ]


def line_text(line: FlagLine) -> str:
    """A flag line without its environment and kind."""
    text = one_line(line.message)
    if line.more:
        where = f" in {plural(len(line.metrics), 'metric')}" if line.metrics else ""
        text += f" (and {line.more} more{where})"
    elif len(line.metrics) > 1:
        text += f" ({listing([one_line(metric) for metric in line.metrics])})"
    return text


def state_sentence(record: ComparisonRecord) -> str | None:
    """What the run's state means for its numbers; None for a complete run."""
    if record.state == "budget" and record.until_percent is not None:
        until = f"{record.until_percent:g} %"
        return f"The time budget was used up before every interval was within ± {until}."
    return _STATES.get(record.state)


def planned(record: ComparisonRecord) -> str:
    """How many repetitions were planned."""
    if record.until_percent is None:
        return f"{plural(record.repetitions, 'repetition')} per environment"
    return (
        f"{plural(record.repetitions, 'round')} of all environments, then more until intervals are "
        f"within ± {record.until_percent:g} %"
    )
