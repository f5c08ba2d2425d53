"""Judgements that the claims on this machine share with those on the emulated one."""

from __future__ import annotations

from collections.abc import Sequence

from vtax.core.page.format import plural, signed, significant
from vtax_studies.rule import Judgement, below
from vtax_studies.vrtprof.data import Overheads
from vtax_studies.vrtprof.setup import PAPER_SPREAD


def each_below(found: Overheads, limit: float, words: str) -> Judgement:
    """Judge each workload by itself; `words` say what each has to be."""
    verdicts = {name: below(*each, limit) for name, each in found.items()}
    above = [name for name, verdict in verdicts.items() if verdict is False]
    unsure = [name for name, verdict in verdicts.items() if verdict is None]
    shown = ", ".join(
        f"{name} {signed(value, 2)} ± {significant(around, 2)}"
        for name, (value, around) in found.items()
    )
    reason = words
    reason += f" Not so: {', '.join(above)}." if above else ""
    reason += f" Within the noise: {', '.join(unsure)}." if unsure else ""
    return Judgement(f"{shown} %", False if above else None if unsure else True, reason)


def apart(lowest: Overheads, practical: Overheads, how: str) -> Judgement:
    """Judge how far each workload's unloaded run and its two recorded ones are apart.

    The spread is the range of 0 and both overheads, ± the larger of their noises.
    """
    found = {}
    for name in lowest.keys() & practical.keys():
        values, noises = zip((0.0, 0.0), lowest[name], practical[name], strict=True)
        found[name] = (max(values) - min(values), max(noises))
    found = {name: found[name] for name in lowest if name in found}
    words = f"{how}; each spread has to be below {PAPER_SPREAD:g} % by more than its noise."
    return each_below(found, PAPER_SPREAD, words)


def judge_phases(
    counts: Sequence[int], several: bool, who: str, events: Sequence[str]
) -> Judgement:
    """Judge phases; `several`: each run must have two or more; otherwise one."""
    word = "phase" if list(counts) == [1] else "phases"
    shown = f"{', '.join(map(str, counts))} {word} in {plural(len(counts), 'run')}"
    holds = all(count > 1 for count in counts) if several else all(count == 1 for count in counts)
    wanted = "two or more" if several else "one"
    return Judgement(shown, holds, f"{who} has to have {wanted}, by {', '.join(events)}.")
