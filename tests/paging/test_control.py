"""`vtax paging control` and `watch` as a user calls them, on hosts that are trees of files."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import vtax
from counter_page import FakeHost
from vtax.core import binaries

NAIVE = """\
policy = "naive"
window = 1_000_000
[parameters]
threshold_vexit = 10
threshold_tmiss = 1000
"""
"""A policy that leaves shadow paging at more than 10 exits in 1e6 instructions."""
WINDOW_S = 0.1
PATIENCE_S = 30.0
"""Time for what takes a tenth of a second on an idle machine."""


@pytest.mark.parametrize("verb", ["control", "watch"])
def test_help(verb: str, snapshot: SnapshotAssertion) -> None:
    done = vtax("paging", verb, "--help")
    assert done.returncode == 0
    assert done.stdout == snapshot


class Daemon:
    """A controller on a fake host, whose lines are read as they come."""

    def __init__(self, host: FakeHost, folder: Path, *options: str) -> None:
        self.state = folder / "state"
        program = str(binaries.find("vtax-host"))
        fixed = [f"--root={host.root}", f"--state-dir={self.state}", f"--every={WINDOW_S}s"]
        fixed += [f"--guest={host.page}", "--json"]
        self._log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [program, "paging", "control", *fixed, *options],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._host = host
        self.log = folder / "log"

    def line(self, **activity: int) -> dict[str, Any]:
        """The next line; before each line the guests do this much."""
        self._host.goes_on(**activity)
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        found = json.loads(line)
        assert isinstance(found, dict)
        return found

    def until(self, holds: Callable[[dict[str, Any]], bool], **activity: int) -> dict[str, Any]:
        """The first line for which `holds` is true."""
        deadline = time.monotonic() + PATIENCE_S
        seen = []
        while time.monotonic() < deadline:
            seen.append(self.line(**activity))
            if holds(seen[-1]):
                return seen[-1]
        raise AssertionError(seen[-3:])

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        assert self.process.stdout
        self.process.stdout.read()
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()
        self._log.close()


@contextmanager
def running(host: FakeHost, folder: Path, *options: str) -> Iterator[Daemon]:
    daemon = Daemon(host, folder, *options)
    try:
        yield daemon
    finally:
        daemon.close()


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    root = tmp_path / "root"
    root.mkdir()
    return FakeHost(root, guests=2)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(NAIVE)
    return path


def reason(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda line: text in line["reason"]


BUSY = {"instructions": 100_000_000, "misses": 100}
FAULTING = {**BUSY, "faults": 50_000}


def kinds(value: object) -> object:
    """The shape of a value of JSON."""
    if isinstance(value, dict):
        return {name: kinds(each) for name, each in sorted(value.items())}
    return type(value).__name__


def test_a_line_has_its_fields(
    host: FakeHost, policy: Path, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    with running(host, tmp_path, f"--policy={policy}") as daemon:
        line = daemon.until(reason("keeps shadow"), **BUSY)
        assert kinds(line) == snapshot
        assert line["mode"] == "shadow" and line["decision"] == "hold"
        assert line["rates"]["guests"] == 2
        # The name says who counted: KVM counts exits itself.
        assert "model.instructions" in line["rates"] and "exits" in line["rates"]
        assert "estimated" in line["gain_source"] and "model" in line["gain_source"]
        assert daemon.end() == 0


def test_what_it_would_do_is_refused_with_the_reason(
    host: FakeHost, policy: Path, tmp_path: Path
) -> None:
    """The fake host's policy decides; the real machine under the test has nothing to switch."""
    with running(host, tmp_path, f"--policy={policy}") as daemon:
        daemon.until(reason("keeps shadow"), **BUSY)
        line = daemon.until(lambda line: "wants nested" in line["reason"], **FAULTING)
        assert line["applied"] is False
        assert line["gain_percent"] > 1
        state = json.loads((daemon.state / "state.json").read_text())
        waits = state["guard"]["retry_s"] or state["guard"]["changed_s"]
        assert waits
        assert daemon.end(signal.SIGINT) == 0
        assert sorted(path.name for path in daemon.state.iterdir()) == ["state.json"]


def test_each_fault_is_told_and_the_mode_is_held(
    host: FakeHost, policy: Path, tmp_path: Path
) -> None:
    with running(host, tmp_path, f"--policy={policy}") as daemon:
        daemon.until(reason("keeps shadow"), **BUSY)
        host.end(0)
        line = daemon.until(lambda line: bool(line["events"]), **BUSY)
        assert line["events"] == ["guest 100-11 is gone"]
        content = host.page.read_bytes()
        host.page.write_bytes(b"")
        assert daemon.process.stdout
        deadline = time.monotonic() + PATIENCE_S
        said = ""
        while "lost" not in said and time.monotonic() < deadline:
            said = daemon.process.stdout.readline()
        assert "sensor counter page lost" in said and '"hold"' in said
        host.page.write_bytes(content)
        stuck = ""
        while "stuck" not in stuck and time.monotonic() < deadline:
            stuck = daemon.process.stdout.readline()
        assert "has published nothing for 3 windows" in stuck and '"hold"' in stuck
        daemon.until(reason("keeps shadow"), **BUSY)
        daemon.until(reason("went backwards"), instructions=-50_000_000)
        daemon.until(reason("keeps shadow"), **BUSY)
        host.set_mode(nested=True)
        line = daemon.until(lambda line: line["mode"] == "nested", **BUSY)
        assert line["events"] == ["somebody else has switched the host to nested"]
        daemon.until(reason("keeps nested"), **BUSY)
        assert daemon.end() == 0


def test_a_policy_file_is_read_again_and_a_broken_one_is_not_taken(
    host: FakeHost, policy: Path, tmp_path: Path
) -> None:
    def told(line: dict[str, Any]) -> bool:
        return bool(line["events"])

    with running(host, tmp_path, f"--policy={policy}") as daemon:
        daemon.until(reason("keeps shadow"), **BUSY)
        policy.write_text("policy = [")
        daemon.process.send_signal(signal.SIGHUP)
        line = daemon.until(told, **BUSY)
        assert "the earlier policy stays" in line["events"][0] and line["policy"] == "naive"
        policy.write_text('policy = "dav2m"\nwindow = 1_000_000\n')
        daemon.process.send_signal(signal.SIGHUP)
        line = daemon.until(told, **BUSY)
        assert line["events"] == ["policy dav2m was read again"] and line["policy"] == "dav2m"
        assert daemon.end() == 0


@pytest.mark.parametrize("switching", [None, "nested"])
def test_one_that_was_killed_goes_on_from_its_state(
    host: FakeHost, policy: Path, tmp_path: Path, switching: str | None
) -> None:
    options = (f"--policy={policy}", "--min-dwell=1h")
    with running(host, tmp_path, *options) as daemon:
        daemon.until(reason("keeps shadow"), **BUSY)
        daemon.until(lambda line: "wants nested" in line["reason"], **FAULTING)
        daemon.line(**FAULTING)
        assert daemon.end(signal.SIGKILL) == -signal.SIGKILL
    path = daemon.state / "state.json"
    state = json.loads(path.read_text())
    # As if vtax had been killed between announcing the switch and reporting it done.
    state["switching"] = switching
    path.write_text(json.dumps(state))
    with running(host, tmp_path, *options) as daemon:
        first = daemon.line(**FAULTING)
        assert first["decision"] == "hold"
        assert first["events"][0].startswith("resumed from")
        cut = [event for event in first["events"] if "was cut off" in event]
        assert bool(cut) == bool(switching)
        line = daemon.until(lambda line: "wants nested" in line["reason"], **FAULTING)
        # A switch that had begun before the kill still counts.
        assert line["decision"] == "hold" and re.search(r"next attempt|--min-dwell", line["reason"])
        assert daemon.end() == 0


def test_two_do_not_work_with_one_state(host: FakeHost, policy: Path, tmp_path: Path) -> None:
    with running(host, tmp_path) as daemon:
        daemon.line(**BUSY)
        second = subprocess.run(
            [str(binaries.find("vtax-host")), "paging", "control", f"--state-dir={daemon.state}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 1
        assert "another controller uses it" in second.stderr
        assert daemon.state.stat().st_mode & 0o777 == 0o700


def test_prometheus_is_answered(host: FakeHost, policy: Path, tmp_path: Path) -> None:
    options = (f"--policy={policy}", "--metrics=127.0.0.1:0")
    with running(host, tmp_path, *options) as daemon:
        daemon.until(reason("keeps shadow"), **BUSY)
        found = re.search(r"http://127\.0\.0\.1:\d+/metrics", daemon.log.read_text())
        assert found
        with urllib.request.urlopen(found[0], timeout=PATIENCE_S) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = answer.read().decode()
        assert daemon.end() == 0
    values = parsed(text)
    assert values['vtax_control_mode{mode="shadow"}'] == 1
    assert values['vtax_control_mode{mode="nested"}'] == 0
    assert values["vtax_control_guests"] == 2
    assert values["vtax_control_windows_total"] >= 1
    assert 'vtax_control_events_per_second{event="model.instructions"}' in values


def parsed(text: str) -> dict[str, float]:
    """Parse Prometheus' text format as its documentation describes it."""
    values: dict[str, float] = {}
    announced = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            announced, kind = line.split()[2:]
            assert kind in ("gauge", "counter")
        elif not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            assert re.fullmatch(r'[a-z_]+(\{[a-z]+="[^"]*"\})?', name), line
            assert name.split("{")[0] == announced
            assert name not in values
            values[name] = float(value)
    return values


def test_watch_follows_the_one_that_runs_and_looks_itself_where_none_does(
    host: FakeHost, policy: Path, tmp_path: Path
) -> None:
    state = f"--state-dir={tmp_path / 'state'}"
    with running(host, tmp_path, f"--policy={policy}") as daemon:
        daemon.until(reason("keeps shadow"), **BUSY)
        done = vtax("paging", "watch", state, "--for", "1s")
        assert done.returncode == 0, done.stderr
        assert "shadow  hold: " in done.stdout and "guests: 2" in done.stdout
        assert done.stderr == ""
        daemon.end()
    done = vtax("paging", "watch", state, "--for", "0.5s")
    assert done.returncode == 0, done.stderr
    assert "this one only looks" in done.stderr and "hold" in done.stdout
    # The daemon has left nothing.
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["state.json"]


def test_the_unit_has_the_options() -> None:
    done = vtax("paging", "control", "--apply", "--every=2s", "--print-unit")
    assert done.returncode == 0, done.stderr
    unit = done.stdout
    assert re.search(
        r"^ExecStart=\S*vtax-host paging control --apply --every=2s$", unit, re.MULTILINE
    )
    # What ends the daemon must not end the guests.
    assert "KillMode=process" in unit
    assert "ExecReload=/bin/kill -HUP $MAINPID" in unit


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--policy", "vtaxx"), "did you mean vtax?"),
        (("--every", "1ms"), "not from 100ms to 1h"),
        (("--metrics", "everywhere"), "--metrics"),
        (("--policy", "missing.toml"), "No such file"),
    ],
)
def test_a_misuse_is_one_line_and_leaves_nothing(
    tmp_path: Path, argv: tuple[str, ...], message: str
) -> None:
    done = vtax("paging", "control", "--state-dir", "state", *argv, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert list(tmp_path.iterdir()) == []
