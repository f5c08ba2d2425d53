"""Results and verdicts from samples."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import report_data
from comparison_data import (
    CONTROL,
    FACTS,
    NATIVE,
    STEADY,
    UML,
    environment,
    kinds,
    record,
    run,
    sample,
    values,
)
from report_data import render
from vtax.compare.analysis import compare
from vtax.compare.page import to_json
from vtax.core.formats.model import Better, Failure
from vtax.core.page.format import significant
from vtax.core.page.tables import plain
from vtax.core.statistics.results import Verdict


def test_twice_the_time_is_half_the_performance() -> None:
    found = run({"native": STEADY, "uml": [2 * v for v in STEADY]})["uml"]
    assert found.percent_of_baseline == pytest.approx(50)
    assert found.percent_of_baseline_best == pytest.approx(50)
    assert found.ci_low is not None and found.ci_high is not None
    assert 45 < found.ci_low < 50 < found.ci_high < 55
    assert found.verdict is Verdict.SLOWER
    assert (found.n, found.best, found.median) == (5, 1.98, 2.0)
    assert found.median_low is not None and found.median_low < 2.0
    assert found.repetitions_needed is None


def test_twice_the_rate_is_twice_the_performance() -> None:
    found = run({"native": STEADY, "uml": [2 * v for v in STEADY]}, better="higher")["uml"]
    assert found.percent_of_baseline == pytest.approx(200)
    assert found.verdict is Verdict.FASTER
    assert found.best == 2.02


def test_the_baseline_is_100_per_cent_of_itself() -> None:
    found = run({"native": STEADY})["native"]
    assert found.verdict is Verdict.BASELINE
    assert found.percent_of_baseline == 100
    assert (found.ci_low, found.ci_high) == (None, None)
    assert found.median_low is not None and found.median_high is not None
    assert found.median_low < 1.0 < found.median_high


def test_little_spread_about_the_same_value_is_equivalent() -> None:
    tight = [1 + (v - 1) / 10 for v in STEADY]
    assert run({"native": tight, "uml": tight})["uml"].verdict is Verdict.EQUIVALENT


def test_much_spread_is_inconclusive_with_a_number_that_would_settle_it() -> None:
    found = run({"native": STEADY, "uml": [0.9, 1.1, 1.0, 0.95, 1.05]})["uml"]
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.repetitions_needed is not None
    assert found.repetitions_needed.low > 5


def test_one_value_has_no_interval_and_says_so() -> None:
    found = run({"native": [1.0], "uml": [2.0]})["uml"]
    assert found.percent_of_baseline == 50
    assert (found.ci_low, found.stdev, found.median_low) == (None, None, None)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.repetitions_needed is None


def test_two_values_have_an_honest_interval() -> None:
    found = run({"native": [1.0, 1.01], "uml": [1.1, 1.11]})["uml"]
    assert found.ci_low is not None and found.ci_high is not None
    assert found.ci_high - found.ci_low > 2


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_values_not_above_zero_have_no_ratio_and_a_reason(bad: float) -> None:
    found = run({"native": STEADY, "uml": [bad] * 5})["uml"]
    assert found.percent_of_baseline is None
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reason is not None and "above zero" in found.reason
    assert (found.median, found.median_low, found.median_high) == (bad, bad, bad)
    assert run({"native": [bad] * 5, "uml": STEADY})["uml"].percent_of_baseline is None


def test_one_zero_leaves_the_percentage_without_an_interval() -> None:
    found = run({"native": STEADY, "uml": [0.0, 1.0, 1.0, 1.0, 1.0]})["uml"]
    assert found.percent_of_baseline == pytest.approx(100)
    assert found.percent_of_baseline_best is None
    assert found.ci_low is None


def test_environments_have_baselines_of_their_own() -> None:
    small = environment("native:cpus=1", "baseline")
    guest = environment("uml", baseline="native:cpus=1")
    samples = [
        *values("native", STEADY),
        *values("native:cpus=1", [4 * v for v in STEADY]),
        *values("uml", [8 * v for v in STEADY]),
        *values("qemu", [3 * v for v in STEADY]),
    ]
    qemu = environment("qemu")
    found = compare(record(NATIVE, small, guest, qemu), samples, "runs/x")
    percent = {result.environment: result.percent_of_baseline for result in found.results}
    assert percent["uml"] == pytest.approx(50)
    assert percent["qemu"] == pytest.approx(100 / 3)
    assert found.baseline == "native"


def test_what_was_not_measured_is_listed_with_the_reason() -> None:
    samples = [*values("native", STEADY), *values("native", STEADY, metric="latency")]
    failure = Failure(environment="uml", repetition=0, message="HPL failed its check")
    found = compare(record(failures=(failure,)), samples, "runs/x")
    (wall, latency) = [result for result in found.results if result.environment == "uml"]
    assert wall.verdict is latency.verdict is Verdict.NOT_MEASURED
    assert (wall.n, wall.median, wall.percent_of_baseline) == (0, None, None)
    assert wall.reason == "1 of 5 repetitions failed: HPL failed its check"
    quiet = compare(record(), samples, "runs/x").results[-1]
    assert quiet.reason == "the workload gave no value here"
    cut = compare(record(state="interrupted"), samples, "runs/x").results[-1]
    assert cut.reason is not None and "ended before" in cut.reason


def test_a_metric_that_the_baseline_lacks_is_shown_without_a_ratio() -> None:
    found = compare(record(), values("uml", STEADY), "runs/x").results
    assert found[0].verdict is Verdict.NOT_MEASURED
    assert found[1].median == 1.0
    assert found[1].verdict is Verdict.NOT_COMPARED
    assert found[1].percent_of_baseline is None
    assert found[1].reason == "the baseline native has no value"


@pytest.mark.parametrize(("base", "own"), [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
def test_a_value_of_zero_is_shown_as_measured(base: float, own: float) -> None:
    samples = [*values("native", [base] * 5), *values("uml", [own] * 5)]
    found = compare(record(), samples, "runs/x")
    result = found.results[1]
    assert (result.median, result.n, result.verdict) == (own, 5, Verdict.INCONCLUSIVE)
    assert result.reason == "a value that is not above zero cannot be compared as a ratio"
    table = plain(report_data.on_terminal(found), width=120).split("[95 % interval")[0]
    assert "not measured" not in table and f"{significant(own, 3)} s ?" in table
    rows = render(found, samples).partition('id="results-table"')[2].partition("</table>")[0]
    assert "not measured" not in rows and "not compared" in rows


def test_counters_of_a_lab_are_no_lack_of_the_workload() -> None:
    counted = values("uml", STEADY, metric="kvm.exits")
    native, other = compare(record(), [*values("native", STEADY), *counted], "runs/x").results[1::2]
    assert (native.verdict, native.reason) == (
        Verdict.NOT_MEASURED,
        "this environment cannot read KVM's counters (capability kvm-counters)",
    )
    assert other.verdict is Verdict.NOT_COMPARED


def test_expected_metrics_come_first_and_are_listed_when_absent() -> None:
    expected: list[tuple[str, str, Better]] = [("rate", "MB/s", "higher"), ("wall_s", "s", "lower")]
    samples = [*values("native", STEADY), *values("native", STEADY, metric="extra")]
    found = compare(record(NATIVE), samples, "runs/x", expected).results
    assert [result.metric for result in found] == ["rate", "wall_s", "extra"]
    assert (found[0].verdict, found[0].unit) == (Verdict.NOT_MEASURED, "MB/s")


def test_a_run_without_samples_is_a_comparison_too() -> None:
    found = compare(record(state="interrupted"), [], "runs/x")
    assert found.results == ()
    assert kinds(found) == ["cut-short", "cut-short"]


lists = st.lists(st.floats(0.01, 1000), min_size=1, max_size=6)


@given(lists, lists)
@settings(max_examples=60)
def test_the_order_of_samples_in_the_file_does_not_matter(a: list[float], b: list[float]) -> None:
    samples = [*values("native", a), *values("uml", b)]
    backwards = compare(record(), samples[::-1], "runs/x")
    assert compare(record(), samples, "runs/x") == backwards


@given(lists, lists, st.floats(1e-3, 1e3))
@settings(max_examples=60)
def test_another_unit_changes_no_ratio(a: list[float], b: list[float], c: float) -> None:
    one = run({"native": a, "uml": b})["uml"]
    other = run({"native": [c * v for v in a], "uml": [c * v for v in b]})["uml"]
    # The interval may change: it is no narrower than the last digit of the values.
    assert other.percent_of_baseline == pytest.approx(one.percent_of_baseline)
    assert (other.ci_low is None) == (one.ci_low is None)


@given(lists, lists)
@settings(max_examples=60)
def test_the_other_direction_inverts_the_ratio(a: list[float], b: list[float]) -> None:
    time = run({"native": a, "uml": b}, better="lower")["uml"]
    rate = run({"native": a, "uml": b}, better="higher")["uml"]
    assert time.percent_of_baseline is not None and rate.percent_of_baseline is not None
    assert time.percent_of_baseline * rate.percent_of_baseline == pytest.approx(1e4)
    mirrored = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
    assert rate.verdict == mirrored.get(time.verdict, time.verdict)


def test_another_metric_changes_no_interval() -> None:
    random = np.random.default_rng(2)
    noisy = {label: random.lognormal(size=5).tolist() for label in ("native", "uml")}
    alone = [s for label, v in noisy.items() for s in values(label, v)]
    more = alone + [s for label, v in noisy.items() for s in values(label, v, metric="a")]
    one = compare(record(), alone, "runs/x").results
    both = compare(record(), more, "runs/x").results
    assert set(one) < set(both)
    assert compare(record(seed=2), alone, "runs/x").results != one


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["native", "native#aa", "uml", "stranger"]),
            st.sampled_from(["wall_s", "b"]),
            st.floats(-1e100, 1e100),
            st.integers(0, 2),
            st.floats(0, 1e6),
            st.none() | st.floats(0, 1e6),
        ),
        max_size=25,
    ),
    st.sampled_from(["running", "complete", "interrupted", "budget", "failed"]),
)
@example([("native", "b", v, 0, 0.0, None) for v in (1.0, 1e-80)] * 2, "running")
@example([("native", "b", 1e100, 0, 1.0, None), ("uml", "b", 5e-324, 0, 1.0, None)], "failed")
@settings(max_examples=150, deadline=None)
def test_any_run_gives_results_that_are_valid_json(rows: list[Any], state: str) -> None:
    samples = [
        sample(
            label,
            index,
            value,
            metric=metric,
            boot=boot,
            wall_s=seconds,
            cpu_s=seconds / 2,
            steal_s=steal,
        )
        for index, (label, metric, value, boot, seconds, steal) in enumerate(rows)
    ]
    found = compare(record(NATIVE, CONTROL, UML, state=state), samples, "runs/x")
    json.dumps(to_json(found), allow_nan=False)
    for result in found.results:
        if result.ci_low is not None and result.ci_high is not None:
            assert result.percent_of_baseline is not None
            slack = 1e-9 * result.percent_of_baseline
            assert result.ci_low - slack <= result.percent_of_baseline <= result.ci_high + slack


def test_json_has_the_keys_that_are_promised() -> None:
    samples = [*values("native", STEADY), *values("uml", [2 * v for v in STEADY])]
    found = json.loads(json.dumps(to_json(compare(record(), samples, "runs/x"))))
    assert found["run"] == "runs/x"
    assert found["baseline"] == "native"
    assert found["environments"][1]["spec"] == "uml"
    assert found["environments"][1]["facts"] == FACTS
    row = found["results"][1]
    for key in (
        *("environment", "workload", "metric", "unit", "better", "n", "best", "median", "stdev"),
        *("percent_of_baseline", "ci_low", "ci_high", "verdict"),
    ):
        assert row[key] is not None
    assert row["verdict"] == "slower"
    assert all({"environment", "metric", "kind", "message"} == set(f) for f in found["flags"])


def test_the_controls_runs_count_for_the_baseline() -> None:
    native, uml = values("native", STEADY), values("uml", [1.3 * v for v in STEADY[::-1]])
    control = values("native#aa", [v * 1.002 for v in STEADY[::-1]])
    alone = compare(record(NATIVE, UML), [*native, *uml], "runs/x").results[-1]
    both = compare(record(NATIVE, CONTROL, UML), [*native, *control, *uml], "runs/x").results[-1]
    assert both.smallest_detectable_percent is not None
    assert alone.smallest_detectable_percent is not None
    assert both.smallest_detectable_percent < alone.smallest_detectable_percent


def test_the_contract_of_json() -> None:
    samples = [
        *values("native", STEADY),
        *values("native#aa", STEADY[::-1]),
        *values("uml", [0.9, 1.1, 1.0, 0.95, 1.05]),
    ]
    found = to_json(compare(record(NATIVE, CONTROL, UML), samples, "runs/x"))["results"]
    assert [row.get("control") for row in found] == [None, "equal", None]
    assert "control" not in found[2]
    needed = found[2]["repetitions_needed"]
    assert needed.keys() == {"low", "high", "reachable"}
    assert found[2]["repetitions_to_settle"] == needed["high"]
    assert found[2]["smallest_detectable_percent"] > 5


def test_a_ratio_beyond_all_floats_is_left_out() -> None:
    assert run({"native": [1e-200] * 3, "uml": [1e200] * 3})["uml"].percent_of_baseline is None


def test_an_interval_beyond_all_floats_is_cut_and_stays_json() -> None:
    found = run({"native": [1.0, 1e-80], "uml": [1.0, 1.0]})["uml"]
    assert found.ci_high is not None and math.isfinite(found.ci_high)
    assert found.verdict is Verdict.INCONCLUSIVE
