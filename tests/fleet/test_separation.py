"""Facts that separate hosts: a planted one is found, and none is claimed where none separates."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from vtax.fleet.separation import MOST_CHANCE, Separation, separations, shown

HOSTS = [f"host{number}" for number in range(9)]
tables = st.integers(3, 9).flatmap(
    lambda count: st.fixed_dictionaries(
        {
            host: st.fixed_dictionaries(
                {fact: st.sampled_from(["a", "b", "c"]) for fact in ("kernel", "model", "thp")},
                optional={"governor": st.sampled_from(["performance", "powersave"])},
            )
            for host in HOSTS[:count]
        }
    )
)
chosen = st.sets(st.sampled_from(HOSTS[:3]), min_size=1, max_size=2).map(frozenset)


@given(tables, chosen)
def test_a_planted_fact_is_found(facts: dict[str, dict[str, str]], of: frozenset[str]) -> None:
    for host, own in facts.items():
        own["planted"] = "new" if host in of else "old"
    found = {each.fact: each for each in separations(facts, of)}
    assert found["planted"].value == "new"
    assert found["planted"].hosts == tuple(sorted(of))
    assert found["planted"].others == ("old",)


@given(tables, chosen)
def test_what_is_claimed_separates(facts: dict[str, dict[str, str]], of: frozenset[str]) -> None:
    """Against the definition, and the chance against all choices of as many hosts."""
    for each in separations(facts, of):
        values = {host: own[each.fact] for host, own in facts.items()}
        assert {host for host, value in values.items() if value == each.value} == {*each.hosts}
        assert {*each.hosts} <= of
        choices = [set(choice) for choice in combinations(facts, len(each.hosts))]
        separated = [
            choice
            for choice in choices
            if len({values[host] for host in choice}) == 1
            and not {values[host] for host in choice} & {values[h] for h in {*facts} - choice}
        ]
        assert Fraction(each.chance).limit_denominator(200) == Fraction(
            len(separated), len(choices)
        )
        assert each.chance <= MOST_CHANCE


@given(tables, chosen)
def test_none_is_claimed_where_others_have_the_same(
    facts: dict[str, dict[str, str]], of: frozenset[str]
) -> None:
    others = [host for host in facts if host not in of]
    for host in of:
        facts[host] = dict(facts[others[0]])
    assert separations(facts, of) == []


def test_a_serial_number_and_an_unknown_fact_separate_nothing() -> None:
    facts = {host: {"serial": host} for host in HOSTS}
    assert separations(facts, frozenset(HOSTS[:1])) == []
    facts["host0"]["governor"] = "powersave"
    assert separations(facts, frozenset(HOSTS[:1])) == []
    assert separations(facts, frozenset(HOSTS)) == []


def test_long_lists_are_shown_by_what_differs() -> None:
    common = ",".join(f"flag{number}" for number in range(40))
    found = Separation("cpu.flags", common, ("h",), (f"{common},avx512f",), 0.1)
    assert shown(found) == ("nothing more", "avx512f")
