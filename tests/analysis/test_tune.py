"""Verdicts of `vtax tune` on what is made with seeded noise, and on what machines may say."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import tune_data
from tune_data import MARGIN, SPECS, measured, noise
from vtax.analysis.statistics import from_interval
from vtax.analysis.tune import (
    MATTERS,
    OPEN,
    VARIABILITY,
    Candidate,
    Measured,
    environment,
    equivalence,
    transfers,
    usual_edge,
)
from vtax.formats.tuning import CacheEdge, Probe, Probed, Rated, Tuned

NATIVE, UML, TCG = SPECS


def verdicts(seen: list[Measured], a: str, b: str) -> dict[str, tuple[str, str | None]]:
    found = equivalence(seen, transfers(seen, MARGIN), MARGIN)
    return {each.quantity: (each.verdict, each.meaning) for each in found
            if (each.a, each.b) == (a, b)}  # fmt: skip


def test_alike_environments() -> None:
    found = verdicts(measured(), NATIVE, UML)
    for name in ("l1_size", "pipeline_cycles", "peak_scalar", "peak_avx512", *tune_data.ROUTINES,
                 "openblas", "dgemm MU", "dgemm with CacheEdge"):  # fmt: skip
        assert found[name][0] == "equivalent", name
    assert found["dgemm NB"] == found["dger NB"] == ("differs", VARIABILITY)
    assert found["CacheEdge"] == ("differs", VARIABILITY)


def test_different_environments() -> None:
    found = verdicts(measured(), NATIVE, TCG)
    assert found["peak_scalar"] == found["dgemm_nn"] == ("differs", None)
    assert found["pipeline_cycles"][0] == "equivalent"
    assert found["peak_avx512"] == ("not known", "there is no AVX-512")
    assert found["dgemm VECTOR"] == ("differs", MATTERS)


def test_transfer() -> None:
    found = {(each.here, each.winner_of): each for each in transfers(measured(), MARGIN)
             if each.routine == "dgemm_nn"}  # fmt: skip
    lost = found[NATIVE, TCG]
    assert lost.verdict == "differs" and lost.loss_percent == pytest.approx(20, abs=1)
    assert lost.low and lost.high and 19 < lost.low < 20 < lost.high < 21
    assert found[NATIVE, UML].verdict == "equivalent"
    refused = found[TCG, NATIVE]
    assert refused.verdict == "not known" and refused.loss_percent is None
    assert "no avx512" in (refused.reason or "")


def test_without_the_other_winner_it_is_open_whether_a_parameter_matters() -> None:
    seen = measured()
    for each in seen:
        each.runs = {key: runs for key, runs in each.runs.items()
                     if key.kind == "peer" or key.name == each.spec}  # fmt: skip
    assert verdicts(seen, NATIVE, UML)["dgemm NB"] == ("differs", OPEN)


def test_one_round_decides_nothing() -> None:
    found = verdicts(measured(rounds=1), NATIVE, TCG)
    assert found["dgemm_nn"] == ("not known", "it takes two rounds at least")


def test_noise_beyond_the_margin_is_not_equivalent() -> None:
    seen, chance = measured(), random.Random(3)
    for each in seen[:2]:
        own = each.runs[Candidate("winner", each.spec)]
        own["dgemm_nn"] = noise(100, 4, chance, 0.2)
    assert verdicts(seen, NATIVE, UML)["dgemm_nn"][0] == "not known"


@pytest.mark.parametrize(
    ("own", "other", "said"),
    [
        ((32, 32, 40), (32, 32, 40), "equivalent"),
        ((32, 32, 40), (64, 64, 80), "differs"),
        ((32, 28, 48), (40, 32, 56), "not known"),
        ((32, None, None), (32, None, None), "not known"),
    ],
)
def test_sizes_come_in_steps(own: Any, other: Any, said: str) -> None:
    def size(values: tuple[float | None, ...]) -> Probed:
        value, low, high = (None if each is None else float(each) for each in values)
        return Probed(probes=(Probe(name="l1", unit="bytes", value=value, low=low, high=high),))

    seen = [Measured("a", probed=size(own)), Measured("b", probed=size(other))]
    (found,) = equivalence(seen, (), MARGIN)
    assert found.verdict == said and found.percent is None


def test_the_record_of_an_environment() -> None:
    found = environment(measured()[0], 1)
    assert found.winner and found.winner["NB"] == 256
    assert found.winner["gflops"] == pytest.approx(100, rel=0.01)
    assert found.percent_of_openblas == pytest.approx(100 / 1.05, rel=0.01)
    (peer,) = found.peers
    assert peer.percent_of_openblas == 100 and peer.version == "OpenBLAS 0.3.21"
    assert found.absent == {"blis": "it is not installed"}
    nothing = environment(Measured("x", failures=["it broke"]), 1)
    assert nothing.winner is None and nothing.failures == ("it broke",)


def test_the_usual_edge() -> None:
    def chosen(*edges: int | None) -> CacheEdge:
        return tune_data.cache_edge(0).model_copy(update={"chosen": edges})

    small, large = tune_data.SIZES[:2]
    assert usual_edge(chosen(small, large, small)) == small
    assert usual_edge(chosen(large, small)) == small
    assert usual_edge(chosen(None, None, small)) is None
    assert usual_edge(chosen()) is None
    assert usual_edge(chosen(12345)) is None, "no size that was measured"


def test_an_interval_becomes_an_estimate_and_back() -> None:
    found = from_interval(100.0, 98.0, 101.0, 20)
    assert found.half_width() == pytest.approx(0.0202, abs=1e-4)
    assert from_interval(5.0, 5.0, 5.0, 6).error == 0


@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(
        ["routines", "routine", "fields", "gflops", "low", "high", "cache_edge", "chosen", "x"]),
        inner, max_size=6),
    max_leaves=20,
))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_any_answer_is_of_the_form_or_refused(said: Any) -> None:
    try:
        found = Tuned.model_validate(said)
    except ValidationError:
        return
    environment(Measured("x", tuned=found), 1)


def test_a_rate_is_above_zero_and_finite() -> None:
    for wrong in (0.0, -1.0, float("inf"), float("nan"), 1e13, True, "1"):
        with pytest.raises(ValidationError):
            Rated(gflops=wrong)  # type: ignore[arg-type]
