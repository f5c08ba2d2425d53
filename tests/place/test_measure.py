"""`vtax place measure` as a user calls it: its contract, its errors, and a real machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import SOURCE, command, one_line, vtax, without_root
from process_watch import descendants, ended, eventually, processes_naming
from tested_machines import checked
from vtax.core.formats.records import read
from vtax.core.matching import matching
from vtax.place.measure import _complete_load
from vtax.place.record import PlaceRecord

SPEC = "uml:net=vde"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="links and slow threads need root")


def test_help(snapshot: SnapshotAssertion) -> None:
    assert vtax("place", "--help").stdout == snapshot
    assert vtax("place", "measure", "--help").stdout == snapshot


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--load", "htttp"), "did you mean 'http'"),
        (("--load", "http,,tcp"), "a name is empty"),
        (("--speeds", "100,4"), "'4' is not from 5 to 100"),
        (("--speeds", "50,120"), "'120' is not from 5 to 100"),
        (("--speeds", "half"), "'half' is not from 5 to 100"),
        (("--service", "vde_switch"), "neither 'auto' nor thread ids"),
        (("--service", "0"), "neither 'auto' nor thread ids"),
        (("--in", "umi:net=vde"), "did you mean 'uml'"),
        (("--in", "uml"), "uml:net=vde"),
        (("--in", "native"), "environments that do: "),
        (("--in", "xen:net=tap", "--service", "1"), "threads of this host do not serve xen:net"),
    ],
)
def test_misuse_is_one_line(argv: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert said in one_line(vtax("place", "measure", *argv, cwd=tmp_path), 2)
    assert list(tmp_path.iterdir()) == []


@needs_root
@pytest.mark.parametrize(
    ("argv", "said"),
    [(("--backend", "hogg"), "did you mean 'hog'"), (("--service", "1"), "does not serve a guest")],
)
def test_misuse_that_only_a_host_knows(argv: tuple[str, ...], said: str, tmp_path: Path) -> None:
    checked(SPEC)
    assert said in one_line(vtax("place", "measure", *argv, "-q", cwd=tmp_path), 2)


def test_without_root(tmp_path: Path) -> None:
    assert "root" in one_line(without_root("place", "measure", cwd=tmp_path), 1)


def test_completion_goes_on_after_a_comma() -> None:
    assert "http" in _complete_load("h")
    assert "http,tcp" in _complete_load("http,t")


def found(folder: Path, *options: str) -> dict[str, Any]:
    """What a campaign prints; its record and a report that is made again say the same."""
    done = vtax("place", "measure", "--json", "-q", "--seed", "1", "--out", str(folder), *options)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    (run,) = folder.iterdir()
    record = read(run / "run.json")
    assert isinstance(record, PlaceRecord) and record.state == "complete"
    (run / "report.html").unlink()
    again = vtax("report", str(run), "--json")
    assert again.returncode == 0 and json.loads(again.stdout) == answer
    assert (run / "report.html").stat().st_size > 10_000
    assert isinstance(answer, dict)
    return answer


@pytest.mark.slow
@needs_root
@pytest.mark.usefixtures("slow_core_alone")
def test_user_mode_linux_behind_a_switch(tmp_path: Path) -> None:
    """Its switch is slowed; the test does not judge what that costs."""
    checked(SPEC)
    loads = {"http", "tcp"}
    # Not every distribution has netperf.
    loads |= {"netperf-tcp", "netperf-udp", "netperf-rr"} if shutil.which("netperf") else set()
    speeds = ("--speeds", "100,50", "--reps", "1", "--seconds", "1")
    options = ("--load", ",".join(sorted(loads)), *speeds)
    answer = found(tmp_path, "--in", SPEC, *options)
    (where,) = answer["environments"]
    assert any("switch" in name for name in where["service"]) and where["absent"] is None
    assert {load["load"] for load in answer["loads"]} == loads
    for load in answer["loads"]:
        full = [p for p in load["points"] if p["speed_asked_percent"] == 100]
        slow = [p for p in load["points"] if p["speed_asked_percent"] == 50]
        assert {p["backend"] for p in full} == {p["backend"] for p in slow} == {*answer["backends"]}
        for point in slow:
            assert 35 < point["speed_obtained_percent"] < 65
            assert point["relative_percent"] > 0 and point["throughput"] > 0
        for point in load["points"]:
            assert point["service_cpu_percent"] > 0 and point["device_percent"] > 0
            assert point["combined_usage_percent"] == pytest.approx(
                point["service_cpu_percent"] + point["device_percent"]
            )
    assert answer["hypothesis"]["rank_correlation"] is None
    assert answer["hypothesis"]["n"] <= len(loads)


@pytest.mark.slow
@needs_root
@pytest.mark.usefixtures("slow_core_alone")
def test_nothing_is_left_after_kill_9(tmp_path: Path) -> None:
    checked(SPEC)
    runs = tmp_path / "runs"
    line = command("place", "measure", "--in", SPEC, "--load", "http", "--speeds", "50",
                   "--seconds", "1", "--reps", "100", "--out", str(runs))  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(line, env=environment, stdout=quiet, stderr=quiet)
    with ended(process):
        assert eventually(
            lambda: any(p.stat().st_size > 4000 for p in runs.glob("*/samples.jsonl")), 60
        )
        assert eventually(lambda: processes_naming("vtax-host place slow"), 20)
        started = descendants(process.pid)
        own = namespaces(started) - namespaces([os.getpid()])
        assert own
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert eventually(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in started), 20)
        assert eventually(lambda: not processes_naming(str(runs)), 20)
        assert eventually(lambda: not own & namespaces(everybody()), 20)
        assert eventually(lambda: not groups_of(started), 20)
    (run,) = runs.iterdir()
    done = vtax("report", str(run), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["state"] == "running"
    kept = pl.read_ndjson(run / "samples.jsonl")
    assert kept.filter(pl.col("metric") == "throughput").height >= 1


def groups_of(pids: Sequence[int]) -> list[Path]:
    """Control groups that limit threads and were made by these processes."""
    found = matching(Path("/sys/fs/cgroup"), "**/vtax-slow-*")
    return [path for path in found if any(f".vtax-{pid}-" in path.name for pid in pids)]


def everybody() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def namespaces(pids: Sequence[int]) -> set[str]:
    """The network namespaces that these processes are in."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found.add(str(Path(f"/proc/{pid}/ns/net").readlink()))
    return found
