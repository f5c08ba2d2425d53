"""The offset of another machine's clock: the bound always holds."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tested_machines import REAL
from vtax.core.clocks import RoundTrip, Skew, estimate, measure, time_in
from vtax.core.errors import VtaxError
from vtax.environments.base import Environment
from vtax.environments.machine import Machine

DELAY = st.integers(0, 10**9)


@given(
    offset=st.integers(-(10**15), 10**15),
    delays=st.lists(st.tuples(DELAY, DELAY, DELAY), min_size=1, max_size=50),
)
def test_the_true_offset_is_within_the_bound(
    offset: int, delays: list[tuple[int, int, int]]
) -> None:
    clock = 10**16
    trips = []
    for there, back, pause in delays:
        trips.append(RoundTrip(clock, clock + there + offset, clock + there + back))
        clock += there + back + pause
    skew = estimate(trips)
    assert abs(skew.offset_ns - offset) <= skew.within_ns
    shortest = min(there + back for there, back, _ in delays)
    assert skew.within_ns in (shortest // 2, shortest // 2 + shortest % 2)


def test_one_lucky_trip_is_enough() -> None:
    ticks = iter([0, 1000, 2000, 2010, 3000, 4000])
    answers = iter([10_000, 11_505, 13_000])
    skew = measure(lambda: next(answers), 3, lambda: next(ticks))
    assert skew == Skew(11_505 - 2005, 5)


@pytest.mark.parametrize("answer", [{}, {"monotonic_ns": "5"}, {"monotonic_ns": -1}])
def test_an_answer_without_a_time_is_refused(answer: dict[str, object]) -> None:
    with pytest.raises(VtaxError, match="no time"):
        time_in(answer)


@pytest.mark.slow
@pytest.mark.parametrize("spec", REAL)
def test_the_clock_of_a_real_machine(
    start: Callable[[str | Environment], Machine], spec: str
) -> None:
    machine = start(spec)
    first = machine.clock_skew()
    if spec.startswith("native"):
        assert abs(first.offset_ns) <= first.within_ns
    # A guest's clock begins when it boots.
    else:
        assert first.offset_ns < -first.within_ns
    time.sleep(0.2)
    second = machine.clock_skew()
    # The clocks may drift, by 500 parts in a million while one is adjusted.
    slack = first.within_ns + second.within_ns + 1_000_000
    assert abs(first.offset_ns - second.offset_ns) <= slack
    assert first.within_ns < 50_000_000
