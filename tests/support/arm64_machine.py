"""The emulated arm64 machine: booted once for a file of tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from command_line import ROOT
from tested_machines import checked
from vtax.core import cache
from vtax.core.errors import VtaxError
from vtax.environments.base import allowed_cpus
from vtax.environments.copying_machine import CopyingMachine
from vtax.environments.qemu_arm64 import QemuArm64, boot_files

VARIABLES = {"PATH": "/bin"}
USERS_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vtax/arm64"
"""The user's cache as it is when tests are collected; `make arm64` has put the kernel there."""
TIMEOUT_S = 120.0
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
"""The folder in which `packaging/arm64.py tests` leaves the programs that only tests use."""


class Arm64:
    """The machine, and what its commands left."""

    def __init__(self, machine: CopyingMachine, work: Path, timeout_s: float = TIMEOUT_S) -> None:
        self.machine = machine
        self._timeout_s = timeout_s
        self._work = work
        self._runs = 0

    def run(self, *argv: str) -> str:
        """Run a command and return what it prints; it must succeed."""
        printed, errors = self._run(argv)
        assert self.outcome.exit_code == 0, errors
        return printed

    def refused(self, *argv: str) -> str:
        """Run a command that must fail, and return the one line that says why."""
        _, errors = self._run(argv)
        assert self.outcome.exit_code == 1, errors
        (why,) = errors.splitlines()
        return why

    def shell(self, script: str) -> str:
        """Run a script in the machine's shell and return what it prints; it must succeed."""
        return self.run("sh", "-c", script)

    def _run(self, argv: Sequence[str]) -> tuple[str, str]:
        self.folder = self._work / f"r{self._runs}"
        self._runs += 1
        self.folder.mkdir()
        self.outcome = self.machine.run(argv, VARIABLES, self.folder.name, self._timeout_s).outcome
        return (self.folder / "stdout").read_text(), (self.folder / "stderr").read_text()

    def record(
        self, every: str, events: str, *argv: str, options: Sequence[str] = ()
    ) -> tuple[pl.DataFrame, dict[str, Any]]:
        """Record a command, and return the rows and `record.json`."""
        recorder = ["vtax-host", "record", "--every", every, "--events", events, *options]
        self.run(*recorder, "--out", "recording", "--", *argv)
        return self.recorded()

    def recorded(self) -> tuple[pl.DataFrame, dict[str, Any]]:
        """The rows and `record.json` that the last command wrote into the folder `recording`."""
        out = self.folder / "recording"
        return pl.read_parquet(out / "intervals.parquet"), json.loads(
            (out / "record.json").read_text()
        )

    def events(self) -> dict[str, Any]:
        """`events.json` of the last command's recording."""
        found: dict[str, Any] = json.loads((self.folder / "recording/events.json").read_text())
        return found


def program_for_tests(name: str) -> Path:
    """The path of a program; skips the test, with the reason, where it is not built."""
    program = BUILT / "aarch64-unknown-linux-gnu/release/examples" / name
    if not program.is_file():
        pytest.skip(f"{name} is not built for arm64: packaging/arm64.py tests")
    return program


def reuse_packages() -> None:
    """Put what was fetched for the user into this session's cache, instead of fetching it again."""
    ours = cache.folder("arm64")
    for pattern in ("kernel-*", "busybox-*"):
        for package in USERS_CACHE.glob(pattern):
            if not (ours / package.name).exists():
                (ours / package.name).symlink_to(package)


@contextmanager
def started(spec: str, folder: Path, timeout_s: float = TIMEOUT_S) -> Iterator[Arm64]:
    """The machine of this description, or a skip with the reason."""
    environment = checked(spec)
    assert isinstance(environment, QemuArm64)
    work = folder / "work"
    work.mkdir(mode=0o700)
    machine = environment.start(work, allowed_cpus()[-1:])
    assert isinstance(machine, CopyingMachine)
    with machine:
        yield Arm64(machine, work, timeout_s)


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arm64]:
    """The emulated machine; skips the test, with the reason, where it cannot be made."""
    work = tmp_path_factory.mktemp("arm64")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(work.parent / "cache"))
        reuse_packages()
        checked("qemu-arm64")
        try:
            boot_files()
        except VtaxError as error:
            pytest.skip(f"qemu-arm64: {error}")
        with started("qemu-arm64", work) as machine:
            yield machine
