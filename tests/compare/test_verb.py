"""`vtax compare` as users call it: help, misuse, and the main job on real machines."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import polars
import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import one_line, vtax
from recording import obstacle, sums_agree
from tested_machines import checked
from vtax.core.formats.folder import load
from vtax.workloads.hpcc_metrics import described

GUESTS = ("uml:mem=512M", "qemu:accel=tcg,mem=512M")


@pytest.mark.parametrize("argv", [(), ("compare",), ("report",), ("doctor",)])
def test_help(argv: tuple[str, ...], snapshot: SnapshotAssertion) -> None:
    done = vtax(*argv, "--help")
    assert done.returncode == 0
    assert done.stdout == snapshot


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--in", "umll", "--", "true"), "unknown environment 'umll'; did you mean 'uml'?"),
        (("--", "hpc"), "did you mean 'hpcc'?"),
        (("--budget", "soon", "--", "true"), "soon"),
        (("--metric", "x=(", "--", "true"), "x=("),
        (("--", "hpcc", "--preset", "huge"), "huge"),
    ],
)
def test_a_misuse_is_one_line_and_leaves_nothing(
    tmp_path: Path, argv: tuple[str, ...], message: str
) -> None:
    done = vtax("compare", *argv, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    argv = ("command", "sh", "-c", "echo the reason >&2; exit 3")
    done = vtax("compare", "--reps", "1", "--", *argv, cwd=tmp_path)
    assert done.returncode == 1
    assert "exit code 3" in done.stderr and "the reason" in done.stderr
    assert "Traceback" not in done.stderr


def compare(tmp_path: Path, *argv: str) -> dict[str, Any]:
    """The result of comparing all three environments, from JSON."""
    for spec in GUESTS:
        checked(spec)
    places = [part for spec in ("native", *GUESTS) for part in ("--in", spec)]
    done = vtax("compare", *places, "--json", "--out", str(tmp_path), *argv)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.slow
def test_hpcc_in_three_environments(tmp_path: Path) -> None:
    if not shutil.which("hpcc"):
        pytest.skip("hpcc is not installed")
    answer = compare(tmp_path, "--reps", "3", "--seed", "1", "--", "hpcc", "--preset", "tiny")
    base = "native:cpus=1,mem=512M"
    assert answer["baseline"] == base
    labels = [each["label"] for each in answer["environments"]]
    assert labels == [base, f"{base}#aa", *GUESTS]
    kernels = {name for name, _, _ in described((400,), 1)}
    rows = {(each["environment"], each["metric"]): each for each in answer["results"]}
    for label in labels:
        assert kernels <= {metric for environment, metric in rows if environment == label}
    for row in rows.values():
        assert row["n"] == 3 and row["best"] is not None and row["median"] > 0
        if row["environment"] in GUESTS:
            assert row["ci_low"] <= row["percent_of_baseline"] <= row["ci_high"]
            assert row["verdict"] in ("slower", "faster", "equivalent", "inconclusive")
    # This no noise can hide: emulation slows arithmetic down by far.
    assert rows[GUESTS[1], "HPL_Tflops"]["verdict"] == "slower"
    assert rows[GUESTS[1], "HPL_Tflops"]["percent_of_baseline"] < 50
    (run,) = tmp_path.iterdir()
    record, samples = load(run)
    assert record.state == "complete" and len(samples) == 3 * len(rows)
    assert (run / "report.html").stat().st_size > 1_000_000
    libraries = [each["libraries"] for each in answer["environments"]]
    assert all("libblas" in " ".join(found) for found in libraries)


@pytest.mark.slow
@pytest.mark.usefixtures("first_in_line")
@pytest.mark.parametrize(("clock", "metric"), [("tsc", "tsc_s"), ("host", "host_wall_s")])
def test_another_clock_leads(tmp_path: Path, clock: str, metric: str) -> None:
    """Both clocks count the same time as the machine's own clock, also in a guest."""
    checked("uml:mem=128M")
    argv = ("--in", "uml:mem=128M", "--reps", "2", "--no-control", "--clock", clock, "--quiet")
    done = vtax("compare", *argv, "--", "sleep", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"= uml:mem=128M: {metric} runs at" in done.stdout
    _, samples = load(next(tmp_path.glob("runs/*")))
    times = [sample for sample in samples if sample.metric == metric]
    assert len(times) == 4
    # The host's time is between the arrivals of two messages. A busy host takes either of them
    # late, by some milliseconds.
    assert all(each.wall_s * 0.99 < each.value < each.host_wall_s * 1.01 for each in times)
    assert all(each.value >= 2 * 0.99 for each in times)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "metric"),
    [
        (("dgemm", "--size", "200", "--times", "2"), "dgemm_gflops"),
        (("stream", "--bytes", "8M", "--times", "3"), "stream_triad"),
        (("command", "sh", "-c", "echo rate 12.5"), "rate"),
    ],
)
def test_every_workload_runs_everywhere(
    tmp_path: Path, workload: tuple[str, ...], metric: str
) -> None:
    if workload[0] == "dgemm" and not Path("/usr/lib/x86_64-linux-gnu/libblas.so.3").exists():
        pytest.skip("there is no libblas.so.3")
    options = ["--reps", "1", "--no-warm-up", "--no-control"]
    if metric == "rate":
        options += ["--metric", "rate:MB/s:higher=rate ([0-9.]+)"]
    answer = compare(tmp_path, *options, "--", *workload)
    values = {each["environment"]: each for each in answer["results"] if each["metric"] == metric}
    assert set(values) == {"native:cpus=1,mem=512M", *GUESTS}
    assert all(each["best"] > 0 and each["better"] == "higher" for each in values.values())


@pytest.mark.slow
def test_two_cpus_and_a_boot_for_each_repetition(tmp_path: Path) -> None:
    spec = "qemu:accel=tcg,smp=2,mem=512M"
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one CPU")
    checked(spec)
    done = vtax(
        *("compare", "--in", spec, "--reps", "2", "--reboot", "each", "--no-warm-up", "--json"),
        *("--out", str(tmp_path), "--", "command", "nproc", "--metric-is-not-mine"),
    )
    assert done.returncode == 1 and "nproc" in done.stderr
    done = vtax(
        *("compare", "--in", spec, "--reps", "2", "--reboot", "each", "--no-warm-up", "--json"),
        *("--metric", "cpus=([0-9]+)", "--out", str(tmp_path), "--", "nproc"),
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    counts = {each["best"] for each in answer["results"] if each["metric"] == "cpus"}
    assert counts == {2.0}
    (guest,) = [each for each in answer["environments"] if each["label"] == spec]
    assert len(guest["boot_s"]) == 3


QUICK = ("--reps", "1", "--no-warm-up", "--no-control", "--json")


def test_a_baseline_that_fails_still_gives_a_report(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one CPU")
    argv = ("--in", "native", "--in", "native:cpus=1", *QUICK)
    done = vtax("compare", *argv, "--", "sh", "-c", "[ $(nproc) = 1 ] || exit 3", cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    rows = {r["environment"]: r for r in json.loads(done.stdout)["results"]}
    assert rows["native"]["verdict"] == "not measured"
    assert rows["native:cpus=1"]["verdict"] == "not compared"
    (report,) = tmp_path.glob("runs/*/report.html")
    assert "nothing could be compared with the baseline" in report.read_text()


def test_results_that_became_a_link_fail_their_repetition_and_no_link_is_kept(
    tmp_path: Path,
) -> None:
    script = (
        'cd "$VTAX_RESULTS"; mkdir deep; ln -s /etc deep/link; mkfifo pipe; echo x > kept; '
        "case $PWD in *r000) cd ..; mv r000 moved; ln -s /etc r000;; esac"
    )
    argv = ("--reps", "2", "--no-warm-up", "--no-control", "--json")
    done = vtax("compare", *argv, "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    (run,) = tmp_path.glob("runs/*")
    record, samples = load(run)
    (failure,) = record.failures
    assert (failure.repetition, {each.repetition for each in samples}) == (0, {1})
    assert "the folder of results was removed or replaced" in failure.message
    assert (run / "report.html").is_file()
    raw = sorted((run / "raw").rglob("*"))
    assert [path for path in raw if path.is_symlink() or path.is_fifo()] == []
    assert (run / "raw/native/r001/kept").read_text() == "x\n"


@pytest.mark.parametrize("spec", ["native", *GUESTS])
def test_a_command_runs_in_the_users_folder(tmp_path: Path, spec: str) -> None:
    checked(spec)
    (tmp_path / "prog").write_text("echo rate $(wc -c <data)\n")
    (tmp_path / "data").write_text("12345")
    argv = ("--in", spec, *QUICK, "--metric", "rate=rate (.*)", "--", "sh", "prog")
    done = vtax("compare", *argv, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [r for r in json.loads(done.stdout)["results"] if r["metric"] == "rate"]
    assert {row["best"] for row in rows} == {5.0}
    (run,) = tmp_path.glob("runs/*")
    assert load(run)[0].workdir == str(tmp_path)
    # In another folder, by name: what it writes to its results is kept, the folder not changed.
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/run").write_text('#!/bin/sh\npwd > "$VTAX_RESULTS/where"\n')
    (tmp_path / "inner/run").chmod(0o755)
    words = ("--in", spec, *QUICK, "--workdir", "inner", "--out", "other", "--", "./run")
    done = vtax("compare", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "inner").iterdir()] == ["run"]
    found = [path.read_text() for path in tmp_path.glob("other/*/raw/*/r000/where")]
    assert found and set(found) == {f"{tmp_path}/inner\n"}


def test_what_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    checked("uml")
    gone = vtax("compare", "--in", "uml", *QUICK, "--share", "gone", "--", "true", cwd=tmp_path)
    assert "--share gone: it does not exist" in one_line(gone, 2)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--workdir", "/nonexistent"), "--workdir /nonexistent: it is not a folder"),
        (("--in", "uml", "--workdir", "/proc"), "uml does not have this machine's /proc"),
    ],
)
def test_a_working_folder_that_is_not_there_is_refused(
    tmp_path: Path, argv: tuple[str, ...], message: str
) -> None:
    done = vtax("compare", *argv, "--", "true", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_warm_up_that_fails_in_one_environment_still_gives_a_report(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one CPU")
    argv = ("--in", "native", "--in", "native:cpus=1", "--no-control", "--reps", "1", "--json")
    script = "[ $(nproc) = 1 ] || { echo why >&2; exit 3; }"
    done = vtax("compare", *argv, "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    rows = {r["environment"]: r for r in json.loads(done.stdout)["results"]}
    assert rows["native"]["verdict"] == "not measured"
    assert rows["native:cpus=1"]["n"] == 1
    (run,) = tmp_path.glob("runs/*")
    (failure,) = load(run)[0].failures
    assert (failure.environment, failure.repetition) == ("native", 0)
    assert failure.message == "sh ended with exit code 3: why"
    assert "sh ended with exit code 3: why" in (run / "report.html").read_text()


@pytest.mark.parametrize("warm_up", [("--warm-up",), ("--no-warm-up",)])
def test_where_all_fails_one_line_says_how_and_where_its_output_is(
    tmp_path: Path, warm_up: tuple[str, ...]
) -> None:
    script = "echo first; echo why >&2; exit 3"
    # The control is left out: it may be the first to fail.
    options = ("--quiet", "--reps", "1", "--no-control", *warm_up)
    done = vtax("compare", *options, "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "nothing was measured: native: sh ended with exit code 3: why" in done.stderr
    (run,) = tmp_path.glob("runs/*")
    place = done.stderr.strip().rpartition("what it printed is in ")[2]
    assert Path(place) == run / "raw/native"
    assert [path.read_text() for path in Path(place).glob("[wr]*/stdout")] == ["first\n"]


@pytest.mark.parametrize("damage", ["missing", "of another run", "text"])
def test_a_report_of_damaged_samples_leaves_the_good_one(tmp_path: Path, damage: str) -> None:
    done = vtax("compare", *QUICK, "--", "true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = tmp_path.glob("runs/*")
    before = (run / "report.html").read_bytes()
    samples = run / "samples.parquet"
    if damage == "missing":
        samples.unlink()
    elif damage == "text":
        samples.write_text("value\n")
    else:
        other = polars.read_parquet(samples).with_columns(polars.lit("uml").alias("environment"))
        other.write_parquet(samples)
    done = vtax("report", str(run))
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "samples.parquet" in done.stderr
    assert (run / "report.html").read_bytes() == before


def test_a_cpu_model_that_qemu_does_not_know_is_not_a_lack_of_memory(tmp_path: Path) -> None:
    spec = "qemu:accel=tcg,mem=256M,cpu=nosuch"
    checked(spec)
    done = vtax("compare", "-q", "--in", spec, *QUICK, "--", "true", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "leave out cpu=nosuch" in done.stderr and "more memory" not in done.stderr


@pytest.mark.slow
def test_with_record_each_repetition_has_rows(tmp_path: Path) -> None:
    if reason := obstacle():
        pytest.skip(f"this machine cannot record: {reason}")
    checked("uml:mem=256M")
    words = ("--in", "uml:mem=256M", "--reps", "2", "--no-control", "--quiet", "--with", "record")
    done = vtax("compare", *words, "--", "ls", "-R", "/usr/share/doc", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    found = sorted(str(path.parent.relative_to(run)) for path in run.rglob("intervals.parquet"))
    names = ("native-cpus-1-mem-256M", "uml-mem-256M")
    assert found == [f"instruments/{name}/r00{number}" for name in names for number in (0, 1)]
    for name in found:
        sums_agree(run / name)
    assert len(load(run)[1]) == 2 * 2 * 2


@pytest.mark.slow
def test_with_what_no_environment_has_nothing_boots(tmp_path: Path) -> None:
    done = vtax("compare", "--in", "uml", "--with", "kvm-counters", "--", "true", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "environments that do: lab" in done.stderr
    assert list(tmp_path.iterdir()) == []


DIRECTIONS = """\
if grep -q 'User Mode Linux' /proc/cpuinfo; then k=1; dev='1.67 ms'; else k=2; dev='944 us'; fi
echo "Performance: $((k*100)) steps/s"; echo "rate $((k*500)) ops per second"
echo "cost $((3-k))00"; echo "dev: $dev"
"""


@pytest.mark.slow
def test_half_as_good_is_half_whatever_a_metric_is_called(tmp_path: Path) -> None:
    checked("uml")
    (tmp_path / "dirs.sh").write_text(DIRECTIONS)
    half = ("ops_per_s=rate ([0-9]+)", "MB_s=rate ([0-9]+)", "perf=Performance: ([0-9]+)")
    half += ("cost:lower=cost ([0-9]+)",)
    times = ("mean:us=dev: ([0-9.]+)", "undeclared=dev: ([0-9.]+)")
    options = [word for each in (*half, *times) for word in ("--metric", each)]
    argv = ("--in", "native", "--in", "uml", "--baseline", "none", *QUICK, "--reps", "2")
    done = vtax("compare", *argv, *options, "--json", "--", "sh", "dirs.sh", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = [each for each in json.loads(done.stdout)["results"] if each["environment"] == "uml"]
    found = {each["metric"]: each for each in results}
    for name in ("ops_per_s", "MB_s", "perf", "cost"):
        assert found[name]["percent_of_baseline"] == pytest.approx(50)
    for name in ("mean", "undeclared"):
        assert found[name]["percent_of_baseline"] == pytest.approx(100 * 944 / 1670)
    assert {name: (each["better"], each["better_from"]) for name, each in found.items()} == {
        **dict.fromkeys(("ops_per_s", "MB_s", "perf"), ("higher", "unit")),
        **{"cost": ("lower", "given"), "mean": ("lower", "unit"), "undeclared": ("lower", "unit")},
        **dict.fromkeys(("wall_s", "cpu_s"), ("lower", "given")),
    }


def test_several_matches_are_noted_and_the_newest_is_taken(tmp_path: Path) -> None:
    script = 'echo "v $(wc -l < log)" >> log; cat log'
    (tmp_path / "log").write_text("")
    argv = ("--reps", "3", "--in", "native", "--baseline", "none", "--no-control", "--quiet")
    argv += ("--metric", "v:higher=v ([0-9]+)", "--json", "--", "sh", "-c", script)
    done = vtax("compare", *argv, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    found = {each["metric"]: each for each in printed["results"]}["v"]
    assert (found["median"], found["best"]) == (2, 3)
    notes = [each["message"] for each in printed["flags"] if each["kind"] == "several-matches"]
    assert len(notes) == 1 and "2 to 4 matches" in notes[0] and "their number grows" in notes[0]
