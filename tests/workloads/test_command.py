"""The workloads command, dgemm and stream, their registry, and the environment they run in."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tested_machines
from command_line import SOURCE
from vtax.core.errors import MisuseError, VtaxError
from vtax.workloads import names, parse
from vtax.workloads.base import MachineShape, Metric
from vtax.workloads.command import parse_pattern
from vtax.workloads.dgemm import Dgemm
from vtax.workloads.stream import Stream
from vtax.workloads.variables import base_environment, is_secret, user_variables

GIB = 1 << 30
OUTCOME = replace(tested_machines.OUTCOME, wall_s=2.0, user_s=1.0, system_s=0.5, steal_s=0.0)


class Folder:
    """A working folder in memory that enforces its limit."""

    def __init__(self, stdout: str = "", stderr: str = "") -> None:
        self.files = {"stdout": stdout, "stderr": stderr}

    def read_bytes(self, name: str, limit_bytes: int = 16 << 20) -> bytes:
        return self.read_text(name, limit_bytes).encode()

    def read_text(self, name: str, limit_bytes: int = 16 << 20) -> str:
        if len(self.files[name]) > limit_bytes:
            raise VtaxError(f"result file '{name}' is larger than {limit_bytes} bytes: refused")
        return self.files[name]


def by_name(found: Sequence[Metric]) -> dict[str, Metric]:
    return {metric.name: metric for metric in found}


def test_all_workloads_are_registered() -> None:
    assert names() == ["command", "dgemm", "hpcc", "stream"]


def test_any_other_word_is_a_command() -> None:
    assert parse(["sleep", "1"]) == parse(["command", "sleep", "1"])
    assert parse(["command", "--", "hpcc"]).parameters()["argv"] == ["hpcc"]
    assert parse(["./hpc"]).label() == "./hpc"
    assert parse(["no-such-program-at-all"]).needs() == ("no-such-program-at-all",)


@pytest.mark.parametrize(
    ("slip", "meant"), [("hpc", "hpcc"), ("dgem", "dgemm"), ("steam", "stream")]
)
def test_a_slip_names_the_nearest(slip: str, meant: str) -> None:
    with pytest.raises(MisuseError, match=f"'{slip}'.*did you mean '{meant}'"):
        parse([slip, "--preset", "small"])


@pytest.mark.parametrize("argv", [[], ["--preset", "small"], ["command"], ["command", "--"]])
def test_nothing_to_run_is_misuse(argv: list[str]) -> None:
    with pytest.raises(MisuseError):
        parse(argv)


def test_help_of_each_workload_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    for name in names():
        with pytest.raises(SystemExit) as caught:
            parse([name, "--help"])
        assert caught.value.code == 0
        assert "example:\n  vtax compare" in capsys.readouterr().out


def test_a_command_is_timed() -> None:
    found = by_name(parse(["true"]).metrics(OUTCOME, Folder()))
    assert (found["wall_s"].value, found["cpu_s"].value) == (2.0, 1.5)
    assert list(found) == [
        name for name, _, _ in parse(["true"]).expected_metrics(MachineShape(1, GIB))
    ]


def test_numbers_are_found_in_stdout_before_stderr() -> None:
    workload = parse(["x"], [r"rate:MB/s=^rate: ([0-9.]+)", "run_ms=took (.*) ms"])
    folder = Folder(stdout="a\nrate: 12.5 MB/s\n", stderr="rate: 99\ntook 3e2 ms")
    found = by_name(workload.metrics(OUTCOME, folder))
    assert found["rate"] == Metric("rate", "MB/s", "higher", 12.5)
    assert found["run_ms"] == Metric("run_ms", "ms", "lower", 300.0)


@pytest.mark.parametrize(
    ("text", "unit", "better"),
    [
        ("rate=(.)", "", "higher"),
        ("run_s=(.)", "s", "lower"),
        ("latency=(.)", "", "lower"),
        ("page_faults=(.)", "", "lower"),
        ("x:ms=(.)", "ms", "lower"),
        ("time_left:s:higher=(.)", "s", "higher"),
        ("score::lower=(.)", "", "lower"),
        ("x:GB/s=(?P<a>=:)", "GB/s", "higher"),
    ],
)
def test_units_and_directions(text: str, unit: str, better: str) -> None:
    pattern = parse_pattern(text)
    assert (pattern.unit, pattern.better) == (unit, better)


@pytest.mark.parametrize(
    "text",
    ["", "rate", "=(.)", "rate=", "rate=abc", "rate=(", "1x=(.)", "x:s:up=(.)", "wall_s=(.)"],
)
def test_a_wrong_metric_is_misuse(text: str) -> None:
    with pytest.raises(MisuseError, match=r"^--metric "):
        parse(["x"], [text])


def test_a_metric_given_twice_or_to_another_workload_is_misuse() -> None:
    with pytest.raises(MisuseError, match="twice"):
        parse(["x"], ["a=(.)", "a=(..)"])
    for name in ("hpcc", "dgemm", "stream"):
        with pytest.raises(MisuseError, match="--metric does not apply"):
            parse([name], ["a=(.)"])


@pytest.mark.parametrize("output", ["nothing here", "v=1,5", "v=nan", "v=inf", "v="])
def test_no_number_names_the_metric(output: str) -> None:
    with pytest.raises(VtaxError, match="metric 'v'"):
        parse(["x"], ["v=v=(.*)|w=(.)"]).metrics(OUTCOME, Folder(output))


def test_a_group_that_took_no_part_is_no_number() -> None:
    with pytest.raises(VtaxError, match="metric 'v'"):
        parse(["x"], ["v=(a)|b"]).metrics(OUTCOME, Folder("b"))


def test_missing_output_shows_its_tail() -> None:
    with pytest.raises(VtaxError, match="the end of it"):
        parse(["x"], ["v=v=(.)"]).metrics(OUTCOME, Folder("long ago\nthe end of it\n"))


def test_too_much_output_is_not_searched_but_may_be_printed() -> None:
    folder = Folder("x" * (6 << 20) + "\nv=42\n")
    assert by_name(parse(["x"], ["v:higher=^v=(.*)"]).metrics(OUTCOME, folder))["v"].value == 42
    folder = Folder("x" * (65 << 20))
    assert parse(["x"]).metrics(OUTCOME, folder)
    with pytest.raises(VtaxError, match=r"--metric searches 64 MiB of output: .* larger than"):
        parse(["x"], ["v=v=(.)"]).metrics(OUTCOME, folder)


@given(st.text(max_size=20), st.text(max_size=20) | st.floats().map(str), st.booleans())
def test_any_output_gives_a_number_or_a_vtax_error(before: str, after: str, on_err: bool) -> None:
    text = f"{before}v={after}"
    folder = Folder(stderr=text) if on_err else Folder(stdout=text)
    try:
        found = by_name(parse(["x"], [r"v=(\S+)"]).metrics(OUTCOME, folder))
    except VtaxError as error:
        assert "metric 'v'" in str(error)
    else:
        assert math.isfinite(found["v"].value)


@given(st.text(max_size=40))
def test_any_metric_text_is_parsed_or_misuse(text: str) -> None:
    with contextlib.suppress(MisuseError):
        assert parse_pattern(text).name


def test_failures_carry_the_tail_of_what_was_said() -> None:
    workload = parse(["./prog"])
    failed = replace(OUTCOME, exit_code=3)
    with pytest.raises(VtaxError, match=r"^\./prog ended with exit code 3: no space left$"):
        workload.metrics(failed, Folder(stderr="\nno space left\n"))
    with pytest.raises(VtaxError, match="said on stdout"):
        workload.metrics(failed, Folder(stdout="said on stdout"))
    with pytest.raises(VtaxError, match=r"killed by SIGSEGV$"):
        workload.metrics(replace(OUTCOME, exit_code=None, signal=11), Folder())
    with pytest.raises(VtaxError, match="time limit"):
        workload.metrics(replace(OUTCOME, exit_code=None, signal=9, timed_out=True), Folder())
    with pytest.raises(VtaxError, match=r"exit code 3: \(result file 'stderr' is larger"):
        workload.metrics(failed, Folder(stderr="x" * (17 << 20)))


def dgemm_json(**changes: Any) -> str:
    result: dict[str, Any] = {
        "n": 800,
        "times": 5,
        "best_gflops": 50.0,
        "median_gflops": 40.0,
        "best_s": 0.02,
        "verified": True,
        "library": {"path": "/lib/x", "version": "0.3.21", "core": "SKYLAKEX", "threads": 1},
    }
    return json.dumps(result | changes)


def test_dgemm_reads_its_program() -> None:
    found = by_name(Dgemm().metrics(OUTCOME, Folder(dgemm_json())))
    assert found["dgemm_gflops"] == Metric("dgemm_gflops", "Gflop/s", "higher", 50.0)
    assert found["dgemm_best_s"].better == "lower"
    assert list(found) == [name for name, _, _ in Dgemm().expected_metrics(MachineShape(1, GIB))]


@pytest.mark.parametrize(
    "output",
    [
        "",
        "[1]",
        "{",
        "[" * 100_000,
        dgemm_json(verified=False),
        dgemm_json(verified=None),
        dgemm_json(best_gflops="50"),
        dgemm_json(best_gflops=True),
        dgemm_json(best_gflops=0),
        dgemm_json(best_gflops=float("nan")),
        dgemm_json(best_gflops=10**400),
        json.dumps({"verified": True}),
    ],
)
def test_a_wrong_result_is_refused(output: str) -> None:
    with pytest.raises(VtaxError, match="vtax-dgemm"):
        Dgemm().metrics(OUTCOME, Folder(output))


def test_dgemm_uses_the_cpus_of_the_machine() -> None:
    command = Dgemm(size=100).command(MachineShape(3, GIB))
    assert command.environment["OPENBLAS_NUM_THREADS"] == "3"
    assert command.argv == ("vtax-dgemm", "--size", "100", "--times", "5")
    assert Dgemm(threads=1).command(MachineShape(3, GIB)).environment["OMP_NUM_THREADS"] == "1"
    with pytest.raises(MisuseError, match="N=10000 needs"):
        parse(["dgemm", "--size", "10000"]).command(MachineShape(1, GIB))


def test_stream_reads_its_program() -> None:
    output = json.dumps(
        {
            "array_bytes": 1,
            "times": 1,
            **{
                f"{kernel}_gb_s": n + 1.5
                for n, kernel in enumerate(["copy", "scale", "add", "triad"])
            },
            "verified": True,
        }
    )
    found = by_name(Stream().metrics(OUTCOME, Folder(output)))
    assert found["stream_triad"] == Metric("stream_triad", "GB/s", "higher", 4.5)
    assert list(found) == [name for name, _, _ in Stream().expected_metrics(MachineShape(1, GIB))]


def test_stream_refuses_what_does_not_fit_and_says_what_does() -> None:
    assert parse(["stream", "--bytes", "1M"]).command(MachineShape(1, GIB)).argv[-3] == "1048576"
    with pytest.raises(MisuseError, match="--bytes 238M or less"):
        parse(["stream", "--bytes", "1G"]).command(MachineShape(1, GIB))
    parse(["stream", "--bytes", "238M"]).command(MachineShape(1, GIB))


def test_variables_that_change_results_are_told_apart() -> None:
    environ = {"OPENBLAS_CORETYPE": "Haswell", "LD_PRELOAD": "x.so", "EDITOR": "vi", "LDAP": "y"}
    found = user_variables(environ)
    assert found.scrubbed == {"LD_PRELOAD": "x.so", "OPENBLAS_CORETYPE": "Haswell"}
    assert found.environment.items() >= {"EDITOR": "vi", "LDAP": "y"}.items()


def test_machines_get_a_clean_environment() -> None:
    environ = {"PATH": "/a:/b", "HOME": "/root", "LANG": "de_DE.UTF-8", "MY_TOKEN": "secret"}
    environ |= {"OMP_NUM_THREADS": "7", "SIZE": "5", "SSH_AUTH_SOCK": "/tmp/s", "STYLE": "x"}
    clean = base_environment(environ)
    assert set(clean) == {"PATH", "LANG", "LC_ALL", "TMPDIR"}
    assert (clean["PATH"], clean["LC_ALL"]) == ("/a:/b", "C.UTF-8")
    usual = user_variables(environ)
    assert usual.environment == {**clean, "SIZE": "5", "STYLE": "x"}
    assert usual.withheld == ("MY_TOKEN",)
    assert usual.scrubbed == {"LANG": "de_DE.UTF-8", "OMP_NUM_THREADS": "7"}
    kept = user_variables(environ, keep_env=True).environment
    assert (kept["OMP_NUM_THREADS"], kept["HOME"], kept["LANG"]) == ("7", "/root", "de_DE.UTF-8")
    assert not {"MY_TOKEN", "SSH_AUTH_SOCK", "LC_ALL"} & set(kept)
    assert user_variables(environ, clean=True).environment == clean
    assert base_environment({})["PATH"]


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("GITHUB_TOKEN", "x", True),
        ("AWS_SECRET_ACCESS_KEY", "x", True),
        ("PGPASSWORD", "x", True),
        ("DB_PASS", "x", True),
        ("https_proxy", "http://me:word@proxy:80", True),
        ("https_proxy", "http://proxy:80", False),
        ("COMPASS", "x", False),
        ("SIZE", "a:b@c", False),
    ],
)
def test_what_may_be_a_secret(name: str, value: str, secret: bool) -> None:
    assert is_secret(name, value) is secret


def test_importing_workloads_loads_no_numerical_library() -> None:
    code = "import sys, vtax.workloads; print({'numpy', 'scipy', 'polars'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "set()", done.stderr


def test_an_expression_that_backtracks_without_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vtax.workloads.command.SEARCH_TIMEOUT_S", 0.2)
    pattern = parse_pattern("x=((a|aa)+)+b")
    begin = time.monotonic()
    with pytest.raises(VtaxError, match=r"metric 'x': .* was not done with the output after"):
        pattern.find("a" * 5000 + "c")
    assert time.monotonic() - begin < 10
