"""Ending vtax in the middle of a lab: nothing runs on, and a half-written snapshot is not used. And
an emulated host that hangs leaves traces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from command_line import SOURCE
from process_watch import processes_naming
from tested_machines import checked
from vtax.core.cache import folder
from vtax.environments.agent import MachineLostError
from vtax.environments.base import allowed_cpus
from vtax.environments.emulated_host import traces
from vtax.environments.emulated_host.snapshot import Name, Store
from vtax.environments.lab.environment import Lab
from vtax.environments.lab.machine import LabMachine

pytestmark = pytest.mark.slow

SIGNALS = [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL]
START_TIMEOUT_S = 300.0
END_TIMEOUT_S = 20.0
LONG = ("random-touch", "--mem", "64M", "--seconds", "250")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of this module's own: one snapshot serves all that need one."""
    return tmp_path_factory.mktemp("lab-cache")


@pytest.fixture
def start_paging_lab(tmp_path: Path) -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Starts `vtax paging lab` with a cache; what is left of it is killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def one(cache: Path) -> subprocess.Popen[str]:
        checked("lab")
        (tmp_path / "tmp").mkdir()
        variables = {
            "PYTHONPATH": str(SOURCE),
            "XDG_CACHE_HOME": str(cache),
            "TMPDIR": str(tmp_path / "tmp"),
        }
        argv = [sys.executable, "-m", "vtax.main", "paging", "lab", "--", *LONG]
        process = subprocess.Popen(
            argv,
            env=os.environ | variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # A shell that starts the tests with `&` has them ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        return process

    yield one
    for process in started:
        process.kill()
        process.communicate()


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def end(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal; vtax ends soon, in the way that suits the signal."""
    process.send_signal(number)
    said = process.communicate(timeout=END_TIMEOUT_S)[1]
    assert process.returncode == (-number if number is signal.SIGKILL else 130), said
    assert "Traceback" not in said


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_the_snapshot_is_made_leaves_no_machine_and_no_snapshot(
    tmp_path: Path,
    start_paging_lab: Callable[[Path], subprocess.Popen[str]],
    number: signal.Signals,
) -> None:
    cache = tmp_path / "cache"
    process = start_paging_lab(cache)
    assert within(START_TIMEOUT_S, lambda: bool(processes_naming(str(cache / "vtax/lab"))))
    time.sleep(2)
    assert process.poll() is None
    end(process, number)
    assert within(END_TIMEOUT_S, lambda: not processes_naming(str(cache / "vtax/lab")))
    folders = [path for path in (cache / "vtax/lab").iterdir() if path.is_dir()]
    if number is signal.SIGKILL:
        # Nobody could remove it, so the next maker of a snapshot does.
        assert [path.name.startswith(".making-") for path in folders] == [True]
        store = Store(cache / "vtax/lab", 4)
        with store.making(Name("0" * 16, "1" * 16)) as own:
            assert list((cache / "vtax/lab").glob(".making-*")) == [own]
            store.complete(own, b"", {})
    else:
        assert folders == []
        assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_the_workload_runs_leaves_no_machine(
    tmp_path: Path,
    cache: Path,
    start_paging_lab: Callable[[Path], subprocess.Popen[str]],
    number: signal.Signals,
) -> None:
    process = start_paging_lab(cache)
    assert process.stderr is not None
    for line in process.stderr:
        if "warming up" in line or "running under" in line:
            break
    assert processes_naming(str(cache / "vtax/lab")) or process.poll() is None
    time.sleep(1)
    end(process, number)
    assert within(END_TIMEOUT_S, lambda: not processes_naming(str(cache / "vtax/lab")))
    if number is not signal.SIGKILL:
        assert list((tmp_path / "tmp").iterdir()) == []
    # The snapshot is whole, and the next start takes it.
    assert len(list((cache / "vtax/lab").glob("[0-9a-f]*/meta.json"))) == 1


def test_a_host_that_hangs_leaves_what_it_was_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's agent is frozen, and its kernel is not."""
    freeze = "mkdir /run/cg && mount -t cgroup2 cg /run/cg && mkdir /run/cg/agent && "
    freeze += (
        "echo 1 > /run/cg/agent/cgroup.procs && (sleep 1; echo 1 > /run/cg/agent/cgroup.freeze) &"
    )
    monkeypatch.setattr("vtax.environments.emulated_host.host.REQUEST_TIMEOUT_S", 3.0)
    lab = checked("lab:guest=builtin")
    assert isinstance(lab, Lab)
    with LabMachine(lab, tmp_path, allowed_cpus()) as machine:
        machine.host.run(["busybox", "sh", "-c", freeze], leave=True)
        time.sleep(2)
        with pytest.raises(MachineLostError, match="hung") as lost:
            machine.host.counters()
    file = folder("lab") / traces.FILE
    assert lost.value.remedy == f"{file} has what it was doing; try again"
    found = file.read_text()
    assert "CR3=" in found, "registers of the CPUs"
    assert "sysrq: Show Blocked State" in found and "sysrq: Show backtrace of all" in found
