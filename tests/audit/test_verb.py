"""`vtax audit` on real machines: its contract, and a stolen CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import polars
import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import one_line, vtax
from process_watch import ended
from tested_machines import checked

FIELDS = {
    "name", "verdict", "value", "unit", "low", "high", "threshold", "reason", "metrics", "remedy",
}  # fmt: skip


def audited(folder: Path, spec: str) -> subprocess.CompletedProcess[str]:
    """Run an audit that keeps its run below `folder`, as it would below a user's current folder."""
    return vtax("audit", "--quick", "--json", "--quiet", "--in", spec, cwd=folder)


def test_help(snapshot: SnapshotAssertion) -> None:
    assert vtax("audit", "--help").stdout == snapshot


def test_an_unknown_environment_is_one_line() -> None:
    done = vtax("audit", "--in", "nativ")
    one_line(done, 2)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["native", "uml", "qemu:accel=tcg"])
def test_the_contract(spec: str, tmp_path: Path) -> None:
    checked(spec)
    done = audited(tmp_path, spec)
    (kept,) = tmp_path.glob("runs/*-audit/run.json")
    assert json.loads(kept.read_text())["environments"] == json.loads(done.stdout)["environments"]
    (environment,) = json.loads(done.stdout)["environments"]
    assert environment["spec"] == spec
    assert done.returncode == (environment["verdict"] == "fail")
    assert 1e-6 < environment["shortest_duration_s"] < 10
    checks = {check["name"]: check for check in environment["checks"]}
    some = checks.keys() & {"timer-step", "rtc-rate"}
    assert len(checks) == 9 + len(some)
    if spec.startswith("qemu"):
        # The guest's root sees its timers, and the emulator has a real-time clock.
        assert len(some) == 2 and checks["rtc-rate"]["verdict"] in ("pass", "unknown")
    assert all(check.keys() == FIELDS for check in checks.values())
    # The clocks of one machine agree, also on a busy one.
    assert checks["host-rate"]["verdict"] in ("pass", "unknown")
    assert checks["clock-backward"]["value"] == 0


@pytest.mark.slow
def test_a_stolen_cpu_is_seen(tmp_path: Path) -> None:
    """With three loops on the audited machine's CPU, more than half of the time is lost, even if
    other tests' work moves to the other CPUs and comes back."""
    cpu = max(os.sched_getaffinity(0))
    spin = [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{cpu}])\nwhile 1: pass"]
    with ExitStack() as loops:
        for _ in range(3):
            loops.enter_context(ended(subprocess.Popen(spin)))
        done = vtax(
            "audit", "--quick", "--json", "--quiet", "--out", str(tmp_path), "--in", "native:cpus=1"
        )
    (environment,) = json.loads(done.stdout)["environments"]
    noise = next(each for each in environment["checks"] if each["name"] == "noise")
    assert noise["value"] > 20
    assert environment["verdict"] == "fail" and done.returncode == 1


@pytest.mark.slow
def test_a_campaign_between_two_audits(tmp_path: Path) -> None:
    checked("uml")
    done = vtax(
        "compare", "--audit", "--in", "uml:mem=128M", "--baseline", "none", "--reps", "2",
        "--no-warm-up", "--quiet", "--out", str(tmp_path), "--", "sleep", "0.1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (run,) = tmp_path.iterdir()
    record = json.loads((run / "run.json").read_text())
    (before,), (after,) = record["audit_before"], record["audit_after"]
    assert before["spec"] == after["spec"] == "uml:mem=128M"
    # Its clock costs a system call, so user-mode Linux never passes.
    stamps = set(polars.read_parquet(run / "samples.parquet")["audit"])
    assert stamps == {"fail"} and "fail" in {before["verdict"], after["verdict"]}
    assert "audit: The audit doubts" in done.stdout
