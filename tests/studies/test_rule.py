"""What a verdict is based on, and how claims are counted by it."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from vtax_studies.model import SUBSTITUTES, Basis, Claim, Verdict
from vtax_studies.rule import Judgement, Missing, Rule, all_hold, judge
from vtax_studies.table import counts

Guests = list[tuple[bool, bool | None]]
"""Whether a guest is emulated, and what its own values say."""
SAYS = st.sampled_from([True, False, None])
GUESTS = st.lists(st.tuples(st.booleans(), SAYS), min_size=1, max_size=4)
CLAIMS = st.lists(
    st.tuples(st.sampled_from(Verdict), st.sampled_from(Basis)).filter(
        lambda kind: kind[0] is not Verdict.SUBSTITUTE or kind[1] in SUBSTITUTES
    ),
    max_size=30,
)


def every(guests: Guests) -> Judgement:
    if not guests:
        raise Missing("no guest")
    return Judgement("", all_hold(says for _, says in guests), "Each has to.")


def any_suffices(guests: Guests) -> Judgement:
    if not guests:
        raise Missing("no guest")
    return Judgement("", any(says is True for _, says in guests), "One suffices.")


RULES = (Rule("every", "", "", "", every), Rule("any", "", "", "", any_suffices))


@given(GUESTS)
def test_what_emulation_alone_decides_is_marked(guests: Guests) -> None:
    real = [each for each in guests if not each[0]]
    for with_it, without in zip(judge(RULES, guests), judge(RULES, real), strict=True):
        (claim,) = (each for each in judge(RULES, guests, real=real) if each.name == with_it.name)
        alone = with_it.verdict is not Verdict.UNKNOWN and without.verdict is not with_it.verdict
        assert (claim.basis is Basis.EMULATION) is alone
        by_it = alone and with_it.verdict is Verdict.HOLDS
        assert claim.verdict is (Verdict.SUBSTITUTE if by_it else with_it.verdict)
        assert claim.reason.endswith(f"it {without.verdict.value}.") is alone


def test_what_is_fitted_stays_fitted() -> None:
    rule = Rule("every", "", "", "", every, Basis.FITTED)
    (claim,) = judge([rule], [(True, True)], real=[])
    assert claim.basis is Basis.FITTED


@given(CLAIMS)
def test_only_results_are_among_those_that_hold(kinds: list[tuple[Verdict, Basis]]) -> None:
    claims = [Claim("", "", "", "", "", verdict, "", basis) for verdict, basis in kinds]
    parts = counts(claims).split("; ")
    own = [verdict for verdict, basis in kinds if basis is Basis.RESULT]
    assert parts[0].startswith(f"{own.count(Verdict.HOLDS)} of {len(own)} claims hold, ")
    # Every claim is counted, and once.
    told = [re.findall(r"(\d+)(?: of \d+ claims)? (?:hold|do not|cannot)", part) for part in parts]
    assert sum(int(number) for part in told for number in part) == len(claims)
    fitted = sum(basis is Basis.FITTED for _, basis in kinds)
    assert any(
        part.startswith(f"the model was fitted to {fitted} other") for part in parts
    ) == bool(fitted)
