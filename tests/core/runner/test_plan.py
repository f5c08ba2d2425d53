"""The order of a campaign."""

from hypothesis import given
from hypothesis import strategies as st

from vtax.core.runner.plan import Interleaving, Repetition

LABELS = ("a", "b", "c")


def interleaved(rounds: int, seed: int) -> list[Repetition]:
    order = Interleaving(seed)
    for _ in range(rounds):
        order.add(dict.fromkeys(LABELS, 1))
    return order.order


@given(st.integers(0, 20), st.integers(0, 2**32))
def test_each_round_has_every_environment_once(rounds: int, seed: int) -> None:
    order = interleaved(rounds, seed)
    for number in range(rounds):
        assert sorted(order[number * 3 : number * 3 + 3]) == [(each, number) for each in LABELS]


def test_the_seed_decides_the_order() -> None:
    assert interleaved(50, 1) == interleaved(50, 1)
    assert interleaved(50, 1) != interleaved(50, 2)


def test_rounds_are_shuffled() -> None:
    order = interleaved(50, 1)
    assert len({order[i][0] for i in range(0, 150, 3)}) == 3


def test_a_round_has_the_runs_that_it_is_given_and_repetitions_count_on() -> None:
    order = Interleaving(1)
    order.add({"a": 1, "b": 1})
    added = order.add({"a": 3})
    assert added == [("a", 1), ("a", 2), ("a", 3)]
    assert [order.rounds[each] for each in added] == [1, 1, 1]
    assert order.add({}) == []
