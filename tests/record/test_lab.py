"""Recording of real virtual machines: in the lab, against KVM's own statistics; and of a UML."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

import perf_kvm
from perf_kvm import PerfKvm
from process_watch import processes_naming
from recording import await_bytes, described, obstacle, started, sums_agree
from tested_machines import checked
from vtax.core.errors import VtaxError
from vtax.core.formats.folder import read_record
from vtax.core.formats.model import RecordingRecord
from vtax.core.recorder.intervals import load
from vtax.core.recorder.options import RecordOptions, Target
from vtax.core.runner import repetition
from vtax.core.runner.instruments.record import Recording, RemoteRecorder
from vtax.core.runner.repetition import Repetition
from vtax.environments.base import allowed_cpus
from vtax.environments.emulated_host.host import HOST_PROGRAM
from vtax.environments.lab import boot
from vtax.environments.lab.environment import Lab
from vtax.environments.lab.machine import LabMachine
from vtax.environments.machine_command import MachineCommand
from vtax.record.campaign import record_in
from vtax.workloads import builtin
from vtax.workloads.base import Command

pytestmark = pytest.mark.slow

SHELL = {"PATH": "/bin:/usr/bin"}
OUR_REASONS = {
    "npf": "npf",
    "msr": "msr",
    "hlt": "hlt",
    "io": "io",
    "interrupt": "interrupt",
    "vintr": "interrupt_window",
    "cpuid": "cpuid",
    "pause": "pause",
    "read_cr0": "cr_read",
    "write_cr0": "cr_write",
    "write_cr0_trap": "cr_write",
    "write_cr4": "cr_write",
}
"""vtax's names for the exit reasons that perf names so (perf has the kernel's own names of SVM's
codes)."""
LAB_TIMEOUT_S = 300.0
"""A lab is made and started, and its programs are loaded; that takes 40 s on an idle machine."""
WORK_S = 3.0
WORKLOAD = ("/bin/vtax-agent", "workload", "fault-storm", "--seconds", "1")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LabMachine]:
    lab = checked("lab:guest=builtin")
    assert isinstance(lab, Lab)
    (tmp_path / "work").mkdir(mode=0o700)
    with contextlib.closing(LabMachine(lab, tmp_path / "work", allowed_cpus())) as made:
        yield made
    assert processes_naming(str(tmp_path)) == []


def counted(run: Path) -> Mapping[str, int]:
    """All counts: the sum of the rows and what came after the last row."""
    return {c["name"]: c["sum"] + (c["after_last_row"] or 0) for c in described(run)}


def test_exits_are_those_of_kvms_own_statistics(machine: LabMachine, tmp_path: Path) -> None:
    """The guest stands still when the recorder begins, when it ends, and at both readings."""
    boot.pause(machine.host, 1)
    recorder = RemoteRecorder(machine.host, str(HOST_PROGRAM))
    recorder.start(RecordOptions.of(every="1ms", events="kvm,sched"), Target(vm="all"))
    before = machine.counters().values
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(machine.guests[0].run, MachineCommand(WORKLOAD, SHELL, "w", 120))
        boot.resume(machine.host, 1)
        assert working.result().outcome.exit_code == 0
    boot.pause(machine.host, 1)
    after = machine.counters().values
    recorder.finish()
    boot.resume(machine.host, 1)
    recorder.fetch(tmp_path / "out")
    sums_agree(tmp_path / "out")
    ours = counted(tmp_path / "out")
    theirs = {name: after[name] - before[name] for name in ("exits", "pf_taken")}
    assert ours["kvm.exits"] == theirs["exits"] > 100
    reasons = sum(value for name, value in ours.items() if name.startswith("kvm.exit."))
    assert reasons == ours["kvm.exits"]
    # A guest that stands still is outside, so it was entered as often as it was left.
    assert abs(ours["kvm.entries"] - ours["kvm.exits"]) <= 1


def test_rows_say_which_guest_and_which_mode(machine: LabMachine, tmp_path: Path) -> None:
    line = tuple(builtin.line(("fault-storm", "--seconds", "2"), "/bin/vtax-agent"))
    work = tmp_path / "work"
    this = Repetition("lab", machine, work, "run", tmp_path / "out", line)
    recording = Recording(RecordOptions.of(every="1ms"))
    repetition.run(this, Command(line, timeout_s=120), SHELL, (recording,), everywhere=True)
    assert this.finished[0].outcome.exit_code == 0
    assert "fault-storm" in (work / "run-0/stdout").read_text()
    rows = pl.read_parquet(tmp_path / "out/intervals.parquet")
    pid = int(machine.host.pull("/run/vtax/guests/0/pid", 64))
    # The value is null where the row belongs to no guest.
    assert set(rows["vm"].drop_nulls().to_list()) == {pid}
    assert rows.filter(pl.col("vm") == pid).height > 20
    assert set(rows["vcpu"].drop_nulls().to_list()) <= {0, -1}
    layers = set(rows["mode"].cast(pl.String).to_list())
    assert any(layer.startswith("guest") for layer in layers), layers
    assert json.loads((tmp_path / "out/record.json").read_text())["vms"] == [pid]


def test_guests_that_end_and_start_in_the_middle(machine: LabMachine, tmp_path: Path) -> None:
    recorder = RemoteRecorder(machine.host, str(HOST_PROGRAM))
    recorder.start(RecordOptions.of(every="1ms", events="kvm,sched"), Target(vm="all"))
    first = int(machine.host.pull("/run/vtax/guests/0/pid", 64))
    # The same guest again: it boots, so there are exits to count.
    script = (
        f"sleep 1; cat /proc/{first}/cmdline > /tmp/line; kill -KILL {first}; sleep 1; "
        "xargs -0 env < /tmp/line; sleep 4"
    )
    machine.host.must(["busybox", "sh", "-c", script], "replace the guest", leave=True)
    second = int(machine.host.pull("/run/vtax/guests/0/pid", 64))
    recorder.finish()
    recorder.fetch(tmp_path / "out")
    sums_agree(tmp_path / "out")
    rows = pl.read_parquet(tmp_path / "out/intervals.parquet")
    assert second != first
    assert rows.filter(pl.col("pid") == second)["kvm.exits"].sum() > 100
    record = json.loads((tmp_path / "out/record.json").read_text())
    assert (record["end"]["reason"], record["lost"]) == ("signal", 0)
    assert set(record["vms"]) == {first, second}


def test_a_recorder_that_does_not_begin_says_what_it_can(machine: LabMachine) -> None:
    """Words of another program are said as such."""
    asked = RecordOptions.of(every="1ms", events="nothing.like.it")
    with pytest.raises(VtaxError, match=r"^(?!the recorder).*nothing\.like\.it"):
        RemoteRecorder(machine.host, str(HOST_PROGRAM)).start(asked, Target(vm="all"))
    said = "did not begin in time; its last words: record: applet not found"
    with pytest.raises(VtaxError, match=said):
        RemoteRecorder(machine.host, "busybox").start(asked, Target(vm="all"))


def test_perf_kvm_stat_agrees(machine: LabMachine, tmp_path: Path) -> None:
    """Both count the same window, at whose ends the guest stands still."""
    perf_kvm.program()
    boot.pause(machine.host, 1)
    recorder = RemoteRecorder(machine.host, str(HOST_PROGRAM))
    recorder.start(RecordOptions.of(every="1ms", events="kvm"), Target(vm="all"))
    perf = PerfKvm(machine.host)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(machine.guests[0].run, MachineCommand(WORKLOAD, SHELL, "w", 120))
        boot.resume(machine.host, 1)
        assert working.result().outcome.exit_code == 0
    boot.pause(machine.host, 1)
    perf.stop()
    recorder.finish()
    theirs = perf.counted()
    recorder.fetch(tmp_path / "out")
    ours = counted(tmp_path / "out")
    assert ours["kvm.exits"] == theirs.exits.total() > 100
    # An exit reason without a name here is a failure, and not left out.
    named: Counter[str] = Counter()
    for reason, count in theirs.exits.items():
        named[f"kvm.exit.{OUR_REASONS[reason]}"] += count
    reasons = {name: n for name, n in ours.items() if name.startswith("kvm.exit.") and n}
    assert reasons == named
    # perf reports an exit at the entry after it; after the last one there is none.
    unfinished = theirs.exits - theirs.reported
    assert unfinished.total() == theirs.exits.total() - theirs.reported.total() == 1


def test_user_mode_linux_is_recorded_from_outside(tmp_path: Path) -> None:
    if reason := obstacle():
        pytest.skip(reason)
    uml = checked("uml:mem=256M")
    done = record_in(
        uml,
        "uml",
        ("fork-exec-storm", "--count", "20"),
        RecordOptions.of(every="1ms"),
        tmp_path / "run",
    )
    assert done.outcomes[0].exit_code == 0
    sums_agree(done.path)
    rows = pl.read_parquet(done.path / "intervals.parquet")
    assert set(rows["comm"].cast(pl.String).to_list()) >= {"linux.uml"}
    record = read_record(done.path)
    assert isinstance(record, RecordingRecord)
    assert (record.state, record.machine.spec) == ("complete", "uml")
    assert "user-mode Linux" in record.machine.description


def test_an_interrupt_finishes_the_recording_and_ends_the_machine(tmp_path: Path) -> None:
    if reason := obstacle():
        pytest.skip(reason)
    checked("uml:mem=256M")
    words = (
        "--in",
        "uml:mem=256M",
        "--every",
        "1ms",
        "--out",
        "run",
        "--",
        "gups",
        "--seconds",
        "1001",
    )
    process = started(words, tmp_path)
    await_bytes(tmp_path / "run/intervals.arrows", 20_000)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "run: run" in out
    assert load(tmp_path / "run").frame.height > 0
    assert read_record(tmp_path / "run").state == "interrupted"
    assert processes_naming(str(tmp_path)) == []


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_an_interrupt_fetches_the_labs_rows_and_ends_it(
    number: signal.Signals, tmp_path: Path
) -> None:
    checked("lab")
    # The same test may run beside this one.
    busy = f"echo begun; while :; do /bin/true; done; : {tmp_path.name}"
    words = ("--in", "lab", "--every", "1ms", "--out", "run", "--", "sh", "-c", busy)
    process = started(words, tmp_path)
    # The recorder counts before the workload is started, whose output is a file here.
    await_bytes(tmp_path / "run/raw/lab/run/stdout", 1, LAB_TIMEOUT_S)
    time.sleep(WORK_S)
    process.send_signal(number)
    out, err = process.communicate(timeout=LAB_TIMEOUT_S)
    assert process.returncode == 130, err
    assert "run: run" in out
    run = tmp_path / "run"
    sums_agree(run)
    assert counted(run)["kvm.exits"] > 100
    assert json.loads((run / "record.json").read_text())["end"]["reason"] == "signal"
    assert read_record(run).state == "interrupted"
    assert processes_naming(str(tmp_path)) == []
    assert processes_naming(busy) == []


def test_an_emulated_guest_is_recorded_from_outside(tmp_path: Path) -> None:
    if reason := obstacle():
        pytest.skip(reason)
    spec = "qemu:accel=tcg,mem=512M"
    done = record_in(
        checked(spec),
        spec,
        ("fork-exec-storm", "--count", "20"),
        RecordOptions.of(every="1ms"),
        tmp_path / "run",
    )
    assert done.outcomes[0].exit_code == 0
    assert "fork-exec-storm" in (done.outputs[0] / "stdout").read_text()
    sums_agree(done.path)
    rows = pl.read_parquet(done.path / "intervals.parquet")
    # QEMU names the thread that emulates the CPU after it where configured, else `qemu`.
    assert any("qemu" in name or "CPU" in name for name in rows["comm"].cast(pl.String))
    assert rows["length_ns"].sum() > 50e6
    record = read_record(done.path)
    assert isinstance(record, RecordingRecord)
    assert (record.state, record.machine.spec) == ("complete", spec)
    assert "TCG" in record.machine.description
    assert processes_naming(str(tmp_path)) == []


def test_a_guest_records_itself(tmp_path: Path) -> None:
    """The guest's faults are its own kernel's: the host's recorder sees those of QEMU's process."""
    spec, asked = "qemu:accel=tcg,mem=512M", ("fault-storm", "--count", "50000")
    options = RecordOptions.of(every="1ms", events="faults,sched")
    done = record_in(checked(spec), spec, asked, options, tmp_path / "run", by_guest=True)
    assert done.outcomes[0].exit_code == 0
    said = (done.outputs[0] / "stdout").read_text()
    assert "fault-storm" in said and "rows" not in said
    sums_agree(done.path)
    # There is a fault for each of its pages, and few others.
    assert 50_000 <= counted(done.path)["faults.user"] < 60_000
    run = json.loads((done.path / "run.json").read_text())
    assert run["recording"]["from"] == "guest"
    assert processes_naming(str(tmp_path)) == []


def test_a_guest_that_cannot_record_says_why(tmp_path: Path) -> None:
    spec, out = "uml:mem=256M", tmp_path / "run"
    with pytest.raises(VtaxError, match="CONFIG_DEBUG_INFO_BTF"):
        record_in(checked(spec), spec, ("true",), RecordOptions.of(every="1ms"), out, by_guest=True)
    assert not out.exists() and processes_naming(str(tmp_path)) == []


def test_a_nested_guests_own_counters_are_in_the_rows(tmp_path: Path) -> None:
    """A storm of page faults in the guest, which the host's rows show by the guest's page."""
    lab = checked("lab")
    argv = ("fault-storm", "--seconds", "10")
    done = record_in(
        lab, "lab", argv, RecordOptions.of(every="1ms", guest="page"), tmp_path / "run"
    )
    assert done.outcomes[0].exit_code == 0
    sums_agree(done.path)
    columns = {column["name"]: column for column in described(done.path)}
    faults = columns["guest.pgfault"]
    # The workload's touches were the guest's faults within the recording's window.
    assert faults["sum"] > 1000, columns
    assert faults["rows"] > 5, columns
    assert columns["guest.context_switches"]["sum"] > 0
    assert columns["kvm.exits"]["sum"] > 0
    assert processes_naming(str(tmp_path)) == []
