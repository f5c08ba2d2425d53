"""From what was seen of clocks to a report card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtax.analysis.audit import Card, Check, Observed, Timed, Verdict, card
from vtax.clocks import Skew

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


def check(found: Card, name: str) -> Check:
    (own,) = [each for each in found.checks if each.name == name]
    return own


def test_good_clocks_pass() -> None:
    found = card("native", SEEN)
    assert found.verdict is Verdict.PASS
    assert found.shortest_duration_s == pytest.approx((2 * 20 + 25) * 1e-9 * 100)
    assert check(found, "host-rate").value == pytest.approx(0.01)
    assert all(each.remedy is None for each in found.checks)


@pytest.mark.parametrize(
    ("path", "value", "name", "verdict"),
    [
        ("clocks.CLOCK_MONOTONIC.smallest_step", 4_000_000, "clock-step", Verdict.FAIL),
        ("clocks.CLOCK_MONOTONIC.cost_ns", {"median": 15_000.0}, "clock-cost", Verdict.FAIL),
        ("clocks.CLOCK_MONOTONIC.cost_ns", {"median": 900.0}, "clock-cost", Verdict.WARN),
        ("clocks.CLOCK_MONOTONIC.backward_across_cpus.steps", 1, "clock-backward", Verdict.FAIL),
        ("clocks.getrusage.smallest_step", 10_000_000, "cpu-clock-step", Verdict.WARN),
        ("clocks.getrusage", None, "cpu-clock-step", Verdict.UNKNOWN),
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
