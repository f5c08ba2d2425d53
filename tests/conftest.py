"""What tests of real machines share."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import settings

from command_line import SOURCE
from tested_machines import checked
from vtax.environments import Environment
from vtax.environments.base import allowed_cpus
from vtax.environments.machine import Machine

pytest_plugins = ("arm64_machine", "browser_page", "recording_data")
"""Plugins whose fixtures are for every test."""

# The time of an example says how busy the machine is.
settings.register_profile("vtax", deadline=None)
settings.load_profile("vtax")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes begin first, so that no worker is left alone with such a file at the
    end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(
        key=lambda item: (
            item.path.parts[-2:] != ("paging", "test_switch.py"),
            item.path not in slow,
        )
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("long") and "VTAX_SOAK" not in os.environ:
        pytest.skip("it takes minutes, or a quiet machine: make soak")


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that stands for the user's cache."""
    folder = tmp_path_factory.getbasetemp()
    # Each of several workers has a folder in the session's folder.
    session = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    return session / "cache"


@pytest.fixture(autouse=True)
def own_cache(session_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are unpacked once per test session, and never into the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(session_cache))


@pytest.fixture
def swap_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep other tests from turning swap on meanwhile: the count of swapped pages is the whole
    machine's."""
    with _alone("swap", tmp_path_factory):
        yield


@pytest.fixture
def slow_core_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep other tests from slowing the same CPU meanwhile: two hogs leave it next to nothing."""
    with _alone("slow-core", tmp_path_factory):
        yield


@pytest.fixture
def first_in_line() -> Iterator[None]:
    """What this process starts runs before the tests beside it, where it may."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    yield
    os.setpriority(os.PRIO_PROCESS, 0, usual)


@contextmanager
def _alone(what: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hold a lock that all workers of this session share."""
    folder = tmp_path_factory.getbasetemp()
    session = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with (session / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether repeated trials run in full, as in `make soak`, and not only a few times."""
    return "VTAX_SOAK" in os.environ


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


@pytest.fixture
def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(SOURCE), "NO_COLOR": "1"}
