"""Faults of the whole command: each ends in one line or in a partial result that says so."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from subprocess import DEVNULL

import pytest

from command_line import command, one_line, run
from process_watch import descendants, ended, eventually, processes_naming
from tested_machines import checked
from vtax.core.formats.folder import load
from vtax.core.matching import matching

pytestmark = pytest.mark.slow

GUESTS = ("uml:mem=256M", "qemu:accel=tcg,mem=512M")


def start_long(
    tmp_path: Path, environment: dict[str, str], spec: str, seconds: str
) -> subprocess.Popen[str]:
    """A run that has finished some repetitions and is in the middle of another."""
    argv = command(
        "compare", "--in", spec, "--reps", "1000", "--out", str(tmp_path), "--", "sleep", seconds
    )
    process = subprocess.Popen(
        argv,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that starts the tests with `&` has them ignore Ctrl-C, and vtax would inherit it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        if any(path.stat().st_size > 3000 for path in tmp_path.glob("*/samples.jsonl")):
            return process
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"no samples came: {process.communicate()[0]}")


def eventually_gone(*texts: str) -> bool:
    return eventually(lambda: not any(processes_naming(text) for text in texts))


def abandoned_cgroups() -> set[str]:
    """Control groups whose agent is gone; other runs on this machine have groups of their own."""
    return {
        str(path)
        for path in matching(Path("/sys/fs/cgroup"), "**/vtax-[0-9]*")
        if not Path("/proc", path.name.split("-")[1]).exists()
    }


@pytest.mark.parametrize("spec", GUESTS)
def test_kill_9_loses_no_finished_sample_and_leaves_no_guest(
    tmp_path: Path, environment: dict[str, str], spec: str
) -> None:
    checked(spec)
    before = abandoned_cgroups()
    process = start_long(tmp_path, environment, spec, "0.07111")
    (folder,) = tmp_path.iterdir()
    finished = (folder / "samples.jsonl").read_text().count("\n")
    process.kill()
    process.wait()
    assert eventually_gone(str(tmp_path), "sleep 0.07111")
    assert eventually(lambda: abandoned_cgroups() <= before)
    record, samples = load(folder)
    assert record.state == "running" and len(samples) >= finished > 0
    done = run(environment, "report", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    flags = {flag["kind"] for flag in json.loads(done.stdout)["flags"]}
    assert "cut-short" in flags
    assert (folder / "report.html").stat().st_size > 100_000
    assert not (folder / "samples.jsonl").exists()


RELAYS = """: RELAY-{0}
next() {{ [ $1 -gt 0 ] && next $(($1 - 1)) & }}
for i in 1 2 3 4 5 6 7 8 9 10; do next 20000; done
echo > "$VTAX_RESULTS/begun"; sleep 60"""
"""Ten processes at a time, each of which forks the next one and ends; they end by themselves."""


def test_kill_9_of_the_agent_leaves_nothing_that_forks_without_end(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    before = abandoned_cgroups()
    script = RELAYS.format(os.getpid())
    argv = command(
        "compare", "--in", "native:pids=100", "--baseline", "none", "--no-control", "--no-warm-up"
    )
    argv += ["--reps", "1", "--out", str(tmp_path), "--quiet", "--", "sh", "-c", script]
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert eventually(lambda: any(tmp_path.glob("*/raw/*/*/begun")))
        (agent,) = children(process.pid)
        os.kill(agent, signal.SIGKILL)
        process.wait(60)
        assert process.returncode == 1
    # At once, not eventually: nothing is alive when vtax has exited.
    assert not processes_naming(f"RELAY-{os.getpid()}")
    assert abandoned_cgroups() <= before


def children(number: int) -> list[int]:
    tasks = Path(f"/proc/{number}/task").glob("*/children")
    return [int(word) for path in tasks for word in path.read_text().split()]


def test_kill_9_in_the_middle_of_mpirun_leaves_no_temporary_file(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    if not shutil.which("hpcc"):
        pytest.skip("hpcc is not installed")
    argv = command("compare", "--out", str(tmp_path), "--", "hpcc", "--sizes", "6000")
    with ended(subprocess.Popen(argv, env=environment, stdout=DEVNULL, stderr=DEVNULL)) as process:

        def sessions() -> list[Path]:
            """The folders of the mpiruns that this run started."""
            # Open MPI 4 and 5.
            names = [
                (f"ompi.*/pid.{pid}", f"prterun.*.{pid}.*") for pid in descendants(process.pid)
            ]
            return [path for each in names for name in each for path in Path("/tmp").glob(name)]

        assert eventually(sessions, within_s=60)
        left = sessions()
        process.kill()
        process.wait()
        assert eventually(lambda: not any(path.exists() for path in left))
        pids = [next(part for part in path.name.split(".") if part.isdecimal()) for path in left]
        assert eventually(lambda: not any(Path("/proc", pid).exists() for pid in pids))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_writes_the_report_and_ends_every_guest(
    tmp_path: Path, environment: dict[str, str], number: int
) -> None:
    spec = GUESTS[0]
    checked(spec)
    before = abandoned_cgroups()
    process = start_long(tmp_path, environment, spec, "0.07222")
    process.send_signal(number)
    printed = process.communicate(timeout=300)[0]
    assert process.returncode == 130, printed
    assert "interrupted" in printed and "Traceback" not in printed
    (folder,) = tmp_path.iterdir()
    record, samples = load(folder)
    assert record.state == "interrupted" and samples
    assert (folder / "report.html").exists() and (folder / "samples.parquet").exists()
    assert eventually_gone(str(tmp_path), "sleep 0.07222")
    assert eventually(lambda: abandoned_cgroups() <= before)


def test_the_default_place_is_below_the_working_folder(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        command("compare", "--reps", "1", "--json", "--quiet", "--", "true"),
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    assert (tmp_path / answer["run"] / "report.html").exists()
    assert {each["metric"] for each in answer["results"]} == {"wall_s", "cpu_s"}


def test_two_runs_at_once_do_not_meet(tmp_path: Path, environment: dict[str, str]) -> None:
    argv = command("compare", "--in", "native", "--reps", "3", "--out", str(tmp_path), "--", "true")
    both = [
        subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for _ in range(2)
    ]
    assert [process.wait(60) for process in both] == [0, 0]
    folders = list(tmp_path.iterdir())
    assert len(folders) == 2
    assert all(len({each.repetition for each in load(folder)[1]}) == 3 for folder in folders)


def test_a_read_only_place_is_one_line(environment: dict[str, str]) -> None:
    done = run(environment, "compare", "--out", "/proc/runs", "--", "true")
    assert "--out" in one_line(done, 1)


def test_a_full_disk_keeps_what_was_finished(tmp_path: Path, environment: dict[str, str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("a small file system to fill needs root")
    small = tmp_path / "small"
    small.mkdir()
    vtax = " ".join(command("compare", "--no-warm-up", "--reps", "2000", "--out", str(small)))
    # The mount namespace is its own, so that nothing stays mounted.
    script = f"mount -t tmpfs -o size=200k none {small}; {vtax} -- true; echo code $?; "
    script += f"cat {small}/*/samples.jsonl | tail -c 5000 | head -c 4000 | wc -l; "
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "code 1" in done.stdout, done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("vtax: ")]
    assert "No space left" in error and "free space" in error
    assert int(done.stdout.split()[-1]) > 0
    assert "Traceback" not in done.stderr


def test_a_guest_that_cannot_hold_its_kernel_is_one_line(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    done = run(environment, "compare", "--in", "uml:mem=4M", "--out", str(tmp_path), "--", "true")
    assert "too small to boot" in one_line(done, 2)
    assert list(tmp_path.iterdir()) == []


def test_a_guest_that_cannot_hold_the_problem_says_so(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    checked("uml")
    argv = (
        "compare",
        "--in",
        "uml:mem=64M",
        "--out",
        str(tmp_path),
        "--",
        "hpcc",
        "--sizes",
        "9000",
    )
    assert "9000" in one_line(run(environment, *argv), 2)
    assert list(tmp_path.iterdir()) == []


def test_memory_exhausted_in_the_guest_is_said(tmp_path: Path, environment: dict[str, str]) -> None:
    checked("uml")
    script = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}"
    argv = ("compare", "--in", "uml:mem=64M", "--reps", "1", "--out", str(tmp_path))
    done = run(environment, *argv, "--", "command", "sh", "-c", script)
    assert done.returncode == 1
    assert "killed" in done.stderr.lower() or "memory" in done.stderr.lower()


@pytest.mark.parametrize(
    ("hidden", "spec", "word"),
    [
        ("linux.uml", "uml", "apt-get install user-mode-linux"),
        ("qemu-system-x86_64", "qemu:accel=tcg", "apt-get install qemu-system-x86"),
        ("bwrap", "uml", "apt-get install bubblewrap"),
        ("mpirun", "native", "mpirun"),
        ("podman", "container", "apt-get install podman"),
        ("runsc", "gvisor", "apt-get install runsc"),
        ("ssh", "ssh:nowhere", "apt-get install openssh-client"),
    ],
)
def test_a_missing_program_names_its_remedy(
    tmp_path: Path, environment: dict[str, str], hidden: str, spec: str, word: str
) -> None:
    # A PATH of links to everything but the program in question.
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("linux.uml", "qemu-system-x86_64", "bwrap", "mpirun", "hpcc", "taskset", "true"):
        found = shutil.which(name)
        if found and name != hidden:
            (tools / name).symlink_to(found)
    argv = (
        "compare",
        "--in",
        spec,
        "--out",
        str(tmp_path / "runs"),
        "--",
        "hpcc",
        "--preset",
        "tiny",
    )
    done = run(environment | {"PATH": str(tools)}, *argv)
    assert word in one_line(done, 1)


def test_hpcc_failing_its_own_check_fails_loudly(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """A real HPCC whose residual threshold is negative: every residual is too large."""
    if not shutil.which("hpcc"):
        pytest.skip("hpcc is not installed")
    from vtax import workloads
    from vtax.core.errors import VtaxError
    from vtax.core.formats.exchange import Exchange
    from vtax.environments import build
    from vtax.environments.machine import Machine
    from vtax.workloads.base import MachineShape

    workload = workloads.parse(("hpcc", "--preset", "tiny", "-np", "1"), ())
    made = workload.command(MachineShape(1, 1 << 30))
    text = made.files["hpccinf.txt"].decode().splitlines()
    (line,) = [number for number, each in enumerate(text) if "threshold" in each.split()[1:2]]
    text[line] = "-1.0 threshold"
    exchange = Exchange(tmp_path, "r0")
    exchange.create({"hpccinf.txt": "\n".join(text).encode() + b"\n"})
    with Machine(build("native"), tmp_path, [0]) as machine:
        full = environment | dict(made.environment)
        finished = machine.run(made.argv, full, "r0", timeout_s=60)
        assert finished.outcome.exit_code == 0
        with pytest.raises(VtaxError, match="HPL"):
            workload.metrics(finished.outcome, exchange)
