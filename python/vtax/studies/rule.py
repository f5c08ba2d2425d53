"""A claim's fixed part and the function that judges it, for every study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from vtax.studies.model import Basis, Claim, Verdict

D = TypeVar("D")
"""What a study has found."""


class Missing(Exception):
    """What a claim or figure needs was not found; the text says why."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a rule found."""

    ours: str
    holds: bool | None
    """`None`: cannot be judged."""
    reason: str


@dataclass(frozen=True, slots=True)
class Rule(Generic[D]):
    """A statement of the seed and how it is judged."""

    name: str
    section: str
    statement: str
    seed: str
    judge: Callable[[D], Judgement]
    basis: Basis = Basis.RESULT


def judged(rule: Rule[D], data: D) -> Claim:
    """The claim with its verdict; what was not found cannot be judged."""
    try:
        found = rule.judge(data)
    except Missing as missing:
        found = Judgement("no value", None, f"{missing}.")
    verdict = {True: Verdict.HOLDS, False: Verdict.FAILS, None: Verdict.UNKNOWN}[found.holds]
    return Claim(
        rule.name,
        rule.section,
        rule.statement,
        rule.seed,
        found.ours,
        verdict,
        found.reason,
        rule.basis,
    )
