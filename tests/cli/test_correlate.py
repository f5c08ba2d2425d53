"""Correlations that are there are found, those that are not are not; the verb around them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

import recording_data
from command_line import vtax
from vtax.analysis.autocorrelation import autocorrelations, effective_sizes
from vtax.analysis.correlation import Matrix, Method, correlate, difference, never_together
from vtax.analysis.discoveries import adjusted
from vtax.analysis.intervals import By, Event, Per, Recording
from vtax.cli.variadic import _repeated

ALPHA = 0.05


def made(values: recording_data.Floats, cpus: int = 1) -> Recording:
    """A recording whose event rates per second are the columns of `values`, plus 100."""
    n, k = values.shape
    names = [f"test.e{i}" for i in range(k)]
    frame = pl.DataFrame(
        {
            "seq": np.tile(np.arange(n // cpus), cpus),
            "cpu": np.repeat(np.arange(cpus), n // cpus),
            "time_ns": np.arange(1, n + 1) * 1_000_000_000,
            "length_ns": np.full(n, 1_000_000_000),
            "length_instructions": pl.Series([None] * n, dtype=pl.Int64),
            "length_cycles": pl.Series([None] * n, dtype=pl.Int64),
            **{name: values[:, i] + 100.0 for i, name in enumerate(names)},
        }
    )
    return Recording(Path("made"), "made", frame, tuple(Event(name=n) for n in names), ())


def matrix(runs: Sequence[Recording], method: Method = Method.PEARSON) -> Matrix:
    return correlate(runs, runs[0].events, method=method, per=Per.SECOND, alpha=ALPHA)


def allowed(trials: int) -> int:
    """More false alarms than this have a probability under 0.1 % at a rate of `ALPHA`."""
    from scipy.stats import binom

    return int(binom.ppf(0.999, trials, ALPHA))


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize(
    ("n", "low", "high", "runs"), [(100, 0.0, 0.9, 1), (400, 0.0, 0.97, 1), (300, -0.9, 0.9, 3)]
)
def test_independent_series_that_remember_their_past_are_not_correlated(
    method: Method, n: int, low: float, high: float, runs: int
) -> None:
    random = np.random.default_rng(20)
    trials = 100
    wrong = 0
    for _ in range(trials):
        ones = [
            made(recording_data.ar1(random, n, random.uniform(low, high, 10))) for _ in range(runs)
        ]
        wrong += bool(matrix(ones, method).significant.any())
    assert wrong <= allowed(trials)


def test_without_the_effective_size_they_would_be() -> None:
    """The test above can fail: white-noise statistics find something in most matrices."""
    random = np.random.default_rng(20)
    wrong = 0
    for _ in range(50):
        values = recording_data.ar1(random, 400, random.uniform(0.0, 0.97, 10))
        z = np.arctanh(np.corrcoef(values, rowvar=False)[np.triu_indices(10, k=1)])
        p = np.array([math.erfc(abs(one) * math.sqrt(397 / 2)) for one in z])
        wrong += bool((adjusted(p) <= ALPHA).any())
    assert wrong > 25


@pytest.mark.parametrize(("runs", "spread"), [(1, 0.0), (2, 0.4), (3, 0.0), (3, 0.4)])
def test_two_sets_of_the_same_kind_do_not_differ(runs: int, spread: float) -> None:
    """Also when single runs do, by a random strength of each event's link to the others."""
    random = np.random.default_rng(21)
    trials = 60
    wrong = 0
    for _ in range(trials):
        sides = []
        for _ in range(2):
            sides.append(matrix([_linked(random, spread) for _ in range(runs)]))
        wrong += any(change.significant for change in difference(*sides).changes)
    assert wrong <= allowed(trials)


def _linked(random: np.random.Generator, spread: float, k: int = 8) -> Recording:
    own = recording_data.ar1(random, 300, np.linspace(0.0, 0.9, k + 1))
    strength = np.linspace(-2.0, 2.0, k) * (1.0 + spread * random.normal(size=k))
    return made(own[:, :k] + strength * own[:, k:])


def test_a_difference_that_is_there_is_found_and_ranked_first() -> None:
    random = np.random.default_rng(22)

    def run(strength: float) -> Recording:
        values = random.normal(size=(400, 4))
        values[:, 1] += strength * values[:, 0]
        values[:, 3] += values[:, 2]
        return made(values)

    ours, theirs = ([run(strength) for _ in range(3)] for strength in (1.0, 0.0))
    found = difference(matrix(ours), matrix(theirs))
    first = found.changes[0]
    assert (first.first, first.second, first.significant) == ("test.e0", "test.e1", True)
    assert first.difference == pytest.approx(math.sqrt(0.5), abs=0.1)
    assert [change.significant for change in found.changes[1:]] == [False] * 5


@given(seed=st.integers(0, 2**32 - 1), runs=st.integers(1, 3), method=st.sampled_from(Method))
@settings(max_examples=30, deadline=None)
def test_a_matrix_does_not_depend_on_units_and_is_symmetric(
    seed: int, runs: int, method: Method
) -> None:
    random = np.random.default_rng(seed)
    values = [recording_data.ar1(random, 60, np.linspace(0, 0.5, 4)) for _ in range(runs)]
    one = matrix([made(v) for v in values], method)
    other = matrix([made(v * np.array([1, 10, 0.5, 3])) for v in values], method)
    assert np.allclose(one.z[0, 1:], other.z[0, 1:])
    assert np.allclose(np.nan_to_num(one.q), np.nan_to_num(one.q.T))
    assert (np.abs(one.r) <= 1.0).all()
    assert ((one.q >= one.p) | np.isnan(one.p)).all()


def test_one_run_gives_the_plain_correlation() -> None:
    values = np.random.default_rng(1).normal(size=(50, 3))
    found = matrix([made(values)])
    assert found.r == pytest.approx(np.corrcoef(values, rowvar=False))
    ranked = matrix([made(values)], Method.SPEARMAN)
    from scipy.stats import spearmanr

    assert ranked.r == pytest.approx(spearmanr(values).statistic)


def test_runs_are_averaged_by_fishers_z() -> None:
    random = np.random.default_rng(2)
    values = [random.normal(size=(80, 2)) for _ in range(3)]
    for strength, one in zip((0.1, 0.9, 0.4), values, strict=True):
        one[:, 1] += strength * one[:, 0]
    singles = [matrix([made(one)]) for one in values]
    together = matrix([made(one) for one in values])
    z = np.array([single.z[0, 1] for single in singles])
    variances = np.array([single.variance[0, 1] for single in singles])
    # DerSimonian & Laird 1986, written out.
    w = 1.0 / variances
    scatter = (w * (z - (w * z).sum() / w.sum()) ** 2).sum()
    tau = (scatter - 2.0) / (w.sum() - (w**2).sum() / w.sum())
    assert tau > 0
    weights = 1.0 / (variances + tau)
    assert together.z[0, 1] == pytest.approx((z * weights).sum() / weights.sum())
    assert together.variance[0, 1] == pytest.approx(1.0 / weights.sum())
    assert together.between[0, 1] == pytest.approx(1.0 / weights.sum() - 1.0 / w.sum())


def test_more_cpus_of_one_run_are_no_more_certainty() -> None:
    values = np.random.default_rng(3).normal(size=(100, 2))
    one = matrix([made(values)])
    twice = matrix([made(np.vstack([values, values]), cpus=2)])
    assert twice.z[0, 1] == pytest.approx(one.z[0, 1])
    assert twice.variance[0, 1] == pytest.approx(one.variance[0, 1])


def test_constant_absent_and_equal_events_are_left_out_with_the_reason() -> None:
    values = np.random.default_rng(4).normal(size=(100, 6))
    values[:, 1] = 5.0
    values[:, 2] = np.nan
    values[10:, 3] = np.nan
    values[:, 5] = 2.0 * values[:, 4]
    run = made(values)
    null = [pl.col(event.name).fill_nan(None) for event in run.events]
    found = matrix([Recording(run.path, "", run.frame.with_columns(null), run.events, ())])
    assert found.events == ("test.e0", "test.e4")
    assert dict(found.left_out) == {
        "test.e1": "constant",
        "test.e2": "not measured",
        "test.e3": "measured in fewer than 20 intervals",
        "test.e5": "the same as test.e4",
    }


def test_events_that_took_turns_are_not_guessed() -> None:
    values = np.random.default_rng(5).normal(size=(300, 3))
    values[:, 1] += values[:, 0]
    values[::2, 0] = np.nan
    values[1::2, 1] = np.nan
    run = made(values)
    null = [pl.col(event.name).fill_nan(None) for event in run.events]
    turns = Recording(run.path, "", run.frame.with_columns(null), run.events, ())
    found = matrix([turns])
    assert math.isnan(found.z[0, 1])
    assert found.intervals[0, 2] == 150
    assert never_together(turns, turns.events, By.CPU) == 2
    joined = correlate([turns], turns.events, per=Per.SECOND, merge=2)
    assert math.isfinite(joined.z[0, 1])


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40))
def test_adjusted_p_agrees_with_scipy(values: list[float]) -> None:
    from scipy.stats import false_discovery_control

    p = np.array(values)
    assert adjusted(p) == pytest.approx(false_discovery_control(p, method="by"))
    with_gap = np.append(p, np.nan)
    assert adjusted(with_gap)[:-1] == pytest.approx(adjusted(p))


def test_effective_size_of_known_processes() -> None:
    random = np.random.default_rng(6)
    rhos = np.array([0.0, 0.5, 0.9])
    sizes = np.mean(
        [effective_sizes(recording_data.ar1(random, 2000, rhos)) for _ in range(40)], axis=0
    )
    product = np.outer(rhos, rhos)
    theory = 2000 * (1 - product) / (1 + product)
    off = np.triu_indices(3, k=1)
    assert sizes[off] == pytest.approx(theory[off], rel=0.12)
    rho = autocorrelations(recording_data.ar1(random, 100_000, rhos), 2)
    assert rho[0] == pytest.approx(rhos, abs=0.02)
    assert rho[1] == pytest.approx(rhos**2, abs=0.02)


@pytest.mark.parametrize(
    ("given_words", "taken"),
    [
        (["a", "--against", "b", "c", "--json"], "a --against b --against c --json"),
        (["--against", "b", "--", "a"], "--against b -- a"),
        (["a", "--against", "--json"], "a --against --json"),
        (["a", "b"], "a b"),
    ],
)
def test_against_takes_all_words_up_to_the_next_option(given_words: list[str], taken: str) -> None:
    assert " ".join(_repeated(given_words)) == taken


def test_printed_tables(runs: Path, snapshot: SnapshotAssertion) -> None:
    words = ("correlate", "lab-1", "lab-2", "--against", "native-1", "native-2", "--out", "out")
    done = vtax(*words, cwd=runs)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == snapshot
    assert "\x1b" not in done.stdout
    assert (runs / "out" / "correlation.html").stat().st_size > 1_000_000


def test_json_has_all_pairs_and_the_difference(runs: Path) -> None:
    words = ("correlate", "lab-1", "--against", "native-1", "--json", "--method", "spearman")
    done = vtax(*words, "--events", "hw.*,sched.*", "--per", "s", cwd=runs)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["matrix"]["per"] == "s"
    k = len(content["matrix"]["events"])
    assert len(content["matrix"]["pairs"]) == k * (k - 1) // 2
    first = content["against"]["difference"]["changes"][0]
    assert {first["first"], first["second"]} == {"hw.branch_misses", "sched.switches"}
    assert first["significant"]
    assert first["r"] - first["r_against"] == pytest.approx(first["change"])
    assert any("one run" in note for note in content["notes"])


def test_help(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    done = vtax("correlate", "--help", cwd=tmp_path)
    assert done.stdout == snapshot


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere",), "'nowhere' is not a run folder"),
        (("lab-1", "--events", "kvm.exts"), "did you mean 'kvm.exits'?"),
        (("lab-1", "--method", "pearsn"), "unknown method 'pearsn'; did you mean 'pearson'?"),
    ],
)
def test_misuse_is_one_line(runs: Path, words: tuple[str, ...], message: str) -> None:
    done = vtax("correlate", *words, cwd=runs)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
