"""Points, elasticity and findings of `vtax place measure`, against campaigns with known answers."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import place_data
from place_data import PAPER, runs
from vtax.place import analysis as place
from vtax.place.analysis import NOT_HONOURED, SATURATED, SpeedRun
from vtax.place.record import PlaceLoad


def one(found: list[SpeedRun]) -> PlaceLoad:
    (load,) = place.loads(found)
    return load


@pytest.mark.parametrize(
    ("name", "elasticity"),
    [("ab", 0.28), ("netperf TCP", 0.30), ("netperf UDP", 0.50), ("SPEC CPU2006", 0.84)],
)
def test_the_papers_numbers_are_these_elasticities(name: str, elasticity: float) -> None:
    assert place.slope([(50.0, PAPER[name])]) == pytest.approx(elasticity)


@given(st.floats(-1, 2), st.lists(st.floats(10, 99), min_size=1, max_size=6))
def test_a_straight_line_through_the_control_is_found(true: float, speeds: list[float]) -> None:
    points = [(speed, 100 - true * (100 - speed)) for speed in speeds]
    assert place.slope(points) == pytest.approx(true, abs=1e-9)


def test_cpu_time_has_the_interval_of_its_mean_and_power_its_mean() -> None:
    control = dataclasses.replace(runs(0.0)[0], speed_asked_percent=100.0)
    shares = (0.10, 0.12, 0.17)
    own = [dataclasses.replace(control, service_cpu=share, watts=100 * share) for share in shares]
    (point,) = one(own).points
    low, high = stats.t.interval(
        0.95, len(shares) - 1, loc=100 * np.mean(shares), scale=100 * stats.sem(shares)
    )
    assert (point.service_cpu_low, point.service_cpu_high) == pytest.approx((low, high))
    assert point.watts == pytest.approx(13)
    (alone,) = one(own[:1]).points
    assert alone.service_cpu_low is alone.service_cpu_high is None
    (lacking,) = one([*own, dataclasses.replace(control, service_cpu=None)]).points
    assert lacking.service_cpu_low is None and lacking.watts == pytest.approx(13)


def test_a_drift_is_no_loss() -> None:
    """Each round is slower than the one before, but every ratio is taken within a round."""
    load = one(runs(0.28))
    assert load.elasticity == pytest.approx(0.28)
    assert load.low == pytest.approx(0.28) and load.high == pytest.approx(0.28)
    assert [point.relative_percent for point in load.points] == pytest.approx(
        [100 - 0.28 * (100 - speed) for speed in place_data.SPEEDS]
    )


def test_points_with_controls_of_their_own_weigh_what_they_know() -> None:
    """At 90 % a disturbance of 5 % is half of the lost speed; at 50 % it is a tenth."""

    def pair(number: int, speed: float, throughput: float) -> list[SpeedRun]:
        control = dataclasses.replace(runs(0.0)[0], round=number, throughput=100.0,
                                      speed_asked_percent=100.0)  # fmt: skip
        slow = dataclasses.replace(control, speed_asked_percent=speed, throughput=throughput,
                                   speed_obtained_percent=speed)  # fmt: skip
        return [control, slow]

    load = one([*pair(0, 90.0, 95.0 - 5.0), *pair(1, 50.0, 75.0), *pair(2, 50.0, 75.0)])
    assert load.elasticity == pytest.approx(0.5 + 5.0 * 10.0 / (10.0**2 + 2 * 50.0**2))
    assert load.low is not None and load.low < 0.5 < load.elasticity


def test_the_speed_obtained_counts_and_not_the_one_asked_for() -> None:
    asked = [
        dataclasses.replace(run, speed_obtained_percent=100 - 2 * (100 - run.speed_asked_percent))
        for run in runs(0.8, speeds=(100, 80, 70))
    ]
    assert one(asked).elasticity == pytest.approx(0.4)


def test_combined_usage_is_the_sum_and_may_go_above_100() -> None:
    point = one(runs(0.3, service_cpu=0.91, device_percent=60.0)).points[0]
    assert point.service_cpu_percent == pytest.approx(91)
    assert point.combined_usage_percent == pytest.approx(151)
    without = one(runs(0.3, device_percent=None)).points[0]
    assert without.device_percent is None and without.combined_usage_percent is None


def test_the_interval_covers_the_truth() -> None:
    hits = 0
    for seed in range(200):
        load = one(runs(0.5, rounds=5, noise=0.05, seed=seed))
        assert load.low is not None and load.high is not None
        hits += load.low <= 0.5 <= load.high
    assert 180 <= hits <= 200


def test_one_round_has_a_value_and_no_interval() -> None:
    load = one(runs(0.5, rounds=1))
    assert (load.elasticity, load.low, load.high) == (pytest.approx(0.5), None, None)
    assert load.points[-1].relative_percent == pytest.approx(75) and load.points[-1].low is None


def test_boots_are_the_observations_where_there_are_several() -> None:
    """Two boots with three rounds each give an interval with one degree of freedom."""
    first = runs(0.4, boot=0)
    second = [dataclasses.replace(run, round=run.round + 3) for run in runs(0.6, boot=1)]
    load = one(first + second)
    assert load.elasticity == pytest.approx(0.5)
    assert load.low is not None and load.low == pytest.approx(0.5 - 12.706 * 0.1, abs=1e-3)


def test_backends_that_disagree_are_said_and_widen_the_interval() -> None:
    load = one(runs(0.02, noise=0.005) + runs(1.08, noise=0.005, backend="hog"))
    assert [each.backend for each in load.by_backend] == ["quota", "hog"]
    assert load.low is not None and load.high is not None
    assert load.low < 0.05 and load.high > 1.05
    (said,) = place.findings([load])
    assert "quota and hog disagree" in said and "1.08" in said


def test_backends_that_agree_are_no_finding() -> None:
    assert not place.findings(
        [one(runs(0.5, noise=0.02) + runs(0.5, noise=0.02, seed=2, backend="hog"))]
    )


def test_a_backend_without_a_control_takes_anothers() -> None:
    hog = runs(0.5, speeds=(50.0,), backend="hog")
    load = one(runs(0.5) + hog)
    assert [each.elasticity for each in load.by_backend] == pytest.approx([0.5, 0.5])


def test_a_point_that_was_not_held_is_kept_apart_and_said() -> None:
    found = [
        dataclasses.replace(run, honoured=False, throughput=1.0)
        if run.speed_asked_percent == 50
        else run
        for run in runs(0.3)
    ]
    load = one(found)
    assert load.elasticity == pytest.approx(0.3)
    assert load.points[-1].marks == (NOT_HONOURED,) and load.points[-1].n == 3
    assert place.findings([load]) == (
        f"uml:net=vde, http: kept apart at 50 % (quota): {NOT_HONOURED}",
    )


def test_a_saturated_generator_at_full_speed_leaves_no_elasticity() -> None:
    """How fast the service would have been is not known, and neither is what it loses."""
    found = [
        dataclasses.replace(run, client_saturated=run.speed_asked_percent == 100)
        for run in runs(0.3)
    ]
    load = one(found)
    assert load.elasticity is None and not load.by_backend
    assert load.points[1].marks == (f"the control: {SATURATED}",)


def test_a_few_marked_runs_are_left_out_and_said() -> None:
    found = runs(0.3)
    found[-1] = dataclasses.replace(found[-1], client_saturated=True, throughput=1.0)
    load = one(found)
    assert load.elasticity == pytest.approx(0.3)
    assert (load.points[-1].n, load.points[-1].left_out) == (2, 1)
    assert "1 run left out" in place.findings([load])[0]


def test_what_was_not_measured_is_not_there() -> None:
    values = one(runs(0.3)).at_full_speed
    assert values["service CPU"] == pytest.approx(40) and values["combined usage"] == 120
    assert values["run delay"] is values["batching"] is values["instructions per packet"] is None
    counted = one(
        runs(0.3, wakeups_per_s=100.0, requests_per_s=500.0, packets_per_s=2000.0,
             service_instructions_per_s=1e6)
    ).at_full_speed  # fmt: skip
    assert counted["batching"] == 20 and counted["instructions per packet"] == 500


def test_without_a_speed_that_was_measured_there_is_no_elasticity() -> None:
    load = one([dataclasses.replace(run, speed_obtained_percent=None) for run in runs(0.3)])
    assert load.elasticity is None
    assert load.points[-1].relative_percent == pytest.approx(85)


@given(st.lists(st.floats(1e-3, 1e9), min_size=2, max_size=12))
def test_any_throughput_gives_an_ordered_interval(values: list[float]) -> None:
    found = [
        SpeedRun("e", "l", "quota", 50.0 if number % 2 else 100.0, number // 2, value, "1/s",
                 speed_obtained_percent=50.0 if number % 2 else 100.0)
        for number, value in enumerate(values)
    ]  # fmt: skip
    for point in one(found).points:
        if point.low is not None and point.high is not None:
            assert point.relative_percent is not None
            assert point.low <= point.relative_percent * (1 + 1e-9)
            assert point.relative_percent <= point.high * (1 + 1e-9)


def test_the_record_has_the_fields_of_the_contract() -> None:
    content = json.loads(place_data.record().model_dump_json())
    assert {"backends", "loads", "hypothesis"} <= content.keys()
    load = content["loads"][0]
    assert {"environment", "load", "points", "elasticity", "low", "high"} <= load.keys()
    assert {
        "speed_asked_percent", "speed_obtained_percent", "backend", "relative_percent", "low",
        "high", "service_cpu_percent", "device_percent", "combined_usage_percent",
    } <= load["points"][0].keys()  # fmt: skip
    assert {"rank_correlation", "low", "high", "n"} <= content["hypothesis"].keys()
    assert np.isfinite(content["hypothesis"]["rank_correlation"])
