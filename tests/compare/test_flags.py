"""Reasons not to take a number at face value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comparison_data import (
    CONTROL,
    NATIVE,
    STEADY,
    UML,
    environment,
    kinds,
    only,
    record,
    values,
)
from vtax.compare.analysis import compare
from vtax.compare.flags import cpu_count
from vtax.core.formats.model import AuditCard, AuditCheck, AuditVerdict, Failure
from vtax.core.statistics.results import Comparison, Control


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
    # The promise is 5 %; 5 % plus three standard errors of 400 trials is 8.3 %.
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


def test_where_the_hosts_time_was_taken_is_said_with_the_worst() -> None:
    samples = values("uml", STEADY, wall_s=1.0, host_wall_s=1.001)
    samples[3] = replace(samples[3], wall_s=2.69, host_wall_s=2.69, told_wall_s=0.002)
    found = compare(record(UML), samples, "runs/x")
    message = only(found, "host-time").message
    assert "In 1 of 5 repetitions" in message and "2 ms of 2.69 s" in message
    # The machine's clock is judged by what it said.
    samples = values("uml", STEADY, wall_s=2.69, host_wall_s=2.69, told_wall_s=0.002)
    assert "clock-disagreement" in kinds(compare(record(UML), samples, "runs/x"))


def test_the_time_of_an_emulator_is_marked_where_it_lags() -> None:
    for wall, host, flagged in ((1.0, 1.02, False), (1.0, 1.2, True), (1.2, 1.0, False)):
        samples = values("uml", STEADY, wall_s=wall, host_wall_s=host)
        found = compare(record(UML), samples, "runs/x")
        assert ("emulator-time" in kinds(found)) is flagged


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


def test_what_either_audit_doubts() -> None:
    def card(verdict: AuditVerdict) -> AuditCard:
        check = AuditCheck(
            name="noise", verdict=verdict, value=7.0, unit="%", low=None, high=None, threshold=5.0,
            reason="it is in every result", metrics=("wall_s",), remedy="be quiet",
        )  # fmt: skip
        return AuditCard(spec="uml", verdict=verdict, shortest_duration_s=None, checks=(check,))

    def flagged(before: AuditVerdict, after: AuditVerdict) -> Comparison:
        audits = {"audit_before": (card(before),), "audit_after": (card(after),)}
        return compare(record(NATIVE, UML, **audits), values("uml", STEADY), "runs/x")

    found = only(flagged(AuditVerdict.PASS, AuditVerdict.FAIL), "audit")
    assert found.environment == "uml" and "doubts wall_s" in found.message
    assert "noise (fail)" in found.message
    assert "noise (fail)" in only(flagged(AuditVerdict.FAIL, AuditVerdict.WARN), "audit").message
    assert "audit" not in kinds(flagged(AuditVerdict.PASS, AuditVerdict.UNKNOWN))


def test_kernels_that_ran_for_less_than_a_second_are_named_once() -> None:
    short = values("native", STEADY, metric="HPL_Tflops", ran_s=0.011)
    shorter = values("native", STEADY, metric="StarSTREAM_Copy", ran_s=45e-6)
    long = values("native", STEADY, metric="MPIFFT_Gflops", ran_s=1.5)
    unknown = values("native", STEADY)
    found = compare(record(), [*short, *shorter, *long, *unknown], "runs/x")
    flag = only(found, "short-kernel")
    assert flag.environment == "native" and "2 of 3 kernels" in flag.message
    assert "from 45 µs (StarSTREAM_Copy) to 11 ms (HPL_Tflops)" in flag.message
    assert "short-kernel" not in kinds(compare(record(), [*long, *unknown], "runs/x"))
