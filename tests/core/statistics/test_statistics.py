"""Estimates, intervals, trends and verdicts; coverage is shown by simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from vtax.compare.repetitions import MOST, repetitions_needed
from vtax.core.errors import MisuseError
from vtax.core.statistics.results import Control, Verdict
from vtax.core.statistics.statistics import (
    Estimate,
    derived_seed,
    describe,
    median_estimate,
    student_t,
    trend,
)
from vtax.core.statistics.verdicts import (
    EQUIVALENCE_CONFIDENCE,
    edge,
    judge,
    judge_control,
    smallest_detectable,
)

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]

positive = st.floats(1e-3, 1e6)
samples = st.lists(positive, min_size=2, max_size=8)


def estimate(
    values: Sequence[float], boots: Sequence[int] | None = None, seed: int = 1
) -> Estimate:
    found = median_estimate(values, boots or [0] * len(values), seed, log=True)
    assert found is not None
    return found


def lognormal(random: np.random.Generator, n: int) -> NDArray[np.float64]:
    return np.asarray(np.exp(0.05 * random.standard_normal(n)))


def skewed(random: np.random.Generator, n: int) -> NDArray[np.float64]:
    """A hard lower bound with an exponential tail above it, as run times have."""
    return np.asarray(1.0 + random.exponential(0.05, n))


def heavy_tailed(random: np.random.Generator, n: int) -> NDArray[np.float64]:
    return np.asarray(np.exp(0.05 * random.laplace(size=n)))


@pytest.mark.parametrize("draw", [lognormal, skewed, heavy_tailed])
@pytest.mark.parametrize("n", [3, 5, 10])
def test_the_interval_of_a_median_covers_what_it_promises(draw: Draw, n: int) -> None:
    random = np.random.default_rng(7)
    true = math.log(float(np.median(draw(random, 200_000))))
    found = [estimate(draw(random, n).tolist(), seed=trial) for trial in range(400)]
    hits = sum(abs(each.value - true) <= each.half_width() for each in found)
    # 0.93: three standard errors of 400 trials below 0.95 would be 0.917.
    assert hits / 400 >= 0.93


def test_boots_of_unequal_size_are_handled() -> None:
    alike = estimate([1.0, 1.0, 1.0, 2.0, 2.0], [0, 0, 0, 1, 1])
    mixed = estimate([1.0, 2.0, 1.0, 2.0, 1.0], [0, 0, 0, 1, 1])
    # Two groups without spread are worth about two values, a mixture is worth all five.
    assert alike.df == pytest.approx(1.0, abs=0.1)
    assert mixed.df == 4.0
    assert alike.error > mixed.error > 0


def test_one_run_in_each_boot_is_as_one_boot() -> None:
    values = [1.0, 1.1, 1.3, 1.2, 1.05]
    each, one = estimate(values, [0, 1, 2, 3, 4]), estimate(values)
    assert each.df == one.df == 4.0
    assert each.error == pytest.approx(one.error, rel=0.1)


def test_the_standard_error_is_that_of_the_exact_bootstrap() -> None:
    """All 3 ** 3 resamples of three values, counted by hand."""
    values = [1.0, 2.0, 8.0]
    exact = [math.log(sorted(drawn)[1]) for drawn in itertools.product(values, repeat=3)]
    assert estimate(values).error == pytest.approx(float(np.std(exact)), rel=0.05)


def test_fewer_than_two_values_have_no_interval() -> None:
    assert median_estimate([1.0], [0], 1, log=True) is None


def test_values_without_spread_have_an_interval_without_width() -> None:
    assert estimate([3.0] * 5).half_width() == 0.0
    assert (estimate([3.0] * 5) - estimate([3.0] * 5)).half_width() == 0.0


def test_values_that_have_no_logarithm_are_estimated_as_they_are() -> None:
    found = median_estimate([-1.0, 0.0, 1.0], [0, 0, 0], 1, log=False)
    assert found is not None
    assert found.value == 0.0
    assert found.error > 0


@given(samples, st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_interval(values: list[float], seed: int) -> None:
    assert estimate(values, seed=seed) == estimate(values, seed=seed)


@given(samples, st.floats(1e-6, 1e6))
def test_another_unit_moves_the_estimate_and_keeps_the_error(values: list[float], c: float) -> None:
    one, other = estimate(values), estimate([c * value for value in values])
    assert other.value == pytest.approx(one.value + math.log(c), abs=1e-9)
    assert other.error == pytest.approx(one.error, abs=1e-9)


@given(samples, samples)
def test_exchanging_the_sides_mirrors_the_ratio(ours: list[float], theirs: list[float]) -> None:
    a, b = estimate(ours, seed=1), estimate(theirs, seed=2)
    there, back = a - b, b - a
    assert there.value == -back.value
    assert there.half_width() == pytest.approx(back.half_width(), rel=1e-9)
    mirrored = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
    verdict = judge(there, 2.0)
    assert judge(back, 2.0) == mirrored.get(verdict, verdict)


def test_each_name_has_a_seed_of_its_own() -> None:
    seeds = {derived_seed(s, e, m) for s in (0, 1) for e in ("a", "ab") for m in ("b", "c")}
    assert len(seeds) == 8
    assert derived_seed(1, "a", "bc") != derived_seed(1, "ab", "c")


@pytest.mark.parametrize("df", [1.0, 2.5, 4.0, 30.0])
def test_students_t_is_that_of_scipy(df: float) -> None:
    assert student_t(0.95, df) == pytest.approx(stats.t.ppf(0.975, df))


def test_welchs_degrees_of_freedom() -> None:
    """The textbook formula, for standard errors 3 and 4 with 4 and 9 degrees of freedom."""
    difference = Estimate(0.0, 3.0, 4.0) - Estimate(0.0, 4.0, 9.0)
    assert difference.error == 5.0
    assert difference.df == pytest.approx(25.0**2 / (9.0**2 / 4 + 16.0**2 / 9))


def test_best_is_the_minimum_of_times_and_the_maximum_of_rates() -> None:
    values = [3.0, 1.0, 2.0, 10.0]
    assert describe(values, "lower").best == 1.0
    assert describe(values, "higher").best == 10.0
    assert describe(values, "lower").median == 2.5
    assert describe(values, "lower").stdev == pytest.approx(4.0824829)
    assert describe([1.0], "lower").stdev is None


def test_the_trend_test_is_exact() -> None:
    """The test agrees with a count over all orders of six values."""
    scores = [
        sum(np.sign(b - a) for a, b in itertools.combinations(order, 2))
        for order in itertools.permutations(range(6))
    ]
    for order in ((0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 5, 4), (1, 0, 3, 2, 5, 4), (5, 4, 3, 2, 0, 1)):
        own = abs(sum(np.sign(b - a) for a, b in itertools.combinations(order, 2)))
        expected = np.mean([abs(score) >= own for score in scores])
        assert trend([float(value) for value in order]).p == pytest.approx(expected)


def test_the_trend_test_of_many_values_is_close_to_the_exact_one() -> None:
    random = np.random.default_rng(3)
    values = (random.standard_normal(61) + 0.02 * np.arange(61)).tolist()
    expected = stats.kendalltau(np.arange(61), values, method="exact").pvalue
    assert trend(values).p == pytest.approx(expected, abs=0.005)


def test_a_trend_is_measured_from_first_to_last() -> None:
    assert trend([1.0, 2.0, 3.0, 100.0, 5.0]).change == pytest.approx(4.0, rel=0.5)
    assert trend([5.0, 4.0, 3.0, 2.0, 1.0]).change == -4.0
    assert trend([1.0] * 5).p == pytest.approx(1.0)


@given(st.permutations(list(range(7))))
def test_the_reverse_order_has_the_opposite_trend(order: list[int]) -> None:
    there, back = trend([float(v) for v in order]), trend([float(v) for v in reversed(order)])
    assert there.p == back.p
    assert there.change == -back.change


def at(percent: float, half: float) -> Estimate:
    """A ratio at a percentage with a half width on the log scale."""
    return Estimate(math.log(percent / 100), half / student_t(0.95, 4.0), 4.0)


@pytest.mark.parametrize(
    ("percent", "half", "verdict"),
    [
        (100.0, 0.0, Verdict.EQUIVALENT),
        (100.0, 0.02, Verdict.EQUIVALENT),
        (100.0, 0.028, Verdict.INCONCLUSIVE),
        (98.0, 0.0, Verdict.EQUIVALENT),
        (100 / 0.98, 0.0, Verdict.EQUIVALENT),
        (97.9, 0.0, Verdict.SLOWER),
        (102.2, 0.0, Verdict.FASTER),
        (90.0, 0.05, Verdict.SLOWER),
        (90.0, 0.1, Verdict.INCONCLUSIVE),
        (120.0, 0.1, Verdict.FASTER),
        # Certainly a difference, but perhaps one within the margin.
        (98.5, 0.01, Verdict.INCONCLUSIVE),
        (97.0, 0.02, Verdict.INCONCLUSIVE),
    ],
)
def test_verdicts(percent: float, half: float, verdict: Verdict) -> None:
    assert judge(at(percent, half), 2.0) is verdict


@pytest.mark.parametrize("margin", [0.0, -1.0, 100.0, math.nan])
def test_a_margin_that_is_none_is_misuse(margin: float) -> None:
    with pytest.raises(MisuseError, match="margin"):
        edge(margin)


def test_equivalence_asks_for_the_90_per_cent_interval() -> None:
    ratio = at(100.0, 0.025)
    assert ratio.half_width(EQUIVALENCE_CONFIDENCE) < edge(2.0) < ratio.half_width()
    assert judge(ratio, 2.0) is Verdict.EQUIVALENT


@pytest.mark.parametrize(
    ("percent", "half", "questions", "control"),
    [
        (100.0, 0.01, 1, Control.EQUAL),
        (100.0, 0.05, 1, Control.TOO_NOISY),
        (97.0, 0.01, 1, Control.DIFFERS),
        # A difference of 1 % that is certain is one, though it is within the margin.
        (99.0, 0.001, 1, Control.DIFFERS),
        # One of fifty metrics is that far off by chance.
        (97.0, 0.02, 50, Control.TOO_NOISY),
    ],
)
def test_the_control_says_one_of_three(
    percent: float, half: float, questions: int, control: Control
) -> None:
    assert judge_control(at(percent, half), 2.0, questions) is control


def test_a_difference_as_large_as_detectable_is_found_in_four_of_five_cases() -> None:
    random = np.random.default_rng(12)
    error, df = 0.02, 7.0
    percent = smallest_detectable(Estimate(0.0, error, df))
    true = math.log1p(-percent / 100)
    drawn = true + error * random.standard_normal(4000)
    errors = error * np.sqrt(random.chisquare(df, 4000) / df)
    found = np.mean(np.abs(drawn) > student_t(0.95, df) * errors)
    # Bloom's sum of two quantiles is exact for a known error and near it for an estimated one.
    assert found == pytest.approx(0.8, abs=0.04)


def test_the_range_of_repetitions_holds_the_number_that_decides() -> None:
    """Experiments that go on until they decide: most decide within the range that they named."""
    random = np.random.default_rng(13)
    inside = asked = 0
    for _ in range(150):
        values = 0.035 + 0.03 * random.standard_normal(MOST)
        first = _paired(values[:6])
        if judge(first, 2.0) is not Verdict.INCONCLUSIVE:
            continue
        needed = repetitions_needed(first, 2.0, 6)
        counts = range(7, MOST, max(1, needed.low // 20))
        decided = next(
            n for n in counts if judge(_paired(values[:n]), 2.0) is not Verdict.INCONCLUSIVE
        )
        asked += 1
        inside += needed.low * 0.95 <= decided <= (needed.high or MOST)
    assert asked > 100
    # The aim is 80 %; a sequence that stops at its first lucky moment stops a little earlier.
    assert inside / asked > 0.6


def _paired(values: NDArray[np.float64]) -> Estimate:
    return Estimate(
        float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values)), len(values) - 1.0
    )


def test_what_lies_on_the_edge_needs_very_many() -> None:
    near = repetitions_needed(at(98.0, 0.004), 2.0, 5)
    far = repetitions_needed(at(94.0, 0.06), 2.0, 5)
    assert near.high is None
    assert far.reachable and far.high is not None and 5 < far.low < far.high
    # A hundred rounds, and still on the edge.
    assert not repetitions_needed(at(98.0, 0.001), 2.0, 200).reachable
