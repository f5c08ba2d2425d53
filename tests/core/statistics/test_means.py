"""The mean beside the typical run, mixtures, coarse values and the control, by simulation.

docs/statistics.md has the values of more trials. A bound is four binomial standard errors from the
value on that page.
"""

from __future__ import annotations

import io
import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

import report_data
from comparison_data import CONTROL, NATIVE, UML, kinds, record, run, values
from vtax.compare import verdicts
from vtax.compare.analysis import compare
from vtax.compare.page import to_json
from vtax.core.formats.model import Better
from vtax.core.statistics.coarse import resolution
from vtax.core.statistics.means import log_ratio_of_means, mixture, tail_ratio, unseen_percent
from vtax.core.statistics.results import Verdict
from vtax.core.statistics.rounds import log_ratio, one_each

TRIALS = 300


def below(share: float, trials: int = TRIALS) -> float:
    return share - 4 * math.sqrt(share * (1 - share) / trials)


def above(share: float, trials: int = TRIALS) -> float:
    return share + 4 * math.sqrt(share * (1 - share) / trials)


def noisy(
    random: np.random.Generator, n: int, slow: float = 1.0, share: float = 0.0
) -> list[float]:
    hit = random.random(n) < share
    return [
        float(each) for each in np.exp(0.02 * random.standard_normal(n)) * np.where(hit, slow, 1)
    ]


@pytest.mark.parametrize("rounds", [5, 10, 30])
def test_a_campaign_in_which_the_tail_showed_is_not_equivalent(rounds: int) -> None:
    random = np.random.default_rng(22)
    for _ in range(40):
        own = noisy(random, rounds, 2.0, 0.1)
        if max(own) > 1.5:
            found = run({"native": noisy(random, rounds), "uml": own})["uml"]
            assert found.verdict is not Verdict.EQUIVALENT


def test_two_seconds_in_six_of_forty_runs_are_named_and_not_equivalent() -> None:
    random = np.random.default_rng(23)
    base = [1 + 0.005 * float(each) for each in random.standard_normal(40)]
    own = [1 + 0.005 * float(each) for each in random.standard_normal(40)]
    for slow in (3, 9, 15, 22, 28, 37):
        own[slow] += 1.0
    found = run({"native": base, "uml": own})["uml"]
    assert found.typical is not None and found.mean is not None
    assert found.typical.verdict is Verdict.EQUIVALENT
    assert found.mean.percent == pytest.approx(100 * sum(base) / sum(own))
    assert found.mean.verdict is Verdict.SLOWER and found.verdict is Verdict.SLOWER
    assert found.mixture == "34 of 40 runs at 1.00x, 6 at 2x"
    assert found.p95_percent_of_baseline == pytest.approx(50, abs=2)
    said = verdicts.phrase(found, 2.0)
    assert "typical run equivalent, mean slower" in said and "6 at 2x" in said


def test_what_no_run_showed_stands_beside_equivalent() -> None:
    random = np.random.default_rng(24)
    base, own = ([1 + 0.001 * float(x) for x in random.standard_normal(30)] for _ in range(2))
    found = run({"native": base, "uml": own})["uml"]
    assert found.verdict is Verdict.EQUIVALENT
    assert "slow runs rarer than 9.5 % would not have been seen" in verdicts.phrase(found, 2.0)


@pytest.mark.parametrize(("n", "percent"), [(5, 45.1), (10, 25.9), (30, 9.5), (100, 3.0)])
def test_the_share_that_is_not_excluded(n: int, percent: float) -> None:
    assert unseen_percent(n) == pytest.approx(percent, abs=0.05)
    assert (1 - unseen_percent(n) / 100) ** n == pytest.approx(0.05)


@pytest.mark.parametrize("n", [8, 10, 30, 100])
def test_noise_is_hardly_ever_called_a_mixture(n: int) -> None:
    random = np.random.default_rng(25)
    named = [mixture(np.exp(0.05 * random.standard_normal(n)).tolist()) for _ in range(2000)]
    assert sum(each is not None for each in named) / 2000 <= above(0.005, 2000)


def test_the_tail_is_the_bad_end() -> None:
    times = [float(each) for each in range(1, 101)]
    assert tail_ratio(times, [2 * each for each in times], "lower") == pytest.approx(0.5)
    assert tail_ratio([*times[:5], *[100.0] * 95], [100.0] * 100, "higher") != 1.0
    assert tail_ratio(times[:19], times, "lower") is None


@pytest.mark.parametrize("rounds", [3, 10, 30])
def test_rounding_is_not_averaged_away(rounds: int) -> None:
    """A step of 50 ms, noise 0.5 %, a true 98 %."""
    random = np.random.default_rng(26)
    for _ in range(TRIALS):
        length = random.uniform(0.1, 0.2)
        sides = [
            [
                max(0.05, round(float(each) / 0.05) * 0.05)
                for each in true * np.exp(0.005 * random.standard_normal(rounds))
            ]
            for true in (length / 0.98, length)
        ]
        own, base = ([round(each, 2) for each in side] for side in sides)
        for estimator in (log_ratio, log_ratio_of_means):
            found = estimator(one_each(own), one_each(base))
            assert found is not None
            assert abs(found.value + math.log(0.98)) <= found.half_width() + 1e-9


def test_two_decimals_that_hide_seven_per_cent_are_not_equivalent() -> None:
    samples = [*values("native", [0.15] * 30), *values("uml", [0.15] * 30)]
    found = compare(record(repetitions=30), samples, "runs/x")
    uml = found.results[-1]
    assert uml.verdict is Verdict.INCONCLUSIVE
    assert uml.ci_low is not None and uml.ci_high is not None
    assert uml.ci_low < 100 / 1.068 and uml.ci_high > 106.8 - 1
    assert "coarse-values" in kinds(found, "uml")


def test_what_a_subtraction_leaves_behind_the_last_digit_is_no_step() -> None:
    """0.2 - 0.05 is 0.15000000000000002."""
    own = [0.15, 0.2 - 0.05, *[0.15] * 10]
    assert len(set(own)) == 2
    found = log_ratio(one_each(own), one_each([0.16] * 12))
    assert found is not None and found.bias == pytest.approx(0.01 / 0.15 / 2 + 0.01 / 0.16 / 2)


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([0.1, 0.15, 0.15, 0.25], 0.05),
        ([0.15, 0.15, 0.31], 0.01),  # a slow run is no step of a clock
        ([4e-3, 8e-3, 8e-3, 20e-3], 4e-3),
        ([1500.0, 1500.0, 1600.0], 100.0),
        ([0.15, 0.15], 0.01),
        ([1.0131, 1.0274, 1.0313], 1e-4),
    ],
)
def test_the_step_in_which_values_come(values: list[float], step: float) -> None:
    assert resolution(values) == pytest.approx(step)


def test_values_that_dither_are_averaged() -> None:
    random = np.random.default_rng(27)
    sides = [[round(float(x), 2) for x in random.normal(0.5, 0.02, 100)] for _ in range(2)]
    found = log_ratio(*map(one_each, sides))
    assert found is not None and found.bias == 0
    assert found.half_width() >= 0.005 / 0.5 - 1e-3


def test_a_control_that_is_off_is_still_found() -> None:
    random = np.random.default_rng(29)
    samples = [
        *values("native", noisy(random, 10)),
        *values("native#aa", [1.1 * each for each in noisy(random, 10)]),
    ]
    assert "aa-control" in kinds(compare(record(NATIVE, CONTROL, UML), samples, "runs/x"))


def test_json_has_both() -> None:
    samples = [*values("native", [1.1, 1.2, 1.31]), *values("uml", [1.15, 1.21, 1.33])]
    found = to_json(compare(record(), samples, "runs/x"))["results"][-1]
    assert found["typical"]["percent"] == found["percent_of_baseline"]
    assert found["mean"]["percent"] == pytest.approx(100 * 3.61 / 3.69)
    assert found["p95_percent_of_baseline"] is None


anything = st.lists(
    st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)
    | st.sampled_from([5e-324, 1e-308, 1.0, 8e307, 1.797e308]),
    min_size=1,
    max_size=12,
)


@example([0.0], [0.0] * 6 + [11.0] * 5 + [1.832e307], "lower", False)
@settings(max_examples=60, deadline=None)
@given(anything, anything, st.sampled_from(["lower", "higher"]), st.booleans())
def test_no_value_is_too_large_or_small(
    own: list[float], base: list[float], better: Better, positive: bool
) -> None:
    """Whatever a program prints: finite JSON, and no warning of a library's."""
    sides = [[abs(each) or 5e-324 for each in side] if positive else side for side in (own, base)]
    samples = [
        one
        for label, side in zip(
            ("native", "native#aa", "uml"), (sides[1], base, sides[0]), strict=True
        )
        for one in values(label, side, better=better, boot=0)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = compare(record(NATIVE, CONTROL, UML), samples, "runs/x")
        json.dumps(to_json(found), allow_nan=False)
        Console(file=io.StringIO(), width=120).print(report_data.on_terminal(found))


numbers = st.lists(st.floats(0.01, 100), min_size=2, max_size=14)


@given(numbers, numbers)
def test_exchanging_the_sides_inverts_the_ratio_of_means(a: list[float], b: list[float]) -> None:
    size = min(len(a), len(b))
    own, base = one_each(a[:size]), one_each(b[:size])
    one, other = log_ratio_of_means(own, base), log_ratio_of_means(base, own)
    assert one is not None and other is not None
    assert one.value == pytest.approx(math.log(sum(a[:size]) / sum(b[:size])))
    assert other.value == pytest.approx(-one.value, abs=1e-9)
    assert other.half_width() == pytest.approx(one.half_width())
