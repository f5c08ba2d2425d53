"""The rank correlation and its interval, the choice of a predictor, and the advice from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import place_data
from vtax.place import hypothesis as place_hypothesis
from vtax.place import sensitivity as place_advice
from vtax.place.hypothesis import LEAST_PAIRS, Spread, fit, predicted, spearman, spread
from vtax.place.record import PlaceLoad, Predictor
from vtax.place.sensitivity import Sensitivity, Thread, advise, by_predictor, measured

THREAD = Thread(1, 2, "vhost-1", "vhost", "web")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=4, max_size=30))
def test_the_correlation_is_scipys(values: list[tuple[int, int]]) -> None:
    x, y = np.array(values, dtype=np.float64).T
    found = spearman(x, y)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert found is None
        return
    assert found is not None
    assert found.value == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert -1 - 1e-12 <= found.low <= found.value <= found.high <= 1 + 1e-12


@pytest.mark.parametrize(("n", "rho"), [(12, 0.0), (12, -0.6), (24, -0.8)])
def test_the_interval_covers_the_truth(n: int, rho: float) -> None:
    random = np.random.default_rng(7)
    # For a bivariate normal distribution, Spearman's correlation is 6/pi asin(rho/2).
    true = 6 / np.pi * np.arcsin(rho / 2)
    hits = 0
    for _ in range(1000):
        x, z = random.standard_normal((2, n))
        y = rho * x + np.sqrt(1 - rho**2) * z
        found = spearman(x, y)
        assert found is not None
        hits += found.low <= true <= found.high
    assert 0.93 <= hits / 1000 <= 0.98


def test_fewer_pairs_answer_nothing() -> None:
    found = place_hypothesis.hypothesis(place_data.loads(LEAST_PAIRS - 1))
    assert (found.rank_correlation, found.low, found.high) == (None, None, None)
    assert found.n == LEAST_PAIRS - 1 and found.answer == "not known"
    assert place_hypothesis.predictor(place_data.loads(LEAST_PAIRS - 1)) is None


def test_the_hypothesis_is_supported_where_it_holds() -> None:
    found = place_hypothesis.hypothesis(place_data.loads())
    assert found.answer == "supported" and found.n == 14
    assert found.rank_correlation is not None and found.rank_correlation < -0.9
    rivals = {each.predictor: each for each in place_hypothesis.rivals(place_data.loads())}
    assert rivals["run delay"].answer == "open"
    assert (rivals["batching"].n, rivals["batching"].answer) == (0, "not known")


def test_the_best_predictor_is_the_one_that_predicts() -> None:
    found = place_hypothesis.predictor(place_data.loads())
    assert found is not None and found.name in ("combined usage", "service CPU")
    assert found.leave_one_out_error < 0.2 * found.mean_error
    restored = Predictor.model_validate_json(found.model_dump_json())
    assert predicted(restored, found.mean) == predicted(found, found.mean)


def test_noise_predicts_nothing() -> None:
    """With the error divided among the predictors, one campaign in twenty at most finds one."""
    random = np.random.default_rng(3)
    loads = place_data.loads(14)
    found = 0
    for _ in range(200):
        shuffled = [
            load.model_copy(update={"at_full_speed": {name: random.random() for name in "abcde"}})
            for load in loads
        ]
        found += place_hypothesis.predictor(shuffled) is not None
    assert found <= 20


def test_leaving_one_out_is_what_refitting_gives() -> None:
    random = np.random.default_rng(1)
    x, y = random.random(12), random.random(12)
    errors = [
        y[i] - np.polyval(np.polyfit(np.delete(x, i), np.delete(y, i), 1), x[i]) for i in range(12)
    ]
    means = [y[i] - np.delete(y, i).mean() for i in range(12)]
    found = fit("x", x, y)
    assert found.leave_one_out_error == pytest.approx(np.sqrt(np.mean(np.square(errors))))
    assert found.mean_error == pytest.approx(np.sqrt(np.mean(np.square(means))))


def test_the_prediction_interval_covers_new_loads() -> None:
    random = np.random.default_rng(5)
    hits = 0
    for _ in range(400):
        x = random.random(14)
        x[0], x[1] = 0.0, 1.0
        y = 0.9 - 0.5 * x + 0.1 * random.standard_normal(14)
        new = random.random()
        found = predicted(fit("x", x, y), new)
        assert found is not None
        hits += found[1] <= 0.9 - 0.5 * new + 0.1 * random.standard_normal() <= found[2]
    assert 0.92 <= hits / 400 <= 0.98


def test_nothing_is_predicted_beyond_what_was_measured() -> None:
    line = fit("combined usage", np.arange(12.0), np.arange(12.0) / 12)
    assert predicted(line, 11.5) is None and predicted(line, -1) is None
    assert by_predictor(line, {"combined usage": 12.0}) is None
    assert by_predictor(line, {"service CPU": 5.0}) is None
    assert by_predictor(None, {"combined usage": 5.0}) is None
    known = by_predictor(line, {"combined usage": 5.0})
    assert known is not None and "predicted from its combined usage of 5" in known.source


def test_advice_follows_the_upper_end_of_the_interval() -> None:
    low = Sensitivity(0.02, -0.02, 0.06, "measured")
    slow = advise(THREAD, low, 50, 5)
    assert (slow.advice, slow.expected_loss_percent, slow.high) == ("slow", 1.0, 3.0)
    assert slow.low == -1.0 and "3.0 %" in slow.reason
    fast = advise(THREAD, Sensitivity(0.02, -0.2, 0.2, "measured"), 50, 5)
    assert fast.advice == "fast" and "more than 5 %" in fast.reason


def test_a_vcpu_stays_fast_and_the_unknown_is_unknown() -> None:
    known = Sensitivity(0.0, 0.0, 0.0, "measured")
    assert advise(Thread(1, 3, "CPU 0/KVM", "vcpu", "web"), known, 50, 5).advice == "fast"
    unknown = advise(THREAD, None, 50, 5)
    assert (unknown.advice, unknown.expected_loss_percent, unknown.low) == ("unknown", None, None)


def test_a_measured_load_gives_its_own_sensitivity() -> None:
    load = place_data.loads(2)[0]
    known = measured(load)
    assert known is not None and known.value == load.elasticity
    assert known.source == "measured in environment 0 with load 0"
    assert measured(load.model_copy(update={"low": None})) is None


def test_the_loss_is_elasticity_times_speed_lost() -> None:
    """The paper's ab: 14 % at half speed."""
    assert place_advice.loss(Sensitivity(0.28, 0.2, 0.4, "x"), 50) == pytest.approx((14, 10, 20))


def lost(value: float) -> PlaceLoad:
    return PlaceLoad(
        environment="e", load="l", points=(), elasticity=value, low=None, high=None,
        at_full_speed={},
    )  # fmt: skip


def test_a_spread_takes_39_pairs() -> None:
    loads = [lost(float(number)) for number in range(39)]
    assert spread(loads[:38]) is None
    assert spread(loads) == Spread(39, 19.0, 0.0, 38.0)
    assert spread(loads + loads[:1]) == Spread(40, 18.5, 0.0, 38.0)


def test_a_spread_covers_what_it_says() -> None:
    """The values are skewed and have two peaks: order statistics ask for no distribution."""
    chance = np.random.default_rng(7)
    for n in (39, 60, 79, 100):
        covered = 0
        for _ in range(2000):
            values = chance.exponential(1.0, n + 1) * chance.choice([-0.2, 1.0], n + 1)
            found = spread([lost(value) for value in values[:-1]])
            assert found is not None
            covered += found.low <= values[-1] <= found.high
        # 95 to 97.5 % by the formula; 2,000 draws are within 1.5 points of it.
        assert 0.935 <= covered / 2000 <= 0.99
