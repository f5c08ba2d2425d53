"""What the seed's text claims, each judged from data by a pure function."""

from __future__ import annotations

from vtax.studies.dav2m.claims import behaviour, performance, policy
from vtax.studies.dav2m.data import Data
from vtax.studies.model import Claim, Verdict
from vtax.studies.rule import judged

RULES = (*performance.RULES, *behaviour.RULES, *policy.RULES)


def judge(data: Data) -> list[Claim]:
    """Every claim, in the order of the paper's parts."""
    return [judged(rule, data) for rule in RULES]


def judgeable(data: Data) -> list[Claim]:
    """Those that the data of a single figure can judge."""
    return [claim for claim in judge(data) if claim.verdict is not Verdict.UNKNOWN]
