"""Estimates, intervals, trends and verdicts; coverage is shown by simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from vtax.analysis.results import Verdict
from vtax.analysis.statistics import (
    Estimate,
    derived_seed,
    describe,
    median_estimate,
    student_t,
    trend,
)
from vtax.analysis.verdicts import MOST_REPETITIONS, edge, judge, repetitions_to_settle
from vtax.errors import MisuseError

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


def contaminated(random: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Two per cent noise, and each tenth run disturbed by 30 % on average."""
    disturbed = 1.0 + (random.random(n) < 0.1) * random.exponential(0.3, n)
    return np.asarray(np.exp(0.02 * random.standard_normal(n)) * disturbed)


def skewed(random: np.random.Generator, n: int) -> NDArray[np.float64]:
    """A hard lower bound with an exponential tail above it, as run times have."""
    return np.asarray(1.0 + random.exponential(0.05, n))


def heavy_tailed(random: np.random.Generator, n: int) -> NDArray[np.float64]:
    return np.asarray(np.exp(0.05 * random.laplace(size=n)))


def coverage(draw: Draw, n: int, trials: int = 400) -> float:
    """How often the interval of the ratio of two equal distributions holds the true value, 1."""
    random = np.random.default_rng(7)
    hits = 0
    for trial in range(trials):
        ours, theirs = (
            estimate(draw(random, n).tolist(), seed=derived_seed(trial, side)) for side in "ab"
        )
        ratio = ours - theirs
        hits += abs(ratio.value) <= ratio.half_width()
    return hits / trials


@pytest.mark.parametrize("draw", [lognormal, contaminated, skewed, heavy_tailed])
@pytest.mark.parametrize("n", [3, 5, 10])
def test_the_interval_covers_what_it_promises(draw: Draw, n: int) -> None:
    # 0.93: three standard errors of 400 trials below 0.95 would be 0.917.
    assert coverage(draw, n) >= 0.93


def test_the_interval_is_not_wide_for_its_own_sake() -> None:
    """A wide interval covers anything; this one is to detect a difference when there is one."""
    random = np.random.default_rng(8)
    found = 0
    for trial in range(200):
        slow, fast = (lognormal(random, 5) * factor for factor in (1.0, 1.25))
        ratio = estimate(fast.tolist(), seed=trial) - estimate(slow.tolist(), seed=trial + 1000)
        found += ratio.value - ratio.half_width() > 0
    assert found / 200 > 0.8


def test_the_interval_includes_the_spread_between_boots() -> None:
    """Four boots of five runs, most spread between boots: taking the twenty runs as independent
    would be far too sure of itself."""
    random = np.random.default_rng(9)
    boots = np.repeat(np.arange(4), 5)
    hits = {"by boot": 0, "as one": 0}
    for trial in range(300):
        pair = [
            np.exp(0.05 * random.standard_normal(4)[boots] + 0.02 * random.standard_normal(20))
            for _ in range(2)
        ]
        for name, groups in (("by boot", boots), ("as one", np.zeros(20, dtype=int))):
            ours, theirs = (
                estimate(values.tolist(), groups.tolist(), derived_seed(trial, str(side)))
                for side, values in enumerate(pair)
            )
            ratio = ours - theirs
            hits[name] += abs(ratio.value) <= ratio.half_width()
    assert hits["by boot"] / 300 >= 0.92
    assert hits["as one"] / 300 < 0.75


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
    """Against all orders of six values."""
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
        (100.0, 0.021, Verdict.INCONCLUSIVE),
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


@given(st.floats(50, 200), st.floats(1e-4, 0.5), st.floats(0.5, 20))
@settings(max_examples=200)
def test_the_repetitions_that_settle_do_and_one_less_does_not(
    percent: float, half: float, margin: float
) -> None:
    ratio = at(percent, half)
    assume(judge(ratio, margin) is Verdict.INCONCLUSIVE)
    needed = repetitions_to_settle(ratio, margin, 5)
    assert 5 < needed <= MOST_REPETITIONS

    def with_repetitions(count: int) -> Verdict:
        error, df = ratio.error * math.sqrt(5 / count), ratio.df * (count - 1) / 4
        return judge(Estimate(ratio.value, error, df), margin)

    if needed < MOST_REPETITIONS:
        assert with_repetitions(needed) is not Verdict.INCONCLUSIVE
    if needed > 6:
        assert with_repetitions(needed - 1) is Verdict.INCONCLUSIVE


def test_an_estimate_on_the_edge_is_never_settled() -> None:
    assert repetitions_to_settle(at(98.0, 0.01), 2.0, 5) == MOST_REPETITIONS
