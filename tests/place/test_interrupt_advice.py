"""Where interrupts for guests go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from place_hosts import ALIKE, HYBRID, PAIR
from vtax.place.host_cores import Cores, HostCores
from vtax.place.interrupt_advice import AdvisedInterrupt, HostInterrupt, interrupt_advice, planned
from vtax.place.plan import PlannedInterrupt

NODES = HostCores(HYBRID.classes, {cpu: cpu % 2 for cpu in range(8)}, "named")
APART = HostCores(HYBRID.classes, {cpu: cpu // 4 for cpu in range(8)}, "named")
LOSS = "what it costs on slow cores was not measured"


def advised(
    cores: HostCores = HYBRID,
    cpus: tuple[int, ...] = tuple(range(8)),
    node: int | None = None,
    movable: bool = True,
) -> AdvisedInterrupt:
    (found,) = interrupt_advice(
        [HostInterrupt(24, "vfio-msix[0]", "web", cpus, node, movable)], cores
    )
    return found


def test_an_interrupt_is_kept_to_the_fast_cores_that_it_may_use() -> None:
    found = advised(cpus=(1, 3, 5))
    assert found.moves and found.cpus == (1, 3) and found.reason == LOSS
    assert planned([found]) == (PlannedInterrupt(number=24, cpus="1,3"),)
    assert found.sentence == f"interrupt 24 (vfio-msix[0]) is kept to fast cores (1,3): {LOSS}"


def test_one_that_no_slow_core_takes_stays() -> None:
    found = advised(cpus=(2, 3))
    assert not found.moves and found.cpus == (2, 3)
    assert found.sentence.endswith("stays where it is: no slow core takes it")


@pytest.mark.parametrize(
    ("cores", "node", "expected", "said"),
    [
        (HYBRID, 0, (0, 1, 2, 3), LOSS),
        (NODES, None, (0, 1, 2, 3), LOSS),
        (NODES, 1, (1, 3), f"{LOSS}; its device is on node 1"),
        (APART, 0, (0, 1, 2, 3), LOSS),
        (APART, 1, (0, 1, 2, 3), f"{LOSS}; its device is on node 1, which has no fast cores"),
    ],
)
def test_one_on_slow_cores_goes_to_the_fast_ones_of_its_devices_node(
    cores: HostCores, node: int | None, expected: tuple[int, ...], said: str
) -> None:
    found = advised(cores, (4, 6), node)
    assert found.cpus == expected and found.reason == said
    assert "goes to fast cores (" in found.sentence


def test_cores_that_are_neither_stay_out_of_it() -> None:
    some = HostCores(
        (Cores("fast", 100.0, frozenset({0, 1})), Cores("slow", 50.0, frozenset({2}))),
        dict.fromkeys(range(4), 0),
        "named",
    )
    assert not advised(some, (3,)).moves
    assert advised(some, (2, 3)).cpus == (0, 1)
    assert advised(some, (1, 2, 3, 900)).cpus == (1,), "nor does one that is off"


def test_what_cannot_be_moved_stays() -> None:
    managed = advised(movable=False)
    assert not managed.moves and "does not let anybody move it" in managed.sentence
    supposed = advised(ALIKE)
    assert not supposed.moves and "only supposed" in supposed.sentence


INTERRUPTS = st.builds(
    HostInterrupt,
    number=st.integers(0, 4000),
    name=st.text(max_size=8),
    guest=st.none() | st.text(max_size=4),
    cpus=st.sets(st.integers(0, 9), min_size=1).map(lambda cpus: tuple(sorted(cpus))),
    node=st.none() | st.integers(0, 2),
    movable=st.booleans(),
)


@given(st.lists(INTERRUPTS, max_size=6), st.sampled_from([HYBRID, PAIR, ALIKE, NODES, APART]))
def test_no_plan_has_an_interrupt_on_slow_cores(
    some: list[HostInterrupt], cores: HostCores
) -> None:
    found = interrupt_advice(some, cores)
    assert [each.interrupt for each in found] == some
    assert len(planned(found)) == sum(each.moves for each in found)
    for each in found:
        slow = cores.slower.intersection(each.interrupt.cpus)
        assert each.moves == bool(each.interrupt.movable and slow)
        if each.moves:
            assert each.cpus and set(each.cpus) <= cores.classes[0].cpus
