"""The report card of a machine's clocks, from what was seen of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import order_data
from vtax.audit.analysis import Beside, Interruption, Observed, Timed, card
from vtax.audit.order_drift import order_drift
from vtax.core.clocks import Skew
from vtax.core.formats.model import AuditCard, AuditCheck
from vtax.core.formats.model import AuditVerdict as Verdict

GOOD: dict[str, Any] = {
    "clocks": {
        "CLOCK_MONOTONIC": {
            "smallest_step": 20,
            "cost_ns": {"min": 24.0, "median": 25.0, "p99": 40.0},
            "backward_same_cpu": {"steps": 0},
            "backward_across_cpus": {"steps": 0},
        },
        "getrusage": {"smallest_step": 1000},
    },
    "timers": {"cpus": [{"resolution_ns": 1}, {"resolution_ns": 1}]},
    "rtc": {"against_monotonic_ppm": 20.0, "within_ppm": 300.0},
    "steal": {"present": True},
    "noise": {"lost_share": 0.002},
}
SKEWS = ((100.0, Skew(5_000_000, 20_000)), (110.0, Skew(5_000_100, 20_000)))
TIMED = tuple(Timed(asked, asked * 1.01, asked) for asked in (0.01, 0.1) for _ in range(5))
SEEN = Observed(GOOD, SKEWS, TIMED)


def changed(path: str, value: object) -> Observed:
    """What was seen, with one field replaced."""

    def put(tree: Mapping[str, Any], keys: list[str]) -> dict[str, Any]:
        first, *rest = keys
        return {**tree, first: put(tree[first], rest) if rest else value}

    return replace(SEEN, clocks=put(GOOD, path.split(".")))


def check(found: AuditCard, name: str) -> AuditCheck:
    (own,) = [each for each in found.checks if each.name == name]
    return own


def test_good_clocks_pass() -> None:
    found = card("native", SEEN)
    assert found.verdict is Verdict.PASS
    assert found.shortest_duration_s == pytest.approx((2 * 20 + 25) * 1e-9 * 100)
    assert check(found, "host-rate").value == pytest.approx(0.01)
    assert all(each.remedy is None for each in found.checks)


def test_an_emulated_clock_is_not_held_against_the_hosts() -> None:
    found = card("qemu-arm64", replace(SEEN, skews=None))
    assert found.verdict is Verdict.PASS
    assert not {"host-rate", "rtc-rate"} & {each.name for each in found.checks}


@pytest.mark.parametrize("path", ["timers", "timers.cpus", "rtc", "rtc.within_ppm"])
@pytest.mark.parametrize("value", [None, {}, True, "x"])
def test_a_machine_without_real_time_clock_or_timer_list_has_no_such_check(
    path: str, value: object
) -> None:
    found = card("x", changed(path, value))
    names = {each.name for each in found.checks}
    assert found.verdict is Verdict.PASS
    assert ("timer-step" in names, "rtc-rate" in names) == ("rtc" in path, "timers" in path)


@pytest.mark.parametrize(
    ("path", "value", "name", "verdict"),
    [
        ("clocks.CLOCK_MONOTONIC.smallest_step", 4_000_000, "clock-step", Verdict.FAIL),
        ("clocks.CLOCK_MONOTONIC.cost_ns", {"median": 15_000.0}, "clock-cost", Verdict.FAIL),
        ("clocks.CLOCK_MONOTONIC.cost_ns", {"median": 900.0}, "clock-cost", Verdict.WARN),
        ("clocks.CLOCK_MONOTONIC.backward_across_cpus.steps", 1, "clock-backward", Verdict.FAIL),
        ("clocks.getrusage.smallest_step", 10_000_000, "cpu-clock-step", Verdict.WARN),
        ("clocks.getrusage", None, "cpu-clock-step", Verdict.UNKNOWN),
        ("timers.cpus", [{"resolution_ns": 1}, {"resolution_ns": 4e6}], "timer-step", Verdict.WARN),
        ("timers.cpus", [{"resolution_ns": 2e7}], "timer-step", Verdict.FAIL),
        ("rtc.against_monotonic_ppm", -900.0, "rtc-rate", Verdict.WARN),
        ("rtc.against_monotonic_ppm", 6000.0, "rtc-rate", Verdict.FAIL),
        ("rtc.within_ppm", 6000.0, "rtc-rate", Verdict.UNKNOWN),
        ("steal.present", False, "steal-unknown", Verdict.WARN),
        ("steal.present", None, "steal-unknown", Verdict.UNKNOWN),
        ("noise.lost_share", 0.5, "noise", Verdict.FAIL),
    ],
)
def test_what_is_wrong_is_said_with_a_remedy(
    path: str, value: object, name: str, verdict: Verdict
) -> None:
    found = card("x", changed(path, value))
    assert check(found, name).verdict is found.verdict is verdict
    assert check(found, name).remedy


@pytest.mark.parametrize(
    ("ppm", "within_ns", "verdict"),
    [
        (0, 20_000, Verdict.PASS),
        (400, 20_000, Verdict.PASS),
        (-800, 20_000, Verdict.WARN),
        (10_000, 20_000, Verdict.FAIL),  # 1 % fast
        (2_000, 10_000_000, Verdict.PASS),  # within its bound
        (0, 200_000_000, Verdict.UNKNOWN),
    ],
)
def test_the_rate_is_judged_by_what_is_sure(ppm: int, within_ns: int, verdict: Verdict) -> None:
    skews = ((0.0, Skew(0, within_ns)), (10.0, Skew(ppm * 10_000, within_ns)))
    found = check(card("x", replace(SEEN, skews=skews)), "host-rate")
    assert found.verdict is verdict
    assert found.value == pytest.approx(ppm)
    assert found.low is not None and found.high is not None
    assert found.high - found.low == pytest.approx(4 * within_ns / 10_000)


def test_a_slow_clock_is_slow_against_the_real_time_clock() -> None:
    """The real-time clock goes 2,000 ppm faster, so the machine's clock is that much slower."""
    found = check(card("x", changed("rtc.against_monotonic_ppm", 2000.0)), "rtc-rate")
    assert (found.value, found.low, found.high) == (-2000, -2300, -1700)


def test_a_stolen_cpu_is_seen_by_cpu_time_against_wall_time() -> None:
    half = tuple(Timed(0.1, 0.2, 0.1) for _ in range(5))
    assert check(card("x", replace(SEEN, timed=half)), "cpu-against-wall").verdict is Verdict.FAIL


def test_inversion_is_beyond_both_clocks_steps() -> None:
    tick = changed("clocks.getrusage.smallest_step", 10_000_000)
    within = replace(tick, timed=(*TIMED, Timed(0.01, 0.010, 0.019)))
    assert check(card("x", within), "timer-inversion").value == 0
    beyond = check(card("x", replace(tick, timed=(Timed(0.1, 0.1, 0.12),))), "timer-inversion")
    assert beyond.verdict is Verdict.FAIL
    assert (beyond.value, beyond.high) == (100, 100)
    assert beyond.low == pytest.approx(2.5)


def test_nothing_known_is_unknown_and_not_a_pass() -> None:
    found = card("x", Observed({}, (), ()))
    assert found.verdict is Verdict.UNKNOWN
    assert {each.verdict for each in found.checks} == {Verdict.UNKNOWN}
    assert found.shortest_duration_s is None


def beside(lost: float, cpu_s: float) -> Observed:
    own = Beside({"noise": {"lost_share": lost}}, [Timed(1.0, 2.0, cpu_s)] * 3)
    return replace(SEEN, beside=own)


@pytest.mark.parametrize(
    ("lost", "cpu_s", "verdicts", "unseen"),
    [
        (0.5, 1.0, (Verdict.PASS, Verdict.PASS), 0),  # half of the time, and CPU time says so
        (0.5, 2.0, (Verdict.PASS, Verdict.FAIL), 100),  # CPU time knows nothing of it
        (0.6, 1.0, (Verdict.WARN, Verdict.WARN), 100 / 6),
        (0.8, 0.4, (Verdict.FAIL, Verdict.PASS), 0),
    ],
)
def test_time_taken_by_a_competitor_is_to_be_seen(
    lost: float, cpu_s: float, verdicts: tuple[Verdict, Verdict], unseen: float
) -> None:
    found = card("x", beside(lost, cpu_s))
    noise, stolen = (check(found, name) for name in ("noise-beside-guest", "stolen-unseen"))
    assert (noise.verdict, stolen.verdict) == verdicts
    assert noise.value == pytest.approx(100 * lost)
    assert stolen.value == pytest.approx(unseen)


def test_nothing_lost_to_a_competitor_shows_nothing() -> None:
    assert check(card("x", beside(0.0, 2.0)), "stolen-unseen").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("lost_ns", "within_ns", "verdict"),
    [
        (0, 1_000_000, Verdict.PASS),
        (-1_000_000_000, 1_000_000, Verdict.WARN),  # it stood still in a pause of a second
        (-5_000_000_000, 1_000_000, Verdict.FAIL),
        (50_000_000, 30_000_000, Verdict.PASS),  # both bounds together are wider
    ],
)
def test_time_lost_over_a_pause(lost_ns: int, within_ns: int, verdict: Verdict) -> None:
    pause = Interruption("pause", Skew(7, within_ns), Skew(7 + lost_ns, within_ns))
    found = check(card("x", replace(SEEN, interruptions=(pause,))), "time-over-pause")
    assert found.verdict is verdict
    assert found.value == pytest.approx(lost_ns / 1e6)
    assert found.low == pytest.approx((lost_ns - 2 * within_ns) / 1e6)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(
    st.sampled_from(
        ["clocks", "clocks.CLOCK_MONOTONIC", "clocks.CLOCK_MONOTONIC.cost_ns", "steal", "noise"]
    ),
    json_values,
)
def test_what_a_guest_says_of_itself_cannot_break_the_card(path: str, value: object) -> None:
    assert card("x", changed(path, value)).checks


@pytest.mark.parametrize(
    ("guest", "machine", "noise", "verdict", "remedy"),
    [
        (0.0, 0.0, 0.003, Verdict.PASS, None),
        (0.1, 0.0, 0.003, Verdict.WARN, "--reboot each"),
        (0.3, 0.0, 0.003, Verdict.FAIL, "--reboot each"),
        (0.0, 0.4, 0.003, Verdict.FAIL, "a reboot does not help"),
        (0.0, 0.0, 0.3, Verdict.UNKNOWN, "a reboot does not help"),
    ],
)
def test_order_drift_names_whose_it_is(
    guest: float, machine: float, noise: float, verdict: Verdict, remedy: str | None
) -> None:
    data = order_data.observations(guest=guest, machine=machine, noise=noise)
    found = check(card("x", SEEN, order_drift(data, "wall_s", reboots=True)), "order-drift")
    assert found.verdict is verdict
    assert found.remedy is None if remedy is None else remedy in (found.remedy or "")
    assert found.high is not None and (verdict is Verdict.UNKNOWN) == (found.value is None)


def test_order_drift_that_was_not_measured_enough_is_unknown() -> None:
    drift = order_drift(order_data.observations(rounds=1), "wall_s", reboots=True)
    found = check(card("x", SEEN, drift), "order-drift")
    assert (found.verdict, found.value, found.high) == (Verdict.UNKNOWN, None, None)
