"""Real correlations are found and others are not; the verb around them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

import recording_data
from command_line import vtax
from vtax.core.command.variadic import _repeated
from vtax.core.recorder.intervals import Event, Recording
from vtax.core.recorder.ways import By, Detrend, Method, Per
from vtax.record.correlate.analysis import (
    Matrix,
    correlate,
    correlations,
    difference,
    never_together,
)
from vtax.record.correlate.autocorrelation import effective_sizes, weighed
from vtax.record.correlate.conditioning import conditioned
from vtax.record.correlate.discoveries import adjusted

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


def matrix(runs: Sequence[Recording], method: Method = Method.SPEARMAN) -> Matrix:
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
    """Two sets do not differ even when single runs do, by a random strength of each event's
    link."""
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
    from scipy.stats import spearmanr

    assert found.r == pytest.approx(spearmanr(values).statistic)
    linear = matrix([made(values)], Method.PEARSON)
    assert linear.r == pytest.approx(np.corrcoef(values, rowvar=False))


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


def test_the_length_is_given() -> None:
    """The partial correlation of three normal variables is (rxy - rxz ryz) / sqrt(...)."""
    random = np.random.default_rng(7)
    lengths, first, second = random.normal(size=(3, 20_000))
    values = np.column_stack([lengths + first, lengths + first + 2.0 * second])
    for method in Method:
        left, removed = conditioned(values, 100.0 + lengths, method, Detrend.NONE)
        xy, xz, yz = 2.0 / math.sqrt(12.0), 1.0 / math.sqrt(2.0), 1.0 / math.sqrt(6.0)
        expected = (xy - xz * yz) / math.sqrt((1.0 - xz**2) * (1.0 - yz**2))
        assert np.corrcoef(left, rowvar=False)[0, 1] == pytest.approx(expected, abs=0.03)
        assert removed == (3 if method is Method.SPEARMAN else 2)


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("rates", [True, False])
@pytest.mark.parametrize("varying", [0.05, 0.3])
def test_a_common_length_relates_nothing(method: Method, rates: bool, varying: float) -> None:
    """Independent counts over a common length, or counts that grow with it (Pearson 1897)."""
    random = np.random.default_rng(23)
    wrong, spurious = 0, []
    for _ in range(100):
        lengths = np.clip(random.normal(1.0, varying, 200), 0.2, None)
        if rates:
            values = random.poisson(1000, (200, 10)) / lengths[:, None]
        else:
            values = random.poisson(1000 * lengths[:, None], (200, 10)).astype(float)
        wrong += discovered(values, lengths, method)
        spurious.append(np.corrcoef(values[:, :2], rowvar=False)[0, 1])
    assert wrong <= allowed(100)
    assert min(spurious) > 0.5


def discovered(values: recording_data.Floats, lengths: recording_data.Floats, way: Method) -> bool:
    """Whether any pair of columns is called correlated."""
    found = correlations(values, lengths, way)
    upper = np.triu_indices(values.shape[1], k=1)
    p = [
        math.erfc(abs(z) / math.sqrt(2.0 * v))
        for z, v in zip(found.z[upper], found.variance[upper], strict=True)
    ]
    return bool((adjusted(np.array(p)) <= ALPHA).any())


def _bursts(random: np.random.Generator, n: int, count: int, length: int) -> recording_data.Floats:
    """Counts that are ten times as frequent in a few stretches, at different places in each
    column."""
    values = random.poisson(20.0, (n, 10)).astype(float)
    for column, start in zip(
        np.repeat(range(10), count), random.integers(0, n, 10 * count), strict=True
    ):
        values[start : start + length, column] *= 10.0
    return values


def _trend(random: np.random.Generator, n: int) -> recording_data.Floats:
    slopes = random.choice([-20.0, -2.0, 0.5, 2.0], 10)
    return random.normal(size=(n, 10)) + np.linspace(-1.0, 1.0, n)[:, None] * slopes


def _walk(random: np.random.Generator, n: int) -> recording_data.Floats:
    return np.cumsum(random.normal(size=(n, 10)), axis=0)


UNRELATED: dict[str, Callable[[np.random.Generator, int], recording_data.Floats]] = {
    "AR(1) 0.95": lambda random, n: recording_data.ar1(random, n, np.full(10, 0.95)),
    "AR(1) 0.95 and noise": lambda random, n: (
        recording_data.ar1(random, n, np.full(10, 0.95)) + random.normal(size=(n, 10))
    ),
    "trends": _trend,
    "random walks": _walk,
    "random walks and noise": lambda random, n: (
        _walk(random, n) * 3.0 / math.sqrt(n) + random.normal(size=(n, 10))
    ),
    "single bursts": lambda random, n: _bursts(random, n, n // 50, 1),
    "long bursts": lambda random, n: _bursts(random, n, 3, n // 40),
    "one burst": lambda random, n: _bursts(random, n, 1, n // 10),
    "outliers": lambda random, n: random.standard_t(2, size=(n, 10)),
    "rare counts": lambda random, n: random.poisson(0.1, (n, 10)).astype(float),
}


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("kind", UNRELATED)
def test_unrelated_series_are_not_correlated(method: Method, kind: str) -> None:
    random = np.random.default_rng(24)
    sizes = (100, 300, 1000) * 50
    wrong = sum(discovered(UNRELATED[kind](random, n), np.ones(n), method) for n in sizes)
    assert wrong <= allowed(len(sizes))


@pytest.mark.parametrize("n", [100, 1000])
def test_relations_are_found_in_spite_of_a_common_step(n: int) -> None:
    """Exits come three times as often in the second half, and each costs misses."""
    random = np.random.default_rng(25)
    found = 0
    for _ in range(50):
        exits = random.poisson(np.where(np.arange(n) < n // 2, 20.0, 60.0))
        misses = 40.0 * exits + random.normal(0.0, 200.0, n)
        values = np.column_stack([exits, misses, random.normal(size=(n, 8))])
        found += discovered(values, np.ones(n), Method.SPEARMAN)
    assert found >= 48


def test_trends_are_removed_if_wished() -> None:
    random = np.random.default_rng(26)
    line = np.arange(400)[:, None] / 100.0
    left = [
        conditioned(random.normal(size=(400, 2)) + line, np.ones(400), way, Detrend.LINEAR)
        for way in Method
    ]
    for values, removed in left:
        assert removed == 1
        assert abs(np.corrcoef(values, rowvar=False)[0, 1]) < 0.15
        assert np.abs(line[:, 0] @ values) == pytest.approx(0.0, abs=1e-6)
    walk = np.cumsum(random.normal(size=(400, 2)), axis=0)
    steps, _ = conditioned(walk, np.ones(400), Method.PEARSON, Detrend.DIFFERENCE)
    assert steps == pytest.approx(np.diff(walk, axis=0))
    assert (
        correlations(walk, np.ones(400), Method.PEARSON, Detrend.DIFFERENCE).intervals[0, 1] == 399
    )


def test_effective_sizes() -> None:
    random = np.random.default_rng(6)
    white = weighed(random.normal(size=(2000, 20)))
    upper = np.triu_indices(20, k=1)
    assert effective_sizes(white)[upper].mean() == pytest.approx(2000, rel=0.1)
    # One movement, or one value that outweighs all, is worth one.
    cosine = np.cos(np.pi * 3 * (np.arange(500) + 0.5) / 500)
    single = np.eye(500)[:, 100]
    lone = np.column_stack([cosine, single]) / np.sqrt([250.0, 1.0])
    assert np.diag(effective_sizes(lone)) == pytest.approx([1.0, 1.0])


def test_a_large_matrix_is_fast() -> None:
    random = np.random.default_rng(8)
    values, lengths = random.normal(size=(10_000, 20)), random.normal(1.0, 0.1, 10_000)
    start = time.process_time()
    correlations(values, lengths, Method.SPEARMAN)
    assert time.process_time() - start < 2.0


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


def test_what_the_length_determines_is_left_out() -> None:
    random = np.random.default_rng(4)
    run = made(random.normal(size=(100, 4)))
    lengths = random.integers(900_000_000, 1_100_000_000, 100)
    columns = {"length_ns": lengths, "test.e0": np.full(100, 7), "test.e1": 3 * lengths**2}
    frame = run.frame.with_columns(**{name: pl.Series(v) for name, v in columns.items()})
    for method in Method:
        found = matrix([Recording(run.path, "", frame, run.events, ())], method)
        why = "determined by the intervals' length; another --per may show it"
        assert found.left_out == (("test.e0", why), ("test.e1", why))


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
    assert "heat map of 6 events" in (runs / "out" / "correlation.html").read_text()


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


def test_removed_trends_are_said(runs: Path) -> None:
    """Exits treble in the second half: without the step their parts are less of the whole."""
    found = {}
    for trend in Detrend:
        words = ("correlate", "lab-1", "--events", "kvm.*", "--detrend", trend.value, "--json")
        matrix_ = json.loads(vtax(*words, cwd=runs).stdout)["matrix"]
        assert matrix_["detrend"] == trend.value
        found[trend] = matrix_["pairs"][0]["r"]
    assert found[Detrend.NONE] > found[Detrend.LINEAR] + 0.01
    assert found[Detrend.LINEAR] > found[Detrend.DIFFERENCE] + 0.01


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
