"""Advice on the threads of a host, and the plan that goes with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from place_hosts import ALIKE, HYBRID, PAIR, advice, predictor, threads
from vtax.place.host_advice import Advised, HostAdvice, HostThread
from vtax.place.host_cores import Cores, HostCores
from vtax.place.sensitivity import Sensitivity


def by_tid(found: HostAdvice, tid: int) -> Advised:
    return next(each for each in found.threads if each.thread.tid == tid)


def test_service_threads_of_kvm_guests_go_and_guests_stay() -> None:
    found = advice(threads("kvm_vhost"), by=predictor(), loss_percent=20.0)
    vhost, vcpu, softirq = (by_tid(found, tid) for tid in (3112, 3110, 18))
    assert vhost.advice.advice == "slow" and vhost.cpus == (4, 5, 6, 7)
    assert vhost.advice.expected_loss_percent == pytest.approx(2.5, abs=0.1)
    assert vcpu.advice.advice == "fast" and vcpu.cpus == vcpu.thread.cpus == (0, 1, 2, 3)
    assert by_tid(found, 2110).cpus == (0, 1, 2, 3), "kept from the slow cores that it may use"
    assert softirq.advice.advice == "unknown" and not softirq.moves
    assert "serves all guests" in softirq.advice.reason
    assert {each.tid for each in found.planned} == {2101, 2107, 2110, 2111, 2112, 3101, 3112}


def test_an_idle_thread_may_go_and_stays() -> None:
    idle = by_tid(advice(threads("kvm_vhost"), by=predictor(), loss_percent=20.0), 2105)
    assert idle.advice.advice == "slow" and not idle.moves
    assert "may go to slow cores" in idle.sentence


def test_nothing_is_known_without_a_predictor() -> None:
    found = advice(threads("kvm_vhost"))
    assert {each.advice.advice for each in found.threads if each.thread.service} == {"unknown"}
    assert not any(each.moves for each in found.threads if each.thread.service)
    assert "no measurement predicts" in by_tid(found, 3112).advice.reason


def test_a_sensitivity_is_supposed_of_every_domain() -> None:
    by = Sensitivity(0.05, 0.04, 0.06, "measured in uml:net=vde with http")
    found = advice(threads("kvm_vhost"), by=by)
    assert {each.advice.advice for each in found.threads if each.thread.domain} == {"slow"}
    assert "measured in uml:net=vde with http" in by_tid(found, 3112).advice.reason
    assert by_tid(found, 18).advice.advice == by_tid(found, 3120).advice.advice == "unknown"


def test_what_is_on_slow_cores_already_is_counted_as_on_fast_ones() -> None:
    """Otherwise a plan in force would change the next advice."""
    by = predictor()
    before = by_tid(advice(threads("uml_vde"), PAIR, by), 23741)
    slowed = tuple(
        replace(each, cpus=(1,), last_cpu=1, cpu=(each.cpu or 0.0) * 2) if each.tid == 23741
        else each
        for each in threads("uml_vde")
    )  # fmt: skip
    after = by_tid(advice(slowed, PAIR, by), 23741)
    assert after.advice == before.advice and not after.moves
    assert after.thread.cpu == before.thread.cpu


def test_nobody_loses_more_than_everything() -> None:
    by = Sensitivity(0.5, -3.0, 4.1, "measured")
    vhost = by_tid(advice(threads("kvm_vhost"), by=by), 3112).advice
    assert (vhost.expected_loss_percent, vhost.low, vhost.high) == (25.0, -150.0, 100.0)
    assert vhost.advice == "fast" and "may lose 100.0 %" in vhost.reason


def test_the_predictor_is_asked_about_the_whole_domain() -> None:
    """The threads of web take 20 % together, none of them more than 11 %."""
    found = advice(threads("kvm_vhost"), by=predictor(most=15.0))
    web = by_tid(found, 2112)
    assert web.advice.advice == "unknown"
    assert web.advice.reason == "the service CPU of guest web is 20, and 0 to 15 was measured"


def test_combined_usage_takes_the_use_of_the_link() -> None:
    by = predictor("combined usage")
    without = by_tid(advice(threads("uml_vde"), PAIR, by), 23741)
    assert without.advice.reason == "the combined usage of process 23741 is not known"
    found = advice(threads("uml_vde"), PAIR, by, {"process 23741": 60.0})
    assert by_tid(found, 23741).advice.advice == "slow"
    assert "its combined usage of 97" in by_tid(found, 23741).advice.reason


def test_a_guest_may_have_a_budget_of_its_own() -> None:
    found = advice(
        threads("kvm_vhost"), by=predictor(), loss_percent=20.0, loss_by_guest={"db": 1.0}
    )
    assert by_tid(found, 3112).advice.advice == "fast"
    assert "more than 1 %" in by_tid(found, 3112).advice.reason
    assert by_tid(found, 2112).advice.advice == "slow"


def test_a_domain_goes_together_or_not_at_all() -> None:
    """What was measured is the loss of the whole domain: some of it costs no more."""
    fits = advice(threads("kvm_vhost"), by=predictor(), loss_percent=3.0)
    db = [by_tid(fits, tid) for tid in (3101, 3112)]
    assert [each.advice.advice for each in db] == ["slow", "slow"]
    assert all(each.advice.high is not None and each.advice.high < 3.0 for each in db)
    too_much = advice(threads("kvm_vhost"), by=predictor(), loss_percent=2.0)
    assert not too_much.plan.moved
    assert by_tid(too_much, 3112).advice.advice == "fast"


def test_a_thread_that_finds_no_room_stays_with_the_reason() -> None:
    small = HostCores(
        (HYBRID.classes[0], Cores("slow", 10.0, frozenset({4}))), HYBRID.node, "named"
    )
    found = advice(
        tuple(replace(each, cpu=0.09) for each in threads("kvm_vhost")),
        small, predictor(), loss_percent=80.0,
    )  # fmt: skip
    service = [each.advice for each in found.threads if each.thread.domain]
    assert sum(each.advice == "slow" for each in service) == 1
    assert any("no room" in each.reason for each in service if each.advice == "fast")


def test_a_thread_that_a_slow_core_cannot_keep_up_with_is_fast() -> None:
    busy = [replace(each, cpu=0.8) for each in threads("uml_vde") if each.role == "switch"]
    found = advice(tuple(busy), PAIR, predictor())
    assert found.threads[0].advice.advice == "fast"
    assert found.threads[0].advice.reason == (
        "it needs 80 % of a fast core, and a slow one has 50 %"
    )


def test_supposed_cores_give_advice_and_no_plan() -> None:
    found = advice(threads("kvm_vhost"), ALIKE, predictor(), loss_percent=20.0)
    assert by_tid(found, 3112).advice.advice == "slow"
    assert not found.planned


def test_a_host_without_guests() -> None:
    found = advice(threads("nothing"), PAIR, predictor())
    assert found.threads == () and found.planned == ()


NODES = HostCores(HYBRID.classes, {cpu: cpu % 2 for cpu in range(8)}, "named by --fast and --slow")
"""Each node has cores of both classes."""


def on_node(node: int | None, **changes: Any) -> tuple[HostThread, ...]:
    return tuple(
        replace(each, memory_node=node if each.guest == "web" else None, **changes)
        for each in threads("kvm_vhost")
    )


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
def test_a_thread_goes_to_the_node_of_its_guests_memory(node: int, last: int) -> None:
    found = advice(on_node(node, last_cpu=last), NODES, predictor(), loss_percent=20.0)
    web = by_tid(found, 2112)
    assert web.cpus == (4 + node, 6 + node)
    assert web.sentence.endswith(f"; its guest's memory is on node {node}")
    db = by_tid(found, 3112)
    assert db.cpus == (4 + last, 6 + last), "not known: on its own node"
    assert "memory" not in db.sentence


def test_memory_is_not_told_where_it_decides_nothing() -> None:
    found = advice(on_node(0), HYBRID, predictor(), loss_percent=20.0)
    assert by_tid(found, 2112).cpus == (4, 5, 6, 7)
    assert not [each for each in found.threads if "memory" in each.sentence]


def test_memory_on_a_node_without_slow_cores_keeps_a_thread() -> None:
    cores = HostCores(HYBRID.classes, {cpu: cpu // 4 for cpu in range(8)}, "named")
    found = advice(on_node(0, last_cpu=0), cores, predictor(), loss_percent=20.0)
    web = by_tid(found, 2112)
    assert web.advice.advice == "fast" and web.core_class == "fast"
    assert "its guest's memory is on node 0" in web.sentence
    assert web.cpus == (0, 1, 2, 3), "kept from the slow cores of the other node"


def with_cpuset(*cpus: int) -> tuple[HostThread, ...]:
    return tuple(replace(each, cpuset=cpus) for each in threads("kvm_vhost"))


def test_the_cpus_of_a_plan_are_in_the_cpuset() -> None:
    quiet = tuple(
        replace(each, cpu=0.1) if each.tid == 2111 else each for each in with_cpuset(0, 1, 5, 6, 9)
    )
    found = advice(quiet, by=predictor(), loss_percent=20.0)
    assert by_tid(found, 3112).cpus == (5, 6)
    assert by_tid(found, 2110).cpus == (0, 1), "a vCPU that might run on all"


@pytest.mark.parametrize("tid", [3112, 2105])
def test_a_cpuset_without_slow_cores_is_said(tid: int) -> None:
    """This holds also for an idle thread, which would not move anyway."""
    found = by_tid(advice(with_cpuset(0, 1, 2), by=predictor(), loss_percent=20.0), tid)
    assert found.advice.advice == "fast"
    assert found.advice.reason == "its cpuset (0-2) has no slower cores"
    assert found.advice.reason in found.sentence and set(found.cpus) == {0, 1, 2}


def test_a_cpuset_with_slow_cores_of_another_node_only() -> None:
    found = advice(
        tuple(replace(each, memory_node=0, cpuset=(0, 2, 5, 7)) for each in threads("kvm_vhost")),
        NODES, predictor(), loss_percent=20.0,
    )  # fmt: skip
    vhost = by_tid(found, 3112)
    assert vhost.advice.advice == "fast" and vhost.core_class == "fast"
    assert "its cpuset has none of the cores of its node" in vhost.sentence


def busy(vcpus: int, on: int) -> tuple[HostThread, ...]:
    """Busy vCPUs, each of which may run on all CPUs that are `on`."""
    vcpu = next(each for each in threads("kvm_vhost") if each.tid == 2110)
    every = tuple(range(on))
    return tuple(
        replace(vcpu, tid=100 + n, cpu=0.97, run_delay=0.02, cpus=every) for n in range(vcpus)
    )


def host(*kinds: int, siblings: int = 0) -> HostCores:
    """A kind for each count of CPUs; those of the first kind are pairs of siblings."""
    first, classes = 0, []
    for number, count in enumerate(kinds):
        cpus = frozenset(range(first, first + count))
        classes.append(Cores(f"kind-{number}", 100.0 / (number + 1), cpus))
        first += count
    pairs = tuple(frozenset({2 * n, 2 * n + 1}) for n in range(siblings))
    return HostCores(tuple(classes), dict.fromkeys(range(first), 0), "made", pairs, 0.15)


@pytest.mark.parametrize(
    ("vcpus", "cores", "to"),
    [
        (8, host(16, 16), range(16)),
        (8, host(2, 8), range(10)),  # two fast cores are not for eight busy vCPUs
        (2, host(2, 8), range(2)),
        (3, host(1, 3, 4), range(4)),  # big and mid, and no little one
        (5, host(1, 3, 4), range(8)),
        (8, host(8, 8), range(8)),
        (6, host(8, 8, siblings=4), range(16)),  # four cores with two threads are not eight
        (4, host(8, 8, siblings=4), range(8)),
    ],
)
def test_vcpus_are_kept_to_fast_cores_while_these_have_room(
    vcpus: int, cores: HostCores, to: range
) -> None:
    found = advice(busy(vcpus, len(cores.node)), cores)
    assert {each.cpus for each in found.threads} == {tuple(to)}
    every = len(to) == len(cores.node)
    assert bool(found.planned) is not every
    crowded = len(to) > len(cores.classes[0].cpus)
    assert all(("work would run on CPU" in each.sentence) is crowded for each in found.threads)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=3), st.integers(1, 20), st.integers(0, 4))
@settings(deadline=None, max_examples=60)
def test_no_plan_crowds_fast_cores_while_slower_ones_are_left(
    kinds: list[int], vcpus: int, siblings: int
) -> None:
    cores = host(*kinds, 4, siblings=min(siblings, kinds[0] // 2))
    found = advice(busy(vcpus, len(cores.node)), cores)
    (to,) = {each.cpus for each in found.threads}
    further = sum(1 for pair in cores.siblings if pair <= set(to))
    assert len(to) == len(cores.node) or 0.99 * vcpus <= 1.05 * (len(to) - 0.85 * further)


def test_a_cpuset_says_nothing_of_supposed_cores() -> None:
    found = advice(with_cpuset(0, 1), ALIKE, predictor(), loss_percent=20.0)
    assert by_tid(found, 3112).advice.advice == "slow" and not found.planned


def test_a_thread_whose_cpus_are_off_stays() -> None:
    pinned = tuple(
        replace(each, cpus=(8,), last_cpu=8, memory_node=0) if each.tid == 3112 else each
        for each in threads("kvm_vhost")
    )
    for cores in (HYBRID, ALIKE, NODES):
        found = advice(pinned, cores, predictor(), loss_percent=20.0)
        vhost = by_tid(found, 3112)
        assert vhost.advice.advice == "unknown" and not vhost.moves
        assert vhost.advice.reason == "the CPUs that it may run on (8) are off or isolated"
        assert vhost.thread.id not in found.plan.moved


def test_a_cpu_that_is_off_does_not_hide_where_a_thread_is() -> None:
    """The thread may run on 4 and 8; 8 is off, so the thread is on slow cores."""
    kept = replace(next(each for each in threads("kvm_vhost") if each.tid == 3112), cpus=(4, 8))
    assert by_tid(advice((kept,), by=predictor(), loss_percent=20.0), 3112).core_class == "slow"


ROLES = ("vcpu", "main-loop", "vhost", "softirq", "guest", "unknown", "switch")
THREADS = st.builds(
    HostThread,
    pid=st.just(1),
    tid=st.just(1),
    start_ticks=st.just(7),
    name=st.text(max_size=8),
    role=st.sampled_from(ROLES),
    service=st.booleans(),
    guest=st.sampled_from([None, "a", "b"]),
    cpu=st.none() | st.floats(0, 1.2),
    run_delay=st.none() | st.floats(0, 1),
    cpus=st.sets(st.integers(0, 9)).map(lambda cpus: tuple(sorted(cpus))),
    last_cpu=st.integers(0, 9),
    cpuset=st.sets(st.integers(0, 9)).map(lambda cpus: tuple(sorted(cpus))),
    memory_node=st.sampled_from([None, 0, 1, 2]),
)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(THREADS, max_size=6),
    st.sampled_from([HYBRID, PAIR, ALIKE, NODES]),
    st.none() | st.floats(-0.1, 1.0).map(lambda value: predictor(elasticity=value)),
)
def test_a_plan_has_no_empty_set_leaves_no_cpuset_and_moves_nothing_unknown(
    some: list[HostThread], cores: HostCores, by: object
) -> None:
    found = advice(
        tuple(replace(each, pid=index + 1, tid=index + 1) for index, each in enumerate(some)),
        cores,
        by,  # type: ignore[arg-type]
    )
    for each in found.threads:
        assert not each.moves or (each.cpus and set(each.cpus) <= set(range(8)))
        if each.moves and each.thread.cpuset:
            assert set(each.cpus) <= set(each.thread.cpuset)
        known = each.thread.memory_node is not None and not cores.supposed
        if each.thread.id in found.plan.moved and known:
            assert {cores.node[cpu] for cpu in each.cpus} <= {each.thread.memory_node}
        if each.advice.advice == "unknown":
            assert not each.moves
        if each.thread.role in ("vcpu", "guest"):
            assert each.advice.advice == "fast"
            assert not each.moves or set(each.cpus) < set(each.thread.cpus)
