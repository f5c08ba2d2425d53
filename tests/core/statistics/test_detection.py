"""How many rounds a small difference takes: held against simulated campaigns, with vtax's own
interval and, independently of it, SciPy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vtax.core.statistics.detection import MOST, Needed, rounds_needed
from vtax.core.statistics.rounds import TRIMMED_FROM, Run, block_means, of_rounds

EFFECTS = {percent: -math.log1p(-percent / 100) for percent in (1, 2)}
CAMPAIGNS = 1000


def pilot(deviation: float, count: int = 400) -> list[float]:
    """Differences whose spread is exactly that of the normal noise to come."""
    quantiles = stats.norm.ppf((np.arange(count) + 0.5) / count)
    return list(deviation * quantiles / quantiles.std(ddof=1))


def simulated(count: int, effect: float, deviation: float) -> float:
    """The share of campaigns with that many rounds whose interval leaves out 0."""
    source = np.random.default_rng(count)
    seen = 0
    for row in source.normal(effect, deviation, (CAMPAIGNS, count)):
        found = of_rounds(list(row))
        assert found is not None
        seen += abs(found.value) > found.half_width()
    return seen / CAMPAIGNS


@pytest.mark.parametrize("percent", EFFECTS)
@pytest.mark.parametrize("deviation", [0.005, 0.0085, 0.01, 0.03])
def test_power_is_80_percent(percent: int, deviation: float) -> None:
    found = rounds_needed(pilot(deviation), EFFECTS[percent])
    assert found is not None and found.rounds is not None
    power = simulated(found.rounds, EFFECTS[percent], deviation)
    assert power >= 0.75
    if found.rounds > 20:
        assert power <= 0.85
    elif found.rounds > TRIMMED_FROM:
        # Yuen's interval is narrow by a few percent there: it sees a little more.
        assert power <= 0.89
    else:
        # Few rounds come in large steps of power, and one fewer has to be too few.
        assert simulated(found.rounds - 1, EFFECTS[percent], deviation) < 0.82


def test_few_rounds_agree_with_an_independent_power() -> None:
    """Below ten rounds it is the paired t test, whose power SciPy's noncentral t gives."""
    effect, deviation = EFFECTS[1], 0.0085
    found = rounds_needed(pilot(deviation), effect)
    assert found is not None and found.rounds is not None and found.rounds < 10

    def power(n: int) -> float:
        critical = stats.t.ppf(0.975, n - 1)
        return float(stats.nct.sf(critical, n - 1, effect / deviation * math.sqrt(n)))

    assert power(found.rounds - 1) < 0.8 <= power(found.rounds)


def test_noise_with_outliers_takes_the_trimmed_spread() -> None:
    """A tenth of rounds is disturbed by up to 50 %: the mean would take hundreds of rounds."""
    source = np.random.default_rng(5)

    def drawn(count: int, effect: float) -> list[float]:
        disturbed = source.random(count) < 0.1
        noise = np.where(disturbed, source.uniform(-0.5, 0.5, count), 0.0)
        return list(effect + source.normal(0, 0.01, count) + noise)

    def seen(count: int) -> float:
        found = [of_rounds(drawn(count, EFFECTS[2])) for _ in range(500)]
        return sum(abs(e.value) > e.half_width() for e in found if e is not None) / len(found)

    needed = rounds_needed(drawn(2000, 0.0), EFFECTS[2])
    assert needed is not None and needed.rounds == TRIMMED_FROM
    assert seen(TRIMMED_FROM - 1) < 0.75 <= seen(TRIMMED_FROM)


def test_the_range_has_the_true_number_in_four_of_five_cases() -> None:
    source = np.random.default_rng(3)
    truth = rounds_needed(pilot(0.02), EFFECTS[1])
    assert truth is not None and truth.rounds is not None
    inside = 0
    for _ in range(500):
        found = rounds_needed(list(source.normal(0, 0.02, 8)), EFFECTS[1])
        assert found is not None and found.low is not None
        inside += found.low <= truth.rounds <= (found.high or math.inf)
    assert 0.74 <= inside / 500 <= 0.86


def test_starts_that_differ_count_as_one_observation_each() -> None:
    """Six rounds in each start, and starts differ more than rounds: more rounds, by six."""
    source = np.random.default_rng(4)
    own, base = [], []
    for start in range(40):
        level = source.normal(0, 0.03)
        for each in range(6):
            own.append(Run(6 * start + each, start, math.exp(level + source.normal(0, 0.01))))
            base.append(Run(6 * start + each, start, 1.0))
    means, each_start = block_means(own, base)
    assert (len(means), each_start) == (40, 6)
    found = rounds_needed(means, EFFECTS[2], each=each_start)
    alone = rounds_needed([math.log(run.value) for run in own], EFFECTS[2])
    assert found is not None and found.rounds is not None and found.rounds % 6 == 0
    assert alone is not None and alone.rounds is not None and found.rounds > 3 * alone.rounds


def test_what_cannot_be_seen_has_no_number() -> None:
    noisy = rounds_needed([-1.0, 1.0, -1.0, 1.0, 0.5], EFFECTS[1])
    assert noisy == Needed(None, None, None)
    # Values in steps move the ratio by more than the difference, however many rounds there are.
    assert rounds_needed(pilot(0.01), EFFECTS[1], bias=0.011) == Needed(None, None, None)
    assert rounds_needed([0.0, 0.1], EFFECTS[1]) is None
    assert rounds_needed([0.0, 0.1, 0.2], EFFECTS[1], places=True) is None


@given(
    st.lists(st.floats(-0.2, 0.2), min_size=4, max_size=30),
    st.floats(0.001, 0.05),
    st.booleans(),
)
def test_larger_differences_never_take_longer(
    differences: list[float], effect: float, places: bool
) -> None:
    small = rounds_needed(differences, effect, places=places)
    large = rounds_needed(differences, 2 * effect, places=places)
    assert small is not None and large is not None
    ends = [(MOST + 1 if each is None else each) for each in (small.rounds, large.rounds)]
    assert 2 <= ends[1] <= ends[0]
    low, middle, high = (each or MOST + 1 for each in (small.low, small.rounds, small.high))
    assert low <= middle <= high
