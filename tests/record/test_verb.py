"""`vtax record` as users call it, on this machine: real recordings, refusals, interruptions."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

import polars as pl
import pytest

from process_watch import descendants, ended, eventually, processes_naming
from recording import await_bytes, described, environment, line, obstacle, started, sums_agree
from vtax.core import binaries
from vtax.core.errors import MisuseError
from vtax.core.formats.folder import read_record
from vtax.core.formats.model import RecordingRecord
from vtax.core.matching import matching
from vtax.core.recorder.intervals import load
from vtax.core.recorder.options import RecordOptions, Target
from vtax.core.recorder.recorder import Recorder, failure
from vtax.environments.base import allowed_cpus
from vtax.environments.option_values import usual_processes
from vtax.record.verb import _show
from vtax.workloads import builtin

NOBODY = 65534
TIMEOUT_S = 120.0
BUSY = ("sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 3")


@pytest.fixture
def can_record() -> None:
    if reason := obstacle():
        pytest.skip(f"this machine cannot record: {reason}")


def vtax(verb: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line(verb, *arguments),
        capture_output=True,
        text=True,
        env=environment(),
        cwd=folder,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_a_reference_whose_counter_others_took_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"rows": 7, "lost": 0, "reference": "instructions", "warnings": []}
    _show(Path("run"), {**found, "reference_running": 0.375}, "", as_json=False)
    assert "reference: instructions in 37.5 % of the time\n" in capsys.readouterr().out
    _show(Path("run"), {**found, "reference_running": 1.0}, "", as_json=False)
    assert "reference: instructions\n" in capsys.readouterr().out


@pytest.mark.usefixtures("can_record")
def test_counters_take_turns_and_their_sums_are_no_totals(tmp_path: Path) -> None:
    line = ("--every", "1ms", "--counters", "2", "--events", "sw,sched", "--for", "1s")
    done = vtax("record", *line, "--out", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4 groups took turns" in done.stderr
    sums_agree(tmp_path / "run")
    recording = load(tmp_path / "run")
    lengths = recording.frame["length_ns"].sum()
    faults, switches = recording.event("sw.page_faults"), recording.event("sched.switches")
    assert recording.total(faults) is None
    assert 0 < recording.measured_ns(faults) < lengths / 2
    assert recording.total(switches) == recording.frame["sched.switches"].sum()
    assert recording.measured_ns(switches) == lengths
    asked = {"every": "1ms", "events": "sw,sched", "for": "1s", "counters": 2}
    record = read_record(tmp_path / "run")
    assert isinstance(record, RecordingRecord) and record.recording == asked


@pytest.mark.usefixtures("can_record")
def test_the_recorder_stays_small(tmp_path: Path) -> None:
    done = vtax("record", "--every", "100us", "--for", "2s", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["record"]["max_rss_bytes"] < 32 << 20


@pytest.mark.usefixtures("can_record")
def test_a_command_is_recorded_and_its_end_is_said(tmp_path: Path) -> None:
    done = vtax("record", "--every", "1ms", "--out", "run", "--", *BUSY, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the command ended with code 3" in done.stdout
    assert done.stdout.endswith("run: run\n")
    sums_agree(tmp_path / "run")
    rows = pl.read_parquet(tmp_path / "run/intervals.parquet")
    assert rows.height > 20
    assert rows["length_ns"].sum() > 20e6
    record = read_record(tmp_path / "run")
    assert isinstance(record, RecordingRecord)
    assert (record.verb, record.state) == ("record", "complete")
    assert record.recording == {"every": "1ms"}
    assert record.argv == BUSY
    assert record.machine.facts["kernel"]["release"] == os.uname().release
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700


HELD = "cat /proc/self/cgroup > groups; setsid sleep 5{0} & setsid sleep 5{0} & touch begun; {1}"
"""A command that leaves two processes in sessions of their own, which end by themselves."""


def group_of(folder: Path) -> str | None:
    """The name of vtax's group in which a command HELD ran."""
    found = re.search(r"/(vtax-[0-9-]+)$", (folder / "groups").read_text(), re.MULTILINE)
    return found[1] if found else None


@pytest.mark.usefixtures("can_record")
@pytest.mark.parametrize("end", ["by itself", "by --for", "by kill -9 of the recorder"])
def test_what_a_command_leaves_running_is_ended(tmp_path: Path, end: str) -> None:
    mark = f"97.{os.getpid()}"
    time = ("--for", "2s") if end == "by --for" else ()
    script = HELD.format(mark, "exit 0" if end == "by itself" else "sleep 60")
    with ended(
        started(("--events", "sched", *time, "--out", "run", "--", "sh", "-c", script), tmp_path)
    ) as process:
        if "kill -9" in end:
            assert eventually((tmp_path / "begun").exists, 60)
            (recorder,) = [
                each
                for each in descendants(process.pid)
                if "vtax-host" in Path(f"/proc/{each}/cmdline").read_text().split("\0")[0]
            ]
            os.kill(recorder, signal.SIGKILL)
        process.wait(TIMEOUT_S)
        assert not processes_naming(f"sleep 5{mark}")
    group = group_of(tmp_path)
    assert not (group and list(matching(Path("/sys/fs/cgroup"), f"**/{group}")))


@pytest.mark.usefixtures("can_record")
def test_a_command_may_have_as_many_processes_as_natively(tmp_path: Path) -> None:
    for run in ("alone", "inside"):
        script = "g=$(sed -n 's/^[0-9]*:pids:\\|^0:://p' /proc/self/cgroup | head -1); "
        script += "cat /sys/fs/cgroup/pids$g/pids.max /sys/fs/cgroup$g/pids.max 2>/dev/null > "
        script += f"{tmp_path}/{run}; true"
        where = ("--in", "native") if run == "inside" else ()
        words = ("--events", "sched", *where, "--out", run + ".run", "--", "sh", "-c", script)
        done = vtax("record", *words, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    limits = {(tmp_path / run).read_text() for run in ("alone", "inside")}
    assert len(limits) == 1
    if "not limited by a control group" not in done.stderr:
        assert limits == {f"{usual_processes(len(allowed_cpus()))}\n"}


@pytest.mark.usefixtures("can_record")
def test_all_that_was_counted_is_in_the_rows_or_after_them(tmp_path: Path) -> None:
    """Forks of the whole machine: at least those of the command, against the kernel's count."""

    def forks() -> int:
        lines = Path("/proc/stat").read_text().splitlines()
        return next(int(each.split()[1]) for each in lines if each.startswith("processes "))

    with Recorder(
        RecordOptions.of(every="1ms", events="sched").arguments(), tmp_path / "out"
    ) as recorder:
        recorder.ready()
        before = forks()
        for _ in range(50):
            subprocess.run(["true"], check=True)
        after = forks()
        recorder.finish()
    sums_agree(tmp_path / "out")
    column = next(c for c in described(tmp_path / "out") if c["name"] == "sched.forks")
    counted = column["sum"] + column["after_last_row"]
    # The kernel's window lies within the recorder's.
    assert counted >= after - before >= 50


@pytest.mark.usefixtures("can_record")
def test_json_has_the_record_and_the_command_keeps_its_output(tmp_path: Path) -> None:
    done = vtax("record", "--json", "--out", "run", "--", "echo", "mine", folder=tmp_path)
    content = json.loads(done.stdout)
    assert content["run"] == "run"
    assert content["command"] == "the command ended with code 0"
    assert content["record"]["reference"] in ("instructions", "task_clock")
    assert done.stderr == "mine\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--every", "1us", "--for", "1s"), "1us is outside the range 50us to 1s"),
        (("--every", "1Gi", "--for", "1s"), "outside the range 2M to 400M"),
        (("--events", "shced.switches", "--for", "1s"), "sched.switches"),
        (("--vm", "all", "--pid", "1"), "cannot be used with"),
        (("--in", "umml", "--", "true"), "did you mean 'uml'?"),
        (("--in", "native"), "--in needs a workload"),
        (("--in", "native", "--vm", "all", "--", "true"), "cannot be used with"),
        (("--in", "lab", "--guest", "/dev/shm/x", "--", "true"), "lab"),
    ],
)
@pytest.mark.usefixtures("can_record")
def test_misuse_is_one_line_and_leaves_nothing(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = vtax("record", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    # The user called vtax; the recorder need not be on PATH.
    assert done.stderr.startswith("vtax") and "vtax-host" not in done.stderr
    assert list(tmp_path.glob("runs/*")) == []


@pytest.mark.usefixtures("can_record")
def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    for code in (0, 2):
        done = vtax("record", "--for", "50ms", "--out", "run", folder=tmp_path)
        assert done.returncode == code
    assert "name another folder with --out" in done.stderr
    assert read_record(tmp_path / "run").state == "complete"


@pytest.mark.usefixtures("can_record")
@pytest.mark.parametrize("where", [(), ("--in", "native")])
@pytest.mark.parametrize("program", ["/no/such/program", "no-such-program", "/etc/passwd"])
def test_a_program_that_cannot_be_started_is_named(
    tmp_path: Path, program: str, where: tuple[str, ...]
) -> None:
    done = vtax("record", *where, "--out", "run", "--", program, folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"vtax: program '{program}': ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("can_record")
def test_a_working_folder_is_for_machines(tmp_path: Path) -> None:
    done = vtax("record", "--workdir", ".", "--", "true", folder=tmp_path)
    assert done.returncode == 2 and "--workdir needs --in" in done.stderr
    done = vtax("record", "--share", ".", "--", "true", folder=tmp_path)
    assert done.returncode == 2 and "--share needs --in" in done.stderr
    (tmp_path / "inner").mkdir()
    words = ("--in", "native", "--workdir", "inner", "--out", "run", "--", "pwd")
    done = vtax("record", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == str(tmp_path / "inner")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_without_privilege_the_capability_is_named() -> None:
    # Tests' folders are accessible to root alone; nobody else must be able to execute the file.
    with tempfile.TemporaryDirectory(prefix="vtax-nobody-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        program = folder / "vtax-host"
        program.write_bytes(binaries.find("vtax-host").read_bytes())
        program.chmod(0o755)
        done = subprocess.run(
            [program, "record", "--out", folder / "never", "--for", "1s"],
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 1
    error = failure(done.returncode, done.stderr)
    assert "CAP_" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("can_record")
def test_an_interrupt_finishes_the_files(number: signal.Signals, tmp_path: Path) -> None:
    process = started(("--every", "1ms", "--out", "run", "--", "sleep", "1005"), tmp_path)
    await_bytes(tmp_path / "run/intervals.arrows", 1)
    process.send_signal(number)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    assert "was ended with the recording" in out
    assert json.loads((tmp_path / "run/record.json").read_text())["end"]["reason"] == "signal"
    assert not (tmp_path / "run/intervals.arrows").exists()
    assert read_record(tmp_path / "run").state == "complete"
    assert processes_naming("sleep 1005") == []


@pytest.mark.usefixtures("can_record")
def test_rows_of_a_killed_recorder_are_analysed(tmp_path: Path) -> None:
    # A loop, so that switches and faults vary.
    busy = "while :; do for i in 1 2 3 4 5 6 7 8; do /bin/true; done; sleep 0.01; done"
    process = started(("--every", "1ms", "--out", "run", "--", "sh", "-c", busy), tmp_path)
    await_bytes(tmp_path / "run/intervals.arrows", 20_000)
    recorder = children(process.pid)
    assert len(recorder) == 1
    os.kill(recorder[0], signal.SIGKILL)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode != 0
    assert "rows are those up to its last flush" in err
    assert read_record(tmp_path / "run").state == "failed"
    assert any("up to its last flush" in note for note in load(tmp_path / "run").notes)
    for verb, *more in (("correlate",), ("timeline", "--event", "faults.user")):
        done = vtax(verb, "run", *more, "--json", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "up to its last flush" in done.stdout


@pytest.mark.usefixtures("can_record")
def test_a_recorder_finishes_when_vtax_is_killed(tmp_path: Path) -> None:
    process = started(("--every", "1ms", "--out", "run"), tmp_path)
    await_bytes(tmp_path / "run/intervals.arrows", 1)
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    await_bytes(tmp_path / "run/record.json", 1)
    assert load(tmp_path / "run").frame.height > 0
    assert read_record(tmp_path / "run").state == "running"


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def test_list_says_what_is_absent_and_why(tmp_path: Path) -> None:
    done = vtax("record", "--list", "--json", folder=tmp_path)
    listed = json.loads(done.stdout)
    names = [each["name"] for each in listed]
    assert {"hw.instructions", "sched.switches", "kvm.exits", "kvm.exit.npf"} <= set(names)
    assert all(each.get("reason") for each in listed if not each["available"])


def test_a_report_of_a_recording_says_what_reads_it(tmp_path: Path) -> None:
    if reason := obstacle():
        pytest.skip(reason)
    assert vtax("record", "--for", "20ms", "--out", "run", folder=tmp_path).returncode == 0
    done = vtax("report", "run", folder=tmp_path)
    assert done.returncode == 2
    assert "vtax timeline run" in done.stderr


def test_command_lines() -> None:
    options = RecordOptions({"every": "50Mi", "for": "30s", "overhead": ""})
    pages = options.with_pages([Path("/dev/shm/first"), Path("/dev/shm/second")])
    assert pages.arguments() == [
        *("--every=50Mi", "--for=30s", "--overhead"),
        *("--guest=/dev/shm/first", "--guest=/dev/shm/second"),
    ]
    assert pages.asked()["overhead"] is True
    assert Target(command=("make", "--jobs")).arguments() == ["--", "make", "--jobs"]
    assert builtin.line(("sh", "-c", "true")) == ["sh", "-c", "true"]
    assert builtin.line(("gups", "--count", "5"))[1:] == ["workload", "gups", "--count", "5"]


def test_copies_run_at_once_and_one_failure_is_the_end(tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/count; [ $(wc -l < {tmp_path}/count) -lt 3 ]"
    done = subprocess.run(builtin.several(("sh", "-c", script), 3), check=False, timeout=300)
    assert (tmp_path / "count").read_text() == "x\n" * 3
    assert done.returncode != 0
    assert subprocess.run(builtin.several(("true",), 3), check=False, timeout=300).returncode == 0


def test_the_recorders_words_become_one_error() -> None:
    misuse = failure(2, "vtax: event x: no such event\n")
    assert isinstance(misuse, MisuseError)
    assert str(misuse) == "event x: no such event"
    assert not isinstance(failure(1, ""), MisuseError)
