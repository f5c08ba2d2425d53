"""`vtax compare` as users call it: help, misuse, and the main job on real machines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from conftest import checked
from test_record import obstacle, sums_agree
from vtax.formats.folder import load
from vtax.workloads.hpcc_metrics import described

GUESTS = ("uml:mem=512M", "qemu:accel=tcg,mem=512M")


def vtax(*argv: str, cwd: Path | None = None, timeout: float = 300) -> Any:
    source = Path(__file__).resolve().parent.parent / "python"
    environment = os.environ | {"PYTHONPATH": str(source), "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "vtax.cli.main", *argv],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


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
    """The JSON of a comparison of all three environments."""
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
    # What no noise can hide: emulation slows arithmetic down by far.
    assert rows[GUESTS[1], "HPL_Tflops"]["verdict"] == "slower"
    assert rows[GUESTS[1], "HPL_Tflops"]["percent_of_baseline"] < 50
    (run,) = tmp_path.iterdir()
    record, samples = load(run)
    assert record.state == "complete" and len(samples) == 3 * len(rows)
    assert (run / "report.html").stat().st_size > 1_000_000
    libraries = [each["libraries"] for each in answer["environments"]]
    assert all("libblas" in " ".join(found) for found in libraries)


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
