"""What tests of real machines share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from vtax.environments import Environment, build
from vtax.environments.base import allowed_cpus
from vtax.environments.machine import Machine
from vtax.errors import VtaxError
from vtax.workloads.base import Outcome

REAL = ("native:cpus=1,mem=512M", "uml:mem=256M", "qemu:accel=tcg,mem=512M")
"""One of each kind with a kernel of its own, and the baseline, small enough to boot often."""
CONTAINED = ("container:cpus=1,mem=512M", "gvisor:cpus=1,mem=512M")
"""Those that are started by a container's runtime."""
LOCAL = REAL + CONTAINED

OUTCOME = Outcome(
    wall_s=1.0,
    user_s=0.9,
    system_s=0.05,
    steal_s=None,
    max_rss_bytes=1000,
    minor_faults=1,
    major_faults=0,
    voluntary_switches=1,
    involuntary_switches=1,
    exit_code=0,
    signal=None,
    timed_out=False,
)
"""Of a command that did as it should; tests change what they are about."""

GUEST_ENVIRONMENT = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LANG": "C.UTF-8"}


@pytest.fixture(autouse=True)
def own_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Kernels are unpacked once per test session, and never into the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    yield


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether repeated trials run in full, as `make soak` has them, and not only a few."""
    return "VTAX_SOAK" in os.environ


def checked(spec: str) -> Environment:
    """The environment, or a skip with the reason why this machine cannot have it."""
    environment = build(spec)
    try:
        environment.check()
    except VtaxError as error:
        pytest.skip(f"{spec}: {error}")
    return environment


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str | Environment], Machine]]:
    """Starts machines and ends them when the test does."""
    machines: list[Machine] = []

    def one(spec: str | Environment) -> Machine:
        environment = checked(spec) if isinstance(spec, str) else spec
        work = tmp_path / f"work{len(machines)}"
        work.mkdir(mode=0o700)
        cpus = allowed_cpus()[-environment.shape().cpus :]
        machines.append(Machine(environment, work, cpus))
        return machines[-1]

    yield one
    for machine in machines:
        machine.close()


@contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """A process that ends with the test, and all that it started with it, also when it fails."""
    try:
        yield process
    finally:
        started = descendants(process.pid)
        process.kill()
        process.wait()
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in path.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def eventually(condition: Callable[[], object], within_s: float = 10) -> bool:
    """Whether it comes true in time; a busy machine is slow, so most waits are generous."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def processes_naming(text: str) -> list[str]:
    """Command lines of running processes that contain `text`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line.strip())
    return found


def command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "vtax.cli.main", *argv]


@pytest.fixture
def environment() -> dict[str, str]:
    source = Path(__file__).resolve().parent.parent / "python"
    return os.environ | {"PYTHONPATH": str(source), "NO_COLOR": "1"}


def run(
    environment: dict[str, str], *argv: str, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*argv),
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The error: one line on standard error beside progress, no traceback."""
    assert done.returncode == code, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("vtax: ")]
    assert len(errors) == 1 and "Traceback" not in done.stderr
    return errors[0]
