"""`vtax explain` and `vtax prices` as a user calls them: contract, errors, and a real guest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import SOURCE, command, one_line, vtax
from process_watch import ended, eventually, processes_naming
from ssh_server import SshServer
from tested_machines import checked
from vtax.core.formats import records
from vtax.core.formats.bill import BillRecord
from vtax.explain.campaign import predicted
from vtax.prices.record import PricesRecord

SPEC = "uml:mem=256M"
PROGRAM = ("/bin/sh", "-c", "i=0; while [ $i -lt 200 ]; do [ -e /nowhere ]; i=$((i+1)); done")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="counting needs root")


def counted(done: CompletedProcess[str]) -> dict[str, Any]:
    """What the verb printed, where this machine can count."""
    for reason in ("lacks CAP_", "no type information", "locked down"):
        if reason in done.stderr:
            pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def lines(bill: dict[str, Any]) -> dict[str, Any]:
    return {line["operation"]: line for line in bill["lines"]}


def test_help(snapshot: SnapshotAssertion) -> None:
    assert vtax("explain", "--help").stdout == snapshot(name="explain")
    assert vtax("prices", "--help").stdout == snapshot(name="prices")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("explain", "--in", "umi", "--", "true"), "did you mean 'uml'"),
        (("explain", "--predict", "umi", "--", "true"), "did you mean 'uml'"),
        (("explain", "--in", "native", "--", "true"), "only the baseline would run"),
        (("explain", "--predict", "uml", "--", "no-such-program"), "no-such-program"),
        (("prices", "--in", "umi"), "did you mean 'uml'"),
        (("prices", "--reps", "0"), "greater than or equal to 1"),
        (("prices", "--seconds", "400ms"), "give 500ms to 60s"),
        (("prices", "--seconds", "61"), "give 500ms to 60s"),
        (("prices", "--seconds", "8x"), "is not a duration"),
    ],
)
def test_misuse_is_one_line(argv: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert said in vtax(*argv, cwd=tmp_path).stderr
    assert list(tmp_path.iterdir()) == []


def test_a_recording_has_no_bill(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert "schema" in one_line(vtax("explain", str(tmp_path), cwd=tmp_path), 1)


@pytest.mark.slow
@needs_root
def test_a_known_program_in_user_mode_linux(tmp_path: Path) -> None:
    checked(SPEC)
    program = ("--in", SPEC, "--reps", "3", "--json", "-q", "--", *PROGRAM)
    found = counted(vtax("explain", *program, cwd=tmp_path, timeout=300))
    (bill,) = found["bills"]
    assert bill["environment"] == SPEC and bill["difference_s"] > 0
    stat = lines(bill)["stat"]
    # The shell looks up a few paths of its own.
    assert 200 <= stat["count"] < 260
    assert stat["kind"] == "priced" and stat["price_delta_ns"] > 0
    assert stat["low"] <= stat["seconds"] <= stat["high"]
    assert lines(bill)["exec"]["count"] == 1
    total = sum(line["seconds"] or 0.0 for line in bill["lines"])
    assert bill["difference_s"] == pytest.approx(total + bill["residual_s"])
    assert bill["host_cpu_s"] > 0
    (run,) = (tmp_path / "runs").iterdir()
    kept = records.read(run / "bill.json")
    assert isinstance(kept, BillRecord) and kept.bills[0].environment == SPEC
    assert 0 < sum(site["count"] for site in stat["sites"]) <= stat["count"]
    assert "\nstat;" in (run / "call-sites.folded").read_text()
    report = (run / "report.html").read_text()
    assert 'id="why"' in report and report.index('id="why"') < report.index('id="ratios"')
    again = counted(vtax("explain", str(run), "--json", "-q", cwd=tmp_path, timeout=300))
    assert again["bills"][0]["difference_s"] == bill["difference_s"]
    assert lines(again["bills"][0])["stat"]["count"] == stat["count"]
    shown = vtax("report", str(run), cwd=tmp_path)
    assert shown.returncode == 0 and "unexplained" in shown.stdout


@pytest.mark.slow
@pytest.mark.long
@needs_root
def test_a_guest_under_kvm_has_a_price_for_everything(tmp_path: Path) -> None:
    checked("lab")
    program = ("gzip", "-1", "-c", os.path.realpath("/bin/sh"))
    found = counted(vtax("explain", "--in", "lab", "--reps", "3", "--json", "-q", "--", *program,
                         cwd=tmp_path, timeout=500))  # fmt: skip
    (bill,) = found["bills"]
    assert bill["environment"] == "lab" and bill["difference_s"] > 0
    # An emulated guest is slow, but each operation has its batches.
    assert {each["kind"] for each in bill["lines"]} <= {"measured", "priced", "modelled"}
    assert lines(bill)["user code"]["kind"] == "measured"
    exits = lines(bill)["VM exits and halts"]
    assert exits["kind"] == "measured" and exits["count"] > 0
    assert lines(bill)["exec"]["count"] == 1 and lines(bill)["exec"]["seconds"] > 0


@pytest.mark.slow
@needs_root
def test_a_machine_over_ssh_has_a_bill(tmp_path: Path) -> None:
    with SshServer(tmp_path / "server") as server:
        found = counted(vtax("explain", "--in", server.spec, "--reps", "3", "--json", "-q", "--",
                             *PROGRAM, cwd=tmp_path, timeout=300))  # fmt: skip
    (bill,) = found["bills"]
    assert bill["environment"] == server.spec
    stat = lines(bill)["stat"]
    assert stat["kind"] == "priced" and stat["low"] <= stat["seconds"] <= stat["high"]
    # It is this machine: a call there costs what it costs here, but for noise.
    assert abs(stat["seconds"]) < bill["baseline_s"]
    assert bill["host_cpu_s"] is None
    assert eventually(lambda: not processes_naming(str(tmp_path)))


@pytest.mark.slow
@needs_root
def test_a_prediction_runs_the_program_natively_only(tmp_path: Path) -> None:
    checked(SPEC)
    program = ("--predict", SPEC, "--reps", "3", "--json", "-q", "--", *PROGRAM)
    found = counted(vtax("explain", *program, cwd=tmp_path, timeout=300))
    (bill,) = found["bills"]
    assert bill["difference_s"] is None and bill["residual_s"] is None
    assert bill["predicted_low"] <= bill["predicted_s"] <= bill["predicted_high"]
    assert bill["predicted_s"] > bill["baseline_s"]
    (run,) = (tmp_path / "runs").iterdir()
    record = json.loads((run / "run.json").read_text())
    assert SPEC not in [each["label"] for each in record["environments"]]
    # The prices are known now, so nothing else needs the capabilities that eBPF does.
    none = "-bpf,-perfmon,-sys_admin"
    line = command("explain", "--predict", SPEC, "--reps", "2", "-q", "--", *PROGRAM)
    done = subprocess.run(
        ["setpriv", f"--bounding-set={none}", f"--inh-caps={none}", *line],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ptrace, which disturbs" in done.stdout and "no eBPF: permission" in done.stdout
    (traced,) = {*(tmp_path / "runs").iterdir()} - {run}
    kept = records.read(traced / "bill.json")
    assert isinstance(kept, BillRecord) and "ptrace" in kept.counted_by
    found_lines = {each.operation: each for each in kept.bills[0].lines}
    assert 200 <= (found_lines["stat"].count or 0) < 260 and found_lines["exec"].count == 1
    assert found_lines["minor fault"].count and "anonymous fault" not in found_lines


@pytest.mark.slow
def test_prices_natively_and_in_user_mode_linux(tmp_path: Path) -> None:
    checked(SPEC)
    only = ("--only", "null,stat,fault_anonymous", "--seconds", "500ms", "--reps", "2")
    done = vtax("prices", "--in", SPEC, *only, "--json", "-q", cwd=tmp_path, timeout=200)
    assert done.returncode == 0, done.stderr
    (base, guest) = json.loads(done.stdout)["environments"]
    assert guest["baseline"] == base["label"]
    for each in (base, guest):
        assert {own["name"] for own in each["operations"]} == {"null", "stat", "fault_anonymous"}
        for own in each["operations"]:
            assert len(own["ns"]) == 2 and min(own["ns"]) > 0
    (run,) = (tmp_path / "runs").iterdir()
    assert isinstance(records.read(run / "run.json"), PricesRecord)
    assert vtax("report", str(run), cwd=tmp_path).returncode == 0


@needs_root
def test_ctrl_c_keeps_the_comparison_and_leaves_nothing_running(tmp_path: Path) -> None:
    line = command("explain", "--predict", SPEC, "--reps", "1000", "--", "sleep", "0.21")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(line, env=environment, cwd=tmp_path, stdout=quiet, stderr=quiet)
    with ended(process):
        runs = tmp_path / "runs"
        saved = eventually(lambda: any(runs.glob("*/samples.jsonl")) or process.poll(), 60)
        if process.poll() == 1:
            pytest.skip("the recorder cannot count here")
        assert saved
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert eventually(lambda: not processes_naming(str(runs)), 20)
    (run,) = runs.iterdir()
    assert json.loads((run / "run.json").read_text())["state"] == "interrupted"
    assert (run / "report.html").exists() and not (run / "bill.json").exists()


@pytest.mark.slow
@needs_root
def test_a_bill_later_needs_the_same_input(tmp_path: Path) -> None:
    checked(SPEC)
    argv = (*command("explain", "--in", SPEC, "--reps", "2", "--json", "-q"), "--", "wc", "-l")
    settings = {**os.environ, "PYTHONPATH": str(SOURCE)}

    def explain(line: Sequence[str], given: str) -> CompletedProcess[str]:
        return subprocess.run(
            line, input=given, env=settings, cwd=tmp_path, capture_output=True, text=True
        )

    counted(explain(argv, "a\nb\n"))
    (run,) = (tmp_path / "runs").iterdir()
    again = command("explain", str(run), "--json", "-q")
    refused = one_line(explain(again, "a\n"), 2)
    assert "standard input" in refused and f"vtax explain {run} <" in refused
    counted(explain(again, "a\nb\n"))


@pytest.mark.parametrize(
    "specs",
    [
        ("uml",),
        ("uml:mem=1G,swap=1G", "gvisor"),
        ("qemu:accel=tcg,smp=2,mem=1G", "ssh:root@host,mem=1G", "uml"),
    ],
)
def test_commas_between_and_within_specs(specs: tuple[str, ...]) -> None:
    assert predicted(",".join(specs)) == list(specs)
