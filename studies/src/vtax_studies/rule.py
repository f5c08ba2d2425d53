"""How every study judges: a claim's fixed part, the function that judges it, and its words."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from vtax.core.page.format import signed, significant
from vtax_studies.model import SUBSTITUTES, Basis, Claim, Second, Verdict

D = TypeVar("D")
"""The data of a study."""
T = TypeVar("T")
C = TypeVar("C", bound=Sized)


class Missing(Exception):
    """Raised when what a claim or figure needs was not found; the text says why."""


class Absent(Missing):
    """Raised when a claim is about what these data do not have at all."""


def some(found: C, why: str = "nothing was measured") -> C:
    """`found`, if there is anything in it. Raises Missing otherwise."""
    if not found:
        raise Missing(why)
    return found


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of a rule."""

    ours: str
    holds: bool | None
    """`None`: the claim cannot be judged."""
    reason: str
    basis: Basis | None = None
    """The basis where the data decide it; otherwise that of the rule."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[D]):
    """A statement of the paper and how it is judged."""

    name: str
    section: str
    statement: str
    stated: str
    judge: Callable[[D], Judgement]
    basis: Basis = Basis.RESULT


def judged(rule: Rule[D], data: D, real: D | None = None) -> Claim:
    """The claim with its verdict; without the data that it needs it cannot be judged.

    `real`: the data without emulated runs, where there are some.
    """
    found = _found(rule, data)
    basis, reason = found.basis or rule.basis, found.reason
    if real is not None and basis is Basis.RESULT and found.holds is not None:
        alone = _found(rule, real)
        if alone.holds is not found.holds:
            basis = Basis.EMULATION
            reason += f" Without what is emulated it {_VERDICTS[alone.holds].value}."
    verdict = _VERDICTS[found.holds]
    if verdict is Verdict.HOLDS and basis in SUBSTITUTES:
        verdict = Verdict.SUBSTITUTE
    return Claim(
        rule.name,
        rule.section,
        rule.statement,
        rule.stated,
        found.ours,
        verdict,
        reason,
        basis,
    )


_VERDICTS = {True: Verdict.HOLDS, False: Verdict.FAILS, None: Verdict.UNKNOWN}


def _found(rule: Rule[D], data: D) -> Judgement:
    try:
        return rule.judge(data)
    except Missing as missing:
        return Judgement("no value", None, f"{missing}.")


def judge(
    rules: Sequence[Rule[D]],
    data: D,
    only: str | None = None,
    real: D | None = None,
    second: D | None = None,
    differs: Mapping[str, Callable[[D], str]] | None = None,
) -> list[Claim]:
    """Every claim; with `only`, the claims that the data of a single figure can judge.

    `second`: other data, on which each claim is judged for itself; `differs`: why, by claim.
    """
    claims = [judged(rule, data, real) for rule in rules]
    if second is not None:
        named = differs or {}
        claims = [
            replace(claim, second=_second(rule, claim.verdict, second, named.get(rule.name)))
            for rule, claim in zip(rules, claims, strict=True)
        ]
    return [each for each in claims if only is None or each.verdict is not Verdict.UNKNOWN]


_CLEAR = (Verdict.HOLDS, Verdict.FAILS)
NOT_KNOWN_WHY = "Why was not looked into."


def _second(rule: Rule[D], first: Verdict, data: D, why: Callable[[D], str] | None) -> Second:
    try:
        found = rule.judge(data)
    except Absent as absent:
        return Second("", None, f"{absent}.")
    except Missing as missing:
        return Second("", Verdict.UNKNOWN, f"{missing}.")
    verdict = _VERDICTS[found.holds]
    differs = ""
    if verdict is not first and first in _CLEAR and verdict in _CLEAR:
        try:
            differs = why(data) if why else NOT_KNOWN_WHY
        except Missing:
            differs = NOT_KNOWN_WHY
    return Second(found.ours, verdict, found.reason, differs)


def possible(makers: Iterable[Callable[[D], T]], data: D) -> list[T]:
    """What the makers make of the data, without those that lack data."""
    found = []
    for maker in makers:
        with contextlib.suppress(Missing):
            found.append(maker(data))
    return found


def all_hold(verdicts: Iterable[bool | None]) -> bool | None:
    """Whether all hold; None where none fails and one cannot be judged."""
    every = list(verdicts)
    return False if False in every else None if None in every else True


FACTOR = 1.5
"""A size agrees with the paper's within this factor. The studies' choice."""


def within_factor(value: float, stated: float, factor: float = FACTOR) -> bool:
    """Whether `value` agrees with the stated one in size."""
    return stated / factor <= value <= stated * factor


def size(value: float, stated: float, unit: str, note: str = "") -> Judgement:
    """Judges a size: it holds within the study's factor."""
    low, high = (f"{significant(bound, 3)}" for bound in (stated / FACTOR, stated * FACTOR))
    side = "" if within_factor(value, stated) else _side(value, stated)
    reason = f"Holds between {low} and {high} {unit}{side}."
    ours = f"{significant(value, 3)} {unit}{f' ({note})' if note else ''}"
    return Judgement(ours, within_factor(value, stated), reason)


def _side(value: float, stated: float) -> str:
    if value > stated:
        return f"; it is {significant(value / stated, 3)} times the paper's"
    return f"; it is {significant(100 * value / stated, 2)} % of the paper's"


def below(value: float, noise: float, limit: float) -> bool | None:
    """Whether a cost is below a limit; None where noise alone may decide, on either side.

    Noise that could hide a cost must not confirm that there is none.
    """
    if value + noise <= limit:
        # Measuring makes nothing faster: a gain beyond the noise means that the machine changed.
        return True if value + noise >= 0 else None
    return False if value - noise > limit else None


def each(values: Iterable[tuple[str, float]], unit: str = "%", digits: int = 2) -> str:
    """`swim 1.2, gcc 3.4 %`."""
    shown = (f"{name} {signed(value, digits)}" for name, value in values)
    return f"{', '.join(shown)} {unit}"


def wrong(names: Iterable[str]) -> str:
    """The end of a reason that lists exceptions; empty without one."""
    listed = ", ".join(names)
    return f" Not so: {listed}." if listed else ""
