"""bench/record.py: what it concludes from its runs, and one quick run on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import ROOT
from recording import obstacle

BENCH = ROOT / "bench"
sys.path.insert(0, str(BENCH))

import record  # noqa: E402
from interleaved import Interval  # noqa: E402
from record_contenders import FLOORS, OURS, PEERS, Contender  # noqa: E402
from record_rates import Memory, ProgramCost, Rate, best  # noqa: E402
from record_verdicts import (  # noqa: E402
    Trial,
    agrees,
    events_per_step,
    lead,
    overhead,
    stands_against,
)
from record_work import Done  # noqa: E402

QUICK_LIMIT_S = 150
"""The quick run takes about 20 s on an idle machine."""


def trials(percents: list[float], drift: float = 0.0) -> list[Trial]:
    """Runs that take `percents` longer than bare runs, on a machine that gets slower."""
    return [
        Trial(1.0, (1.0 + drift / 2) * (1.0 + percent / 100.0), 1.0 + drift) for percent in percents
    ]


def test_an_even_drift_is_not_overhead() -> None:
    found = overhead(trials([2.0] * 6, drift=0.3), "x")
    assert found.median == pytest.approx(2.0)
    assert found.low == pytest.approx(2.0)
    assert found.high == pytest.approx(2.0)


def test_the_interval_is_of_ratios_and_holds_the_median() -> None:
    found = overhead(trials([0.1, 0.4, 0.2, 0.5, 0.3]), "x")
    assert found.low is not None and found.high is not None
    assert found.low < found.median < found.high
    assert found.median == pytest.approx(0.3)


def test_one_round_has_no_interval() -> None:
    found = overhead(trials([3.0]), "x")
    assert (found.low, found.high) == (None, None)
    assert found.verdict(0.5) == "too few rounds"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.1, 0.4, "met"), (0.1, 0.5, "met"), (0.4, 0.6, "within noise"), (0.6, 0.9, "missed")],
)
def test_a_verdict_needs_the_whole_interval_on_one_side(
    low: float, high: float, verdict: str
) -> None:
    assert Interval(5, (low + high) / 2, low, high).verdict(0.5) == verdict


def test_a_lead_is_below_zero() -> None:
    ours, theirs = trials([0.4, 0.5, 0.6, 0.5, 0.5]), trials([3.0, 3.1, 2.9, 3.0, 3.0])
    assert lead(ours, theirs, "x").verdict(0.0) == "met"
    assert lead(theirs, ours, "x").verdict(0.0) == "missed"
    assert lead(ours, ours, "x").verdict(0.0) == "within noise"
    assert lead(ours[:1], theirs[:1], "x").median == pytest.approx((1.004 / 1.03 - 1.0) * 100.0)


def test_rows_are_compared_with_coarser_rows_and_with_every_event() -> None:
    assert stands_against(100, 1000)
    assert stands_against(100, 100)
    assert stands_against(100, None)
    assert not stands_against(1000, 100)


def test_only_whole_numbers_of_events_for_each_step_agree() -> None:
    steps = 1_000_000
    counts = {"kvm.pio": steps, "kvm.emulations": 2 * steps + 40, "kvm.page_faults": 3}
    per_step = events_per_step(counts, steps)
    assert per_step == {"kvm.pio": 1.0, "kvm.emulations": 2.00004}
    assert agrees(per_step)
    assert not agrees(events_per_step({"kvm.emulations": 2 * steps - 9000}, steps))
    assert not agrees({})


def rate(guest: str, median: float, **faults: Any) -> Rate:
    sound: dict[str, Any] = {"lost": 0, "missed": 0, "agrees": True}
    shown = Interval(5, median, median * 0.9, median * 1.1)
    return Rate(
        guest,
        shown,
        shown,
        {"kvm.emulations": 2.0},
        rows=5000,
        added_ns=Interval(5, 40.0, 38.0, 42.0),
        **(sound | faults),
    )


@pytest.mark.parametrize("fault", [{"lost": 1}, {"missed": 1}, {"agrees": False}])
def test_a_rate_with_any_loss_is_not_the_best(fault: dict[str, Any]) -> None:
    sound = rate("guest-port", 1e5)
    assert best([rate("guest-count", 2e6, **fault), sound]) is sound
    assert best([rate("guest-count", 2e6, **fault)]) is None


def runs(contender: Contender, percents: list[float], *, spins: bool) -> record.Measured:
    """A second of work, bare and with a contender that takes `percents` of it."""
    measured = record.Measured(contender)
    gaps = {"short_ns": 1e6, "long_ns": 5e6} if spins else {}
    bare = Done(1000, 1_000_000_000, 900_000_000, gaps)
    for percent in percents:
        extra = round(percent * 1e7)
        more = {"short_ns": 1e6 + extra, "long_ns": 5e6} if spins else {}
        took = 1_000_000_000 if spins else 1_000_000_000 + extra
        measured.add(bare, Done(1000, took, 900_000_000 + extra, more), bare)
        if contender.ours:
            measured.rows.append(1000)
    return measured


def test_what_is_printed(snapshot: SnapshotAssertion) -> None:
    by_name = {each.name: each for each in (*OURS, *FLOORS, *PEERS)}
    costs = {
        "vtax record, 1ms": [0.2, 0.3, 0.25, 0.2, 0.3],
        "vtax record, 100us": [1.6, 1.7, 1.8, 1.7, 1.7],
        "timer alone, 1ms": [0.1, 0.1, 0.12, 0.1, 0.1],
        "perf stat -I 1": [0.1, 0.4, 0.2, 0.3, 0.5],
        "perf record :S, 100us": [4.0, 4.1, 3.9, 4.0, 4.2],
    }
    found = record.Found(
        versions={"machine": "an example, 2 CPUs", "perf": "perf version 6.1"},
        measured={
            work: [runs(by_name[name], cost, spins=work == "spin") for name, cost in costs.items()]
            for work in ("spin", "cpu")
        },
        absent={"bpftrace, 1ms": "bpftrace is not installed: apt-get install bpftrace"},
        rates=[rate("guest-port", 4.7e5), rate("guest-count", 2.1e6)],
        programs=[ProgramCost("on_kvm_pio", 5000, 55.0), ProgramCost("on_overflow", 5000, 350.0)],
        clock_ns=28.0,
        memory=Memory(60, 120_000, 0, 22 << 20, 17.5),
    )
    assert record.text(found) == snapshot
    assert json.loads(json.dumps(record.as_json(found)))["memory"]["rows"] == 120_000


@pytest.mark.slow
@pytest.mark.long
def test_a_quick_run_measures_everything() -> None:
    if reason := obstacle():
        pytest.skip(reason)
    environment = os.environ | {"PYTHONPATH": str(BENCH.parent / "python")}
    argv = [sys.executable, str(BENCH / "record.py"), "--quick", "--json", "--work"]
    done = subprocess.run(
        [*argv, "spin,guest-port"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=QUICK_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["versions"]["vtax-host"].startswith("vtax-host ")
    present = [work for work in ("spin", "guest-port") if work not in found["absent"]]
    assert "spin" in present
    for work in present:
        check_work(work, found["works"][work], found["absent"])
    for guest in found["rates"]:
        # Not as strict as the bench: on a busy machine a recording of 0.1 s can lack the events
        # of a part of one row.
        assert agrees(guest["per_step"], tolerance=0.05), guest
        assert (guest["lost"], guest["missed"]) == (0, 0), guest
        assert guest["per_second"]["median"] > 0
    assert bool(found["rates"]) == ("guest-port" in present)
    assert any(each["name"] == "on_overflow" and each["ns"] > 0 for each in found["programs"])
    assert 0 < found["clock_ns"] < 200
    memory = found["memory"]
    assert memory["rows"] > 0 and memory["max_rss_bytes"] > 0 and memory["bytes_per_row"] > 0
    assert {each["verdict"] for each in found["verdicts"]} <= {
        "met", "missed", "within noise", "too few rounds", "no target",
    }  # fmt: skip


def check_work(work: str, measured: list[dict[str, Any]], absent: dict[str, str]) -> None:
    """vtax's settings are there with their rows; each other contender was measured, or is absent
    with a reason."""
    by_name = {each["recorder"]: each for each in measured}
    for each in OURS:
        one = by_name[each.name]
        # A run of 0.1 s on a busy machine may have no 20 ms of CPU time.
        assert sum(one["rows"]) > 0 or each.interval_ns == 20_000_000, one
        assert one["lost"] == 0, one
        assert one["written_bytes"] > 0
    for other in (*FLOORS, *PEERS):
        if other.guests_only and work == "spin":
            continue
        reasons = (absent.get(other.name), absent.get(f"{other.name} ({work})"))
        assert (other.name in by_name) != any(reasons), (other.name, reasons)
