"""The ratio from rounds: its coverage by simulation, and its special cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from noises import NOISES, Noise, disturbed, drift, lognormal, runs
from vtax.core.statistics.coarse import resolution
from vtax.core.statistics.results import Verdict
from vtax.core.statistics.rounds import TRIMMED_FROM, Run, log_ratio
from vtax.core.statistics.statistics import Estimate, student_t
from vtax.core.statistics.verdicts import judge


def one_pair(
    noise: Noise, random: np.random.Generator, rounds: int, own: int = 1, base: int = 2
) -> Estimate:
    """Two variants that are alike, in random order within each round."""
    logs = random.permuted(noise(random, rounds, own + base), axis=1)
    found = log_ratio(runs(logs[:, :own]), runs(logs[:, own:]))
    assert found is not None
    return found


def coverage(noise: Noise, rounds: int, trials: int = 300) -> float:
    random = np.random.default_rng(7)
    found = [one_pair(noise, random, rounds) for _ in range(trials)]
    return sum(abs(each.value) <= each.half_width() for each in found) / trials


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("rounds", [3, 5, 10, 30])
def test_the_interval_covers_what_it_promises(noise: Noise, rounds: int) -> None:
    # Three standard errors of 300 trials below 0.93 would be 0.886; docs/statistics.md has the
    # values of 3,000 trials.
    assert coverage(noise, rounds) >= 0.90


def test_what_changes_slowly_is_not_in_the_interval() -> None:
    """With a drift of 20 % over the run, a third of the width that unpaired values would have."""
    random = np.random.default_rng(3)
    paired, apart = [], []
    for _ in range(100):
        logs = random.permuted(drift(random, 8, 2), axis=1)
        found = log_ratio(runs(logs[:, :1]), runs(logs[:, 1:]))
        assert found is not None
        paired.append(found.half_width())
        apart.append(
            student_t(0.95, 14.0) * math.sqrt((logs[:, 0].var(ddof=1) + logs[:, 1].var(ddof=1)) / 8)
        )
    assert np.median(paired) < 0.45 * np.median(apart)


def test_single_disturbed_runs_hardly_widen_the_interval_of_many_rounds() -> None:
    random = np.random.default_rng(4)
    logs = disturbed(random, 30, 2)
    found = log_ratio(runs(logs[:, :1]), runs(logs[:, 1:]))
    low, high = stats.ttest_rel(logs[:, 0], logs[:, 1]).confidence_interval()
    assert found is not None
    assert 2 * found.half_width() < 0.6 * (high - low)


def test_complete_pairs_are_students_paired_t() -> None:
    logs = lognormal(np.random.default_rng(5), TRIMMED_FROM - 1, 2)
    found = log_ratio(runs(logs[:, :1]), runs(logs[:, 1:]))
    assert found is not None
    low, high = stats.ttest_rel(logs[:, 0], logs[:, 1]).confidence_interval()
    assert found.value - found.half_width() == pytest.approx(low, abs=1e-5)
    assert found.value + found.half_width() == pytest.approx(high, abs=1e-5)


def test_many_complete_pairs_are_yuens_trimmed_t() -> None:
    logs = lognormal(np.random.default_rng(6), 13, 2)
    found = log_ratio(runs(logs[:, :1]), runs(logs[:, 1:]))
    differences = logs[:, 0] - logs[:, 1]
    assert found is not None
    assert found.value == pytest.approx(stats.trim_mean(differences, 0.2), abs=1e-5)
    winsorized = np.asarray(stats.mstats.winsorize(differences, (0.2, 0.2)))
    # Yuen 1974: the winsorized deviation over (1 - 2 x 2/13) x root of 13, with 13 - 4 - 1.
    wanted = winsorized.std(ddof=1) / ((1 - 4 / 13) * math.sqrt(13))
    assert found.error == pytest.approx(wanted, rel=1e-3)
    assert found.df == 8


def test_rounds_with_more_runs_weigh_more() -> None:
    own = [Run(0, 0, 1.1), Run(1, 0, 1.213), Run(2, 0, 1.117)]
    base = [Run(0, 0, 1.02)] * 4 + [Run(1, 0, 1.01), Run(2, 0, 1.03)]
    found = log_ratio(own, base)
    weights = np.array([0.8, 0.5, 0.5])
    logs = np.log([1.1 / 1.02, 1.213 / 1.01, 1.117 / 1.03])
    assert found is not None
    assert found.value == pytest.approx(float((weights * logs).sum() / weights.sum()))


def test_only_rounds_in_which_both_ran_count() -> None:
    own = [Run(0, 0, 1.1), Run(1, 0, 1.2)]
    base = [Run(1, 0, 1.03), Run(2, 0, 1.07)]
    assert log_ratio(own, base) is None
    found = log_ratio([*own, Run(2, 0, 1.17)], base)
    assert found is not None and found.df == 1


def test_boots_are_a_level() -> None:
    """Four boots of five rounds with most of the spread between boots."""
    random = np.random.default_rng(9)
    boots = np.repeat(np.arange(4), 5)
    hits = {"by boot": 0, "as one": 0}
    for _ in range(300):
        own = 0.05 * random.standard_normal(4)[boots] + 0.02 * random.standard_normal(20)
        base = runs(0.02 * random.standard_normal((20, 1)))
        for name, groups in (("by boot", boots), ("as one", 0 * boots)):
            found = log_ratio(
                [Run(i, int(groups[i]), math.exp(value)) for i, value in enumerate(own)], base
            )
            assert found is not None
            hits[name] += abs(found.value) <= found.half_width()
    assert hits["by boot"] / 300 >= 0.90
    assert hits["as one"] / 300 < 0.75


def test_no_interval_is_below_what_the_clock_resolves() -> None:
    same = [Run(number, 0, 0.12) for number in range(3)]
    found = log_ratio(same, same)
    # Each side may be off by half a step of 0.01, however many equal values there are.
    assert found is not None
    assert found.bias == pytest.approx(0.01 / 0.12)
    assert found.half_width() >= 0.01 / 0.12


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([0.12, 0.12, 0.14], 0.02),
        ([0.12, 0.12], 0.01),
        ([0.123, 0.12], 0.001),
        ([1e-05, 1.2e-05], 1e-06),
        ([3.0, 3.0], 1.0),
        ([120.0], 1.0),
    ],
)
def test_the_step_of_values(values: list[float], step: float) -> None:
    assert resolution(values) == pytest.approx(step)


def test_false_verdicts_are_as_rare_as_promised() -> None:
    """On the edge of the margin, *equivalent* is wrong, and so is *slower*."""
    random = np.random.default_rng(11)
    edge = -math.log(0.98)
    wrong = {Verdict.EQUIVALENT: 0, Verdict.SLOWER: 0}
    trials = 1500
    for _ in range(trials):
        logs = 0.005 * random.standard_normal((8, 2))
        found = log_ratio(runs(logs[:, :1] - edge), runs(logs[:, 1:]))
        assert found is not None
        verdict = judge(found, 2.0)
        if verdict in wrong:
            wrong[verdict] += 1
    # 5 % and 2.5 %, each with three standard errors of this many trials.
    assert wrong[Verdict.EQUIVALENT] / trials < 0.05 + 0.017
    assert wrong[Verdict.SLOWER] / trials < 0.025 + 0.012


values = st.lists(st.floats(0.01, 100), min_size=2, max_size=14)


@given(values, values)
def test_exchanging_the_sides_inverts_the_ratio(a: list[float], b: list[float]) -> None:
    own, base = ([Run(i, 0, value) for i, value in enumerate(each)] for each in (a, b))
    one, other = log_ratio(own, base), log_ratio(base, own)
    assert one is not None and other is not None
    assert other.value == pytest.approx(-one.value, abs=1e-9)
    assert other.error == pytest.approx(one.error, abs=1e-9)
