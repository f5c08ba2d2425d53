"""The order of a campaign."""

from hypothesis import given
from hypothesis import strategies as st

from vtax.runner.plan import interleaved

LABELS = ("a", "b", "c")


@given(st.integers(0, 20), st.integers(0, 2**32))
def test_each_block_has_every_environment_once(repetitions: int, seed: int) -> None:
    order = interleaved(LABELS, repetitions, seed)
    for repetition in range(repetitions):
        block = order[repetition * 3 : repetition * 3 + 3]
        assert sorted(block) == [(label, repetition) for label in LABELS]


def test_the_seed_decides_the_order() -> None:
    assert interleaved(LABELS, 50, 1) == interleaved(LABELS, 50, 1)
    assert interleaved(LABELS, 50, 1) != interleaved(LABELS, 50, 2)


def test_blocks_are_shuffled() -> None:
    order = interleaved(LABELS, 50, 1)
    assert len({order[i][0] for i in range(0, 150, 3)}) == 3
