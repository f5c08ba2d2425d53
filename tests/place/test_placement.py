"""The planner: what it moves, what it never moves, and what it says of each thread."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtax.place.placement import Constraints, CoreClass, Place, PlacementPlan, Thread, plan

P, E = Place("P", 0), Place("E", 0)
FAST = CoreClass("P", 1.0, {0: 4})
SLOW = CoreClass("E", 0.5, {0: 4})
CLASSES = (FAST, SLOW)
VHOST = Thread("vhost-1", "vhost", "web", 0.3, (0.02, 0.06), memory_node=0)
VCPU = Thread("CPU 0/KVM", "vcpu", "web", 0.9, None, memory_node=0)


def of(*threads: Thread, **limits: object) -> PlacementPlan:
    return plan(threads, CLASSES, Constraints(**limits))  # type: ignore[arg-type]


def changed(thread: Thread, **fields: object) -> Thread:
    known = {name: getattr(thread, name) for name in Thread.__dataclass_fields__}
    return Thread(**(known | fields))


def test_an_insensitive_thread_goes_to_slow_cores_and_a_vcpu_stays() -> None:
    found = of(VHOST, VCPU)
    assert found.places == {"vhost-1": E, "CPU 0/KVM": P}
    assert found.moved == {"vhost-1"}
    assert found.loss_percent["web"] == pytest.approx(3.0)
    assert found.explain("vhost-1") == (
        "vhost-1 goes to E cores of node 0: web loses at most 3.0 % by it"
    )
    assert "stays on P cores of node 0: it runs the guest itself" in found.explain("CPU 0/KVM")


def test_the_upper_end_of_the_interval_is_what_the_budget_holds() -> None:
    found = of(changed(VHOST, elasticity=(0.0, 0.11)))
    assert not found.moved
    assert "web may lose 5.5 % on E cores of node 0, and 5.0 % is left" in found.explain("vhost-1")
    assert of(changed(VHOST, elasticity=(0.0, 0.11)), loss_by_guest={"web": 6.0}).moved


def test_the_threads_of_a_guest_share_its_budget() -> None:
    both = [changed(VHOST, id=f"vhost-{number}") for number in (1, 2)]
    assert len(of(*both).moved) == 1
    other = changed(VHOST, id="vhost-2", guest="database")
    assert len(of(VHOST, other).moved) == 2


def test_a_thread_that_a_slow_core_cannot_keep_up_with_stays() -> None:
    """0.8 of a fast core on one of half its speed: at least 37.5 % is lost."""
    found = of(changed(VHOST, cpu=0.8, elasticity=(0.0, 0.0)))
    assert not found.moved and "may lose 37.5 %" in found.explain("vhost-1")


def test_what_is_not_known_is_not_moved_from_anywhere() -> None:
    for now in (None, P, E):
        found = of(changed(VHOST, elasticity=None, now=now))
        assert not found.moved and found.places["vhost-1"] == (now or P)
        assert "not known" in found.explain("vhost-1")


def test_vcpus_may_move_when_allowed() -> None:
    known = changed(VCPU, cpu=0.1, elasticity=(0.0, 0.05))
    assert not of(known).moved and of(known, vcpus_may_slow=True).moved


def test_a_thread_stays_on_the_node_of_its_memory() -> None:
    classes = (
        CoreClass("P", 1.0, {0: 2, 1: 2}),
        CoreClass("E", 0.5, {1: 4}),
    )
    near = changed(VHOST, memory_node=0)
    far = changed(VHOST, id="vhost-2", memory_node=1)
    away = changed(VHOST, id="vhost-4", memory_node=1, now=Place("P", 0))
    lost = changed(VHOST, id="vhost-3", guest="x", memory_node=None, now=Place("P", 0))
    found = plan([near, far, lost, away], classes, Constraints(loss_percent=50))
    assert found.places == {
        "vhost-1": Place("P", 0), "vhost-2": Place("E", 1), "vhost-3": Place("P", 0),
        "vhost-4": Place("E", 1),
    }  # fmt: skip
    assert "its node has no slower cores" in found.explain("vhost-1")
    assert found.explain("vhost-1").endswith("its guest's memory is on node 0")
    assert found.explain("vhost-3").endswith("its node has no slower cores")


def test_a_thread_stays_within_its_cpuset() -> None:
    barred = changed(VHOST, allowed=frozenset({P}))
    found = of(barred)
    assert not found.moved and found.places["vhost-1"] == P
    assert "its cpuset has none of the cores of its node" in found.explain("vhost-1")
    assert of(changed(VHOST, allowed=frozenset({P, E}))).moved
    # Threads outside of the plan help no guest that loses too much.
    slow = changed(VHOST, elasticity=(0.4, 0.6), now=E, allowed=frozenset({E}))
    assert of(slow).places["vhost-1"] == E and of(slow).notes


def test_the_headroom_stays_free() -> None:
    many = [changed(VHOST, id=f"vhost-{n}", guest=f"guest {n}") for n in range(8)]
    # 0.6 of a slow core each: 3.6 cores hold six, all four hold six too, eight take more.
    assert len(of(*many).moved) == 6
    assert len(of(*many, headroom=0.5).moved) == 3
    stays = next(each for each in many if each.id not in of(*many).moved)
    assert "have no room" in of(*many).explain(stays.id)


def test_a_guest_that_loses_too_much_already_is_helped() -> None:
    slow = changed(VHOST, elasticity=(0.4, 0.6), now=E)
    found = of(slow)
    assert found.places["vhost-1"] == P and found.loss_percent["web"] == 0
    assert "at most 0.0 % by it instead of 30.0 %" in found.explain("vhost-1")


def test_a_budget_that_cannot_be_kept_is_said() -> None:
    """The guest's vCPU cannot keep up where it is, and vCPUs are not moved."""
    found = of(changed(VCPU, now=E))
    (note,) = found.notes
    assert note.startswith("web may lose 44.4 % with this plan, more than the budget of 5 %")


def test_a_host_that_is_overcommitted_is_not_made_worse() -> None:
    vcpus = [changed(VCPU, id=f"CPU {n}/KVM", cpu=1.0) for n in range(9)]
    found = of(*vcpus, VHOST)
    assert found.moved == {"vhost-1"}
    assert found.notes == ("P cores of node 0 are fuller than the headroom allows",)


def test_an_idle_thread_is_left_alone() -> None:
    assert not of(changed(VHOST, cpu=0.0)).moved


def test_no_threads_are_a_plan() -> None:
    assert of().places == {}


places = st.sampled_from([None, P, E])
some = st.builds(
    lambda role, guest, cpu, low, width, now, allowed: Thread(
        "", role, guest, cpu, None if low is None else (low, low + width), 0, now, allowed
    ),
    st.sampled_from(["vhost", "vcpu", "main-loop"]),
    st.sampled_from([None, "a", "b"]),
    st.floats(0, 1),
    st.none() | st.floats(-0.5, 1),
    st.floats(0, 1),
    places,
    st.none() | st.frozensets(st.sampled_from([P, E])),
)


@given(st.lists(some, max_size=12), st.floats(0, 30), st.floats(0, 0.5))
@settings(max_examples=40, deadline=None)
def test_any_plan_keeps_to_its_limits(
    threads: list[Thread], budget: float, headroom: float
) -> None:
    numbered = [changed(each, id=f"thread {n}") for n, each in enumerate(threads)]
    found = of(*numbered, loss_percent=budget, headroom=headroom)
    used = {P: 0.0, E: 0.0}
    before = {P: 0.0, E: 0.0}
    for each in numbered:
        start, place = each.now or P, found.places[each.id]
        used[place] += min(each.cpu / (1.0 if place == P else 0.5), 1.0)
        before[start] += min(each.cpu / (1.0 if start == P else 0.5), 1.0)
        if each.elasticity is None or each.role == "vcpu":
            assert place == start
        assert place == start or each.allowed is None or place in each.allowed
        assert found.explain(each.id)
    for place, cores in used.items():
        assert cores <= max(4 * (1 - headroom), before[place]) + 1e-6
    over = [guest for guest, loss in found.loss_percent.items() if loss > budget + 1e-6]
    assert len([note for note in found.notes if "budget" in note]) == len(over)


def test_the_busiest_thread_goes_first() -> None:
    """3.6 slow cores have room for the five of eight threads that do most."""
    many = [
        changed(VHOST, id=f"vhost-{n}", guest=f"guest {n}", cpu=0.26 + n / 100) for n in range(8)
    ]
    assert of(*many).moved == {f"vhost-{n}" for n in range(3, 8)}
