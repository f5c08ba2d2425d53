"""A run against an earlier one: which metrics got worse by more than the margin."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from comparison_data import environment
from history_data import ARGV, changed, measured, only
from vtax.compare.history import page
from vtax.compare.history.changes import changes
from vtax.compare.history.surroundings import (
    Measured,
    require_same_command,
    require_shared_environment,
    unlike,
)
from vtax.core.errors import MisuseError
from vtax.core.formats.model import Failure
from vtax.core.statistics.results import Verdict

WALL, RATE = ("native", "wall_s"), ("native", "rate")
STEADY = [1.0, 1.01, 0.99, 1.005, 0.995, 1.002, 0.998, 1.003]


def times(factor: float) -> list[float]:
    return [factor * each for each in STEADY]


@pytest.mark.parametrize(
    ("key", "factor", "verdict"),
    [
        (WALL, 1.10, Verdict.SLOWER),
        (WALL, 0.90, Verdict.FASTER),
        (WALL, 1.00, Verdict.EQUIVALENT),
        (RATE, 1.10, Verdict.FASTER),
        (RATE, 0.90, Verdict.SLOWER),
        (RATE, 1.00, Verdict.EQUIVALENT),
    ],
)
def test_worse_is_by_the_direction_of_the_metric(
    key: tuple[str, str], factor: float, verdict: Verdict
) -> None:
    found = changed({key: STEADY}, {key: times(factor)})
    change = only(found)
    assert change.verdict is verdict
    assert [each.verdict for each in found.worse] == [verdict] * (verdict is Verdict.SLOWER)
    performance = 100 * (factor if key is RATE else 1 / factor)
    assert change.percent == pytest.approx(performance)
    assert change.low is not None and change.high is not None
    assert change.low < performance < change.high
    assert change.before == pytest.approx(1.001)
    assert change.after == pytest.approx(1.001 * factor)


@pytest.mark.parametrize("better", ["lower", "higher"])
@pytest.mark.parametrize("noise", [0.005, 0.03, 0.1])
@pytest.mark.parametrize("change", [0.80, 0.94, 0.969, 1.0, 1.1])
def test_verdicts_are_those_of_an_independent_computation(
    better: str, noise: float, change: float
) -> None:
    """The interval of the log ratio by the asymptotic standard error of a median of normal values,
    which needs neither the bootstrap nor vtax: where it is clearly beyond the margin, or clearly
    not, the verdict is that."""
    n, key = 40, RATE if better == "higher" else WALL
    random = np.random.default_rng(round(1000 * noise + 10_000 * change))
    then, now = np.exp(noise * random.standard_normal((2, n)))
    now *= change if better == "higher" else 1 / change
    found = only(changed({key: then.tolist()}, {key: now.tolist()}))
    shift = math.log(np.median(now)) - math.log(np.median(then))
    performance = shift if better == "higher" else -shift
    spread = math.sqrt(np.log(then).var(ddof=1) + np.log(now).var(ddof=1))
    error = math.sqrt(math.pi / 2 / n) * spread
    half = float(stats.t.ppf(0.975, 2 * (n - 1))) * error
    edge = math.log(0.97)
    # The bootstrap knows the error of a median of 40 values to about a third.
    if performance + 1.5 * half < edge:
        assert found.verdict is Verdict.SLOWER
    if performance + 0.6 * half > edge:
        assert found.verdict is not Verdict.SLOWER
    assert found.percent == pytest.approx(100 * math.exp(performance))


def test_the_same_twice_rarely_fails() -> None:
    """A/A: at a noise of 5 % and a margin of 3 %, at most one metric in forty may fail by chance;
    by the simulation of docs/statistics.md it is less than one in a hundred."""
    random, failed, trials = np.random.default_rng(35), 0, 400
    for _ in range(trials):
        then, now = np.exp(0.05 * random.standard_normal((2, 8)))
        failed += bool(changed({WALL: then.tolist()}, {WALL: now.tolist()}).worse)
    # 2.5 %, and what a binomial count of 400 exceeds in one of a thousand simulations.
    assert failed <= stats.binom.ppf(0.999, trials, 0.025)
    assert failed < trials / 100


def test_a_change_as_large_as_docs_say_is_found() -> None:
    random = np.random.default_rng(36)
    found = 0
    for _ in range(100):
        then, now = np.exp(0.02 * random.standard_normal((2, 10)))
        found += bool(changed({RATE: then.tolist()}, {RATE: (0.9 * now).tolist()}).worse)
    assert found >= 80


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.5, 2.0), min_size=3, max_size=6),
    st.lists(st.floats(0.5, 2.0), min_size=3, max_size=6),
)
def test_the_other_way_round_is_the_mirror_image(then: list[float], now: list[float]) -> None:
    there, back = (only(changed({WALL: a}, {WALL: b})) for a, b in ((then, now), (now, then)))
    assert there.percent and back.percent and there.low and back.high
    assert there.percent * back.percent == pytest.approx(1e4)
    # Either side has its own random numbers for the bootstrap.
    assert there.low * back.high == pytest.approx(1e4, rel=0.2)


@pytest.mark.parametrize("bad", [0.0, -1.0])
@pytest.mark.parametrize("side", [0, 1])
def test_values_not_above_zero_are_not_compared(bad: float, side: int) -> None:
    sides = [{WALL: STEADY}, {WALL: STEADY}]
    sides[side] = {WALL: [bad, *STEADY]}
    found = changed(*sides)
    assert only(found).verdict is Verdict.NOT_COMPARED
    assert "not above zero" in (only(found).reason or "")
    assert only(found).percent is None
    assert not found.is_whole


def test_one_value_has_no_interval() -> None:
    found = changed({WALL: [1.0]}, {WALL: [2.0]})
    assert only(found).verdict is Verdict.INCONCLUSIVE
    assert "two repetitions" in (only(found).reason or "")
    assert not found.worse and not found.is_whole


def test_what_is_on_one_side_only_is_said() -> None:
    then = {WALL: STEADY, RATE: STEADY, ("uml", "wall_s"): STEADY}
    now = {WALL: STEADY, ("native", "new"): STEADY, ("qemu", "wall_s"): STEADY}
    found = changed(then, now)
    verdicts = {(each.environment, each.metric): each.verdict for each in found.changes}
    assert verdicts == {
        WALL: Verdict.EQUIVALENT,
        ("native", "new"): Verdict.NOT_COMPARED,
        RATE: Verdict.NOT_MEASURED,
        ("qemu", "wall_s"): Verdict.NOT_COMPARED,
        ("uml", "wall_s"): Verdict.NOT_COMPARED,
    }
    reasons = {(each.environment, each.metric): each.reason for each in found.changes}
    assert reasons["uml", "wall_s"] == "this run has no such environment"
    assert reasons["qemu", "wall_s"] == "runs/old has no value"
    # A metric that vanished from an environment is no success.
    assert not found.is_whole
    del then[RATE]
    assert changed(then, now).is_whole


def test_an_environment_that_failed_is_missing_with_its_reason() -> None:
    uml = ("uml", "wall_s")
    failure = Failure(environment="uml", repetition=0, message="it does not boot")
    own = (environment("native", "baseline"), environment("uml"))
    found = changed(
        {WALL: STEADY, uml: STEADY}, {WALL: STEADY}, environments=own, failures=(failure,)
    )
    missing = found.changes[-1]
    assert missing.verdict is Verdict.NOT_MEASURED
    assert missing.reason == "1 of 5 repetitions failed: it does not boot"


def test_controls_are_left_out() -> None:
    control = environment("native#aa", "control")
    own = (environment("native", "baseline"), control)
    values = {WALL: STEADY, ("native#aa", "wall_s"): STEADY}
    now = measured(values, "runs/new", environments=own)
    then = measured(values, "runs/old", environments=own)
    assert [each.environment for each in changes(now, then, 3.0).changes] == ["native"]


@pytest.mark.parametrize(("field", "value"), [("unit", "ms"), ("better", "higher")])
def test_another_unit_or_direction_is_not_compared(field: str, value: str) -> None:
    now, then = measured({WALL: STEADY}, "runs/new"), measured({WALL: STEADY}, "runs/old")
    other: dict[str, Any] = {field: value}
    samples = [dataclasses.replace(each, **other) for each in now.samples]
    found = changes(dataclasses.replace(now, samples=samples), then, 3.0)
    assert only(found).verdict is Verdict.NOT_COMPARED
    assert value in (only(found).reason or "")


def same(**parameters: Any) -> Measured:
    return Measured("command", ARGV | parameters, ("native",))


def test_only_the_folder_of_the_program_may_change() -> None:
    require_same_command(same(argv=["/tmp/7/prog", "--size", "10"]), same(), "runs/old")
    pattern = {"name": "x", "regex": "x=([0-9]+)"}
    # A further --metric changes no other number.
    require_same_command(same(metrics=[pattern]), same(), "runs/old")


@pytest.mark.parametrize(
    "then",
    [
        same(argv=["./prog", "--size", "20"]),
        same(argv=["./other", "--size", "10"]),
        same(stdin_sha256="1"),
        same(metrics=[{"name": "x", "regex": "y=([0-9]+)"}]),
        Measured("hpcc", {}, ("native",)),
    ],
)
def test_another_command_is_refused_with_a_remedy(then: Measured) -> None:
    now = same(metrics=[{"name": "x", "regex": "x=([0-9]+)"}])
    with pytest.raises(MisuseError, match=r"^runs/old measured .*; measure the earlier run again"):
        require_same_command(now, then, "runs/old")


def test_no_common_environment_is_refused() -> None:
    then = dataclasses.replace(same(), labels=("uml:mem=1G",))
    with pytest.raises(MisuseError, match=r"none of these environments.*--in uml:mem=1G"):
        require_shared_environment(same(), then, "runs/old")


def test_what_is_unlike_is_one_line() -> None:
    def facts(release: str) -> dict[str, Any]:
        return {"kernel": {"release": release}, "cpu": {"model": f"CPU {release}", "online": 2}}

    def run(version: str, release: str, program: str) -> Any:
        own = environment("native", "baseline", facts=facts(release))
        guest = environment("uml", facts=facts("5.4"))
        argv = {"argv": [program], "metrics": []}
        return measured(
            {WALL: STEADY},
            environments=(own, guest),
            vtax_version=version,
            workload_parameters=argv,
            order=(),
        ).record

    found = unlike(run("2", "6.2", "./b/x y"), run("1", "6.1", "./a/x y"))
    assert found == (
        "vtax 2, was 1",
        "command './b/x y', was './a/x y'",
        "CPU model CPU 6.2, was CPU 6.1 (native)",
        "kernel 6.2, was 6.1 (native)",
    )
    assert unlike(run("1", "6.1", "./x"), run("1", "6.1", "./x")) == ()


def test_the_line_has_the_numbers() -> None:
    found = changed({WALL: STEADY}, {WALL: times(1.25)})
    said = page.line(only(found), found)
    assert said.startswith("performance is 80.0 % [")
    assert said.endswith("of that in runs/old: slower by more than 3 %")
    assert page.summary(found) == "1 of 1 metric worse by more than 3 %"
