"""From samples to results, verdicts and flags."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vtax.analysis.compare import compare, to_json
from vtax.analysis.flags import cpu_count
from vtax.analysis.results import Comparison, Control, Flag, Result, Verdict
from vtax.formats.model import Better, ComparisonRecord, EnvironmentRecord, Failure, Sample
from vtax.present.format import significant
from vtax.present.html.comparison import render
from vtax.present.terminal.comparison import render_table
from vtax.present.terminal.tables import plain

FACTS: dict[str, Any] = {"cpu": {"online": 1}}

Role = Literal["baseline", "control", "measured"]


def environment(
    label: str, role: Role = "measured", baseline: str | None = "native", facts: Any = None
) -> EnvironmentRecord:
    return EnvironmentRecord(
        label=label,
        spec=label.partition("#")[0],
        role=role,
        baseline=None if role == "baseline" else baseline,
        description=f"a {label}",
        facts=FACTS if facts is None else facts,
    )


NATIVE = environment("native", "baseline")
CONTROL = environment("native#aa", "control")
UML = environment("uml")


def record(*environments: EnvironmentRecord, **changes: Any) -> ComparisonRecord:
    fields: dict[str, Any] = {
        "vtax_version": "0",
        "command_line": ("vtax",),
        "name": "x",
        "started_utc": "2026-01-01T00:00:00+00:00",
        "state": "complete",
        "workload": "command",
        "workload_parameters": {},
        "repetitions": 5,
        "reboot": "each",
        "budget_s": None,
        "margin_percent": 2.0,
        "seed": 1,
        "order": (),
        "environments": environments or (NATIVE, UML),
    }
    return ComparisonRecord(**(fields | changes))


def sample(label: str, repetition: int, value: float, **changes: Any) -> Sample:
    found = Sample(
        environment=label,
        workload="command",
        metric="wall_s",
        unit="s",
        better="lower",
        value=value,
        repetition=repetition,
        boot=repetition,
        position=repetition,
        wall_s=1.0,
        cpu_s=0.9,
        steal_s=0.0,
        host_wall_s=1.001,
        max_rss_bytes=1,
        minor_faults=0,
        major_faults=0,
        voluntary_switches=0,
        involuntary_switches=0,
    )
    return replace(found, **changes)


def values(label: str, found: Sequence[float], **changes: Any) -> list[Sample]:
    return [sample(label, index, value, **changes) for index, value in enumerate(found)]


def run(
    by_label: Mapping[str, Sequence[float]], better: Better = "lower", **changes: Any
) -> dict[str, Result]:
    """Results by environment of one metric; the first environment is the baseline."""
    first, *others = by_label
    environments = (
        environment(first, "baseline"),
        *(environment(label, baseline=first) for label in others),
    )
    samples = [s for label, v in by_label.items() for s in values(label, v, better=better)]
    found = compare(record(*environments, **changes), samples, "runs/x").results
    return {result.environment: result for result in found}


def kinds(found: Comparison, label: str | None = None) -> list[str]:
    return [flag.kind for flag in found.flags if label is None or flag.environment == label]


def only(found: Comparison, kind: str) -> Flag:
    (flag,) = [flag for flag in found.flags if flag.kind == kind]
    # One sentence or two for the terminal, never a paragraph.
    assert "\n" not in flag.message and flag.message.endswith(".") and len(flag.message) < 400
    return flag


STEADY = [1.00, 1.01, 0.99, 1.005, 0.995]


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
    table = plain(render_table(found), width=120).split("[95 % interval")[0]
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


def test_a_quiet_run_has_no_flags() -> None:
    tight = [1 + (v - 1) / 10 for v in STEADY]
    samples = [s for label in ("native", "native#aa", "uml") for s in values(label, tight)]
    assert compare(record(NATIVE, CONTROL, UML), samples, "runs/x").flags == ()


def test_more_cpu_time_than_there_is_is_flagged_once_with_the_worst() -> None:
    samples = values("uml", STEADY)
    samples[1] = replace(samples[1], cpu_s=1.015)
    samples[2] = replace(samples[2], cpu_s=1.1)
    samples[3] = replace(samples[3], cpu_s=1.5)
    samples += [replace(each, metric="other") for each in samples]
    flag = only(compare(record(UML), samples, "runs/x"), "timer-inversion")
    assert (flag.environment, flag.metric) == ("uml", None)
    assert "2 of 5 repetitions" in flag.message and "1.5 s within 1 s" in flag.message


def test_two_cpus_have_twice_the_time() -> None:
    samples = values("uml", STEADY, cpu_s=1.9)
    two = environment("uml", facts={"cpu": {"online": 2}})
    assert "timer-inversion" not in kinds(compare(record(two), samples, "runs/x"))
    more = values("uml", STEADY, cpu_s=2.1)
    assert "on 2 CPUs" in only(compare(record(two), more, "runs/x"), "timer-inversion").message
    unknown = environment("uml", facts={})
    assert "timer-inversion" not in kinds(compare(record(unknown), more, "runs/x"))


@pytest.mark.parametrize(
    ("facts", "count"),
    [
        ({"cpu": {"online": 2}}, 2),
        ({"cpu": {"allowed": [0, 3, 4], "online": 8}}, 3),
        ({"cpu": {"online": "2"}}, None),
        ({"cpu": 7}, None),
        ({}, None),
    ],
)
def test_the_number_of_cpus_is_read_from_the_facts(facts: Any, count: int | None) -> None:
    assert cpu_count(facts) == count


def test_steal_is_flagged_above_one_per_cent() -> None:
    samples = values("uml", STEADY, steal_s=0.009)
    assert "steal" not in kinds(compare(record(UML), samples, "runs/x"))
    samples[4] = replace(samples[4], steal_s=0.05)
    flag = only(compare(record(UML), samples, "runs/x"), "steal")
    assert "1 of 5" in flag.message and "5.0 %" in flag.message


def test_unknown_steal_is_not_zero() -> None:
    found = compare(record(UML), values("uml", STEADY, steal_s=None), "runs/x")
    assert "is unknown whether" in only(found, "steal-unknown").message
    assert "steal" not in kinds(found)


def test_a_control_that_is_too_noisy_states_the_noise() -> None:
    samples = [*values("native", STEADY), *values("native#aa", [1.0, 1.2, 0.9, 1.1, 1.3])]
    found = compare(record(NATIVE, CONTROL), samples, "runs/x")
    (control,) = [r for r in found.results if r.environment == "native#aa"]
    assert control.control is Control.TOO_NOISY
    assert control.smallest_detectable_percent is not None
    flag = only(found, "noise-floor")
    assert f"less than {control.smallest_detectable_percent:.2g} % (wall_s)" in flag.message
    assert "aa-control" not in kinds(found)


def test_a_control_that_differs_is_a_fault() -> None:
    samples = [*values("native", STEADY), *values("native#aa", [2.01 * v for v in STEADY])]
    found = compare(record(NATIVE, CONTROL), samples, "runs/x")
    assert "something besides the environment" in only(found, "aa-control").message
    assert "noise-floor" not in kinds(found)


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


@pytest.mark.parametrize(("size", "flagged"), [(18 << 20, True), (64 << 20, False), (None, False)])
def test_a_problem_that_fits_the_cache_is_labelled(size: int | None, flagged: bool) -> None:
    caches = [{"level": 2, "size_bytes": 1 << 20}, {"level": 3, "size_bytes": 32 << 20}]
    native = environment("native", "baseline", facts={"cpu": {"online": 1, "caches": caches}})
    parameters = {} if size is None else {"working_set_bytes": size}
    found = compare(record(native, workload_parameters=parameters), values("native", STEADY), "x")
    assert ("fits-cache" in kinds(found)) is flagged


def test_a_steady_rise_is_drift() -> None:
    found = compare(record(UML), values("uml", [1.0, 1.03, 1.05, 1.08, 1.1]), "runs/x")
    flag = only(found, "drift")
    assert flag.metric == "wall_s" and "rises" in flag.message and "1.7 %" in flag.message


def test_a_rise_within_the_margin_is_no_drift() -> None:
    rise = [1.0, 1.001, 1.002, 1.003, 1.004]
    assert "drift" not in kinds(compare(record(UML), values("uml", rise), "runs/x"))


def test_drift_goes_by_position_and_not_by_repetition() -> None:
    rise = values("uml", [1.0, 1.03, 1.05, 1.08, 1.1])
    mixed = [
        replace(each, position=place) for each, place in zip(rise, (4, 0, 2, 1, 3), strict=True)
    ]
    assert "drift" not in kinds(compare(record(UML), mixed, "runs/x"))


@pytest.mark.parametrize("n", [5, 8, 20])
def test_a_random_order_is_rarely_called_drift(n: int) -> None:
    random = np.random.default_rng(4)
    trials = 400
    called = sum(
        "drift"
        in kinds(
            compare(
                record(UML, repetitions=n),
                values("uml", np.exp(0.2 * random.standard_normal(n)).tolist()),
                "runs/x",
            )
        )
        for _ in range(trials)
    )
    # 5 % is asked for; 5 % plus three standard errors of 400 trials is 8.3 %.
    assert called / trials < 0.083


def test_clocks_that_disagree_are_flagged_beyond_one_per_cent_and_20_ms() -> None:
    for wall, host, flagged in (
        (1.0, 1.019, False),
        (1.0, 1.05, True),
        (10.0, 10.05, False),
        (10.0, 9.5, True),
    ):
        samples = values("uml", STEADY, wall_s=wall, host_wall_s=host)
        found = compare(record(UML), samples, "runs/x")
        assert ("clock-disagreement" in kinds(found)) is flagged
    assert "5 of 5" in only(found, "clock-disagreement").message


def test_failures_are_counted_with_the_first_message() -> None:
    failures = tuple(
        Failure(environment="uml", repetition=n, message=f"reason {n}") for n in (3, 4)
    )
    found = compare(record(UML, failures=failures), values("uml", STEADY[:3]), "runs/x")
    flag = only(found, "failures")
    assert "2 repetitions of 5" in flag.message and "reason 3" in flag.message


def test_few_repetitions_are_flagged_once_per_environment() -> None:
    samples = [*values("uml", [1.0, 1.1]), *values("uml", [1.0, 1.1], metric="other")]
    flag = only(compare(record(UML), samples, "runs/x"), "few-repetitions")
    assert flag.metric is None and flag.message.startswith("2 values")
    samples = [*values("uml", STEADY), *values("uml", [1.0], metric="rare")]
    flag = only(compare(record(UML), samples, "runs/x"), "few-repetitions")
    assert flag.metric == "rare" and flag.message.startswith("One value")


@pytest.mark.parametrize(
    ("state", "said"),
    [("running", "was ended"), ("interrupted", "interrupted"), ("budget", "budget")],
)
def test_a_run_that_is_cut_short_says_where_and_why(state: str, said: str) -> None:
    samples = [*values("native", STEADY), *values("uml", STEADY[:3])]
    found = compare(record(state=state), samples, "runs/x")
    flag = only(found, "cut-short")
    assert flag.environment == "uml"
    assert "3 of 5" in flag.message and said in flag.message


def test_one_boot_is_said_once_and_only_of_guests_that_ran_again() -> None:
    other = environment("qemu")
    samples = [
        *values("native", STEADY, boot=0),
        *values("uml", STEADY, boot=0),
        *values("qemu", STEADY, boot=0),
    ]
    flag = only(compare(record(NATIVE, UML, other), samples, "runs/x"), "one-boot")
    assert "uml, qemu" in flag.message
    rebooted = [*values("native", STEADY, boot=0), *values("uml", STEADY)]
    assert "one-boot" not in kinds(compare(record(), rebooted, "runs/x"))


def test_a_ratio_beyond_all_floats_is_left_out() -> None:
    assert run({"native": [1e-200] * 3, "uml": [1e200] * 3})["uml"].percent_of_baseline is None


def test_an_interval_beyond_all_floats_is_cut_and_stays_json() -> None:
    found = run({"native": [1.0, 1e-80], "uml": [1.0, 1.0]})["uml"]
    assert found.ci_high is not None and math.isfinite(found.ci_high)
    assert found.verdict is Verdict.INCONCLUSIVE
