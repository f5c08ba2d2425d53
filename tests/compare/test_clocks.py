"""The same repetitions by each clock, and where a verdict depends on the clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from comparison_data import CONTROL, NATIVE, STEADY, UML, kinds, only, record, sample, values
from vtax.compare.analysis import compare
from vtax.core.formats.model import Clock, Sample
from vtax.core.statistics.clocks import seconds, shortest_duration_s

HZ = 2e9


def timed(label: str, wall: list[float], cpu: list[float], host: list[float]) -> list[Sample]:
    return [
        replace(
            sample(label, index, w),
            wall_s=w, cpu_s=c, host_wall_s=h, tsc_ticks=round(h * HZ), round=index,
        )
        for index, (w, c, h) in enumerate(zip(wall, cpu, host, strict=True))
    ]  # fmt: skip


def times(by: float) -> list[float]:
    return [value * by for value in STEADY]


NATIVES = timed("native", STEADY, STEADY, STEADY)
HERE = tuple(each.model_copy(update={"tsc_hz": HZ}) for each in (NATIVE, UML))


def test_the_shortest_duration_is_a_hundred_times_the_error() -> None:
    assert shortest_duration_s(20, 25) == pytest.approx(6.5e-6)
    assert shortest_duration_s(10e6, None) == pytest.approx(2.0)
    assert shortest_duration_s(None, 25) is None


@pytest.mark.parametrize(
    ("clock", "expected"), [("wall", 1.0), ("cpu", 0.9), ("host", 1.001), ("tsc", 1.5)]
)
def test_each_clock_has_its_own_time(clock: Clock, expected: float) -> None:
    own = sample("uml", 0, 7.0, tsc_ticks=3_000_000_000)
    assert seconds(own, clock, HZ) == pytest.approx(expected)


def test_a_counter_is_bounded_by_the_host_but_not_an_emulators() -> None:
    lying = sample("uml", 0, 2.69, wall_s=2.69, host_wall_s=2.69, tsc_ticks=round(0.002 * HZ))
    assert seconds(lying, "tsc", HZ) == 2.69
    emulated = replace(lying, wall_s=0.002)
    assert seconds(emulated, "tsc", HZ) == pytest.approx(0.002)


def test_without_a_counter_or_its_rate_there_is_no_time_by_it() -> None:
    assert seconds(sample("uml", 0, 1.0), "tsc", HZ) is None
    assert seconds(sample("uml", 0, 1.0, tsc_ticks=5), "tsc", None) is None


def test_a_clock_that_runs_slow_turns_the_verdict() -> None:
    """The guest's wall clock shows half of the time that passes by the host's."""
    slow = timed("uml", STEADY, STEADY, times(2.0))
    flag = only(compare(record(*HERE), NATIVES + slow, "runs/x"), "clock-verdict")
    assert "by tsc_s slower (50.0 %) and by host_wall_s slower (50.0 %)" in flag.message
    assert "By wall_s this environment is equivalent to the baseline (100.0 %)" in flag.message


def test_the_chosen_clock_leads() -> None:
    slow = timed("uml", STEADY, STEADY, times(2.0))
    found = compare(record(*HERE, clock="host"), NATIVES + slow, "runs/x")
    flag = only(found, "clock-verdict")
    assert flag.metric == "host_wall_s" and "By host_wall_s this environment is slower" in (
        flag.message
    )


def test_clocks_that_agree_say_nothing_and_neither_does_a_control() -> None:
    alike = timed("uml", times(1.5), times(1.5), times(1.5))
    control = timed("native#aa", STEADY, times(2.0), STEADY)
    found = compare(record(*HERE, CONTROL), NATIVES + alike + control, "runs/x")
    assert "clock-verdict" not in kinds(found)


def test_of_a_metric_of_the_program_no_clock_leads() -> None:
    slow = timed("uml", STEADY, STEADY, times(2.0))
    asked = record(*HERE, expected_metrics=(("rate", "1/s", "higher"), ("wall_s", "s", "lower")))
    assert "clock-verdict" not in kinds(compare(asked, NATIVES + slow, "runs/x"))


def test_runs_shorter_than_the_clock_times_are_named() -> None:
    coarse = UML.model_copy(update={"facts": {"clock": {"step_ns": 4_000_000, "reading_ns": None}}})
    found = compare(record(NATIVE, coarse), values("uml", STEADY, wall_s=0.5), "runs/x")
    flag = only(found, "too-short")
    assert flag.environment == "uml" and "took as little as 500 ms" in flag.message
    assert "times 800 ms and more" in flag.message
    long = compare(record(NATIVE, coarse), values("uml", STEADY, wall_s=0.9), "runs/x")
    assert "too-short" not in kinds(long)
