"""The machine as a check sees it: files under a root, programs, and system calls.

Everything a check learns comes through a `Host`, so that a test can describe a machine by a
folder and a few functions, and needs neither privilege nor the hardware.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from vtax.core import binaries, cache, foreign_json
from vtax.core.checks import syscalls
from vtax.core.errors import VtaxError
from vtax.core.matching import matching

PROGRAM_TIMEOUT_S = 1.5
"""The limit for each program that a check starts; `vtax doctor` as a whole stays under 2 s."""

CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF = 21, 38, 39


@dataclass(frozen=True, slots=True)
class Output:
    """What a program said."""

    code: int
    stdout: str
    stderr: str

    @property
    def first_line(self) -> str:
        return next((line.strip() for line in self.stdout.splitlines() if line.strip()), "")

    @property
    def last_error(self) -> str:
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}"


def run_program(argv: Sequence[str], timeout_s: float = PROGRAM_TIMEOUT_S) -> Output:
    """Run a program that should end by itself; the code of one that does not is 124, as with
    timeout(1)."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return Output(124, "", f"no answer within {timeout_s:g} s")
    except OSError as error:
        return Output(127, "", error.strerror or str(error))
    return Output(done.returncode, done.stdout, done.stderr)


def _which(program: str) -> str | None:
    # Administrators' programs are not on every user's PATH.
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _own(name: str, machine: str | None = None) -> str | None:
    try:
        return str(binaries.find(name, machine))
    except VtaxError:
        return None


@dataclass(frozen=True)
class Host:
    """The machine that a check looks at."""

    root: Path = Path("/")
    machine: str = field(default_factory=platform.machine)
    """The architecture, as `uname` calls it."""
    cache: Path = field(default_factory=cache.base)
    """The folder that has, or would have, vtax's cache."""
    work: Path = field(default_factory=Path.cwd)
    """Where runs would be written."""
    which: Callable[[str], str | None] = _which
    run: Callable[[Sequence[str]], Output] = run_program
    euid: int = field(default_factory=os.geteuid)
    writable: Callable[[Path], bool] = lambda path: os.access(path, os.R_OK | os.W_OK)
    agent: Callable[[], str | None] = lambda: _own("vtax-agent")
    arm64_agent: Callable[[], str | None] = lambda: _own("vtax-agent", binaries.ARM64)
    program: Callable[[], str | None] = lambda: _own("vtax-host")
    """vtax's program for hosts: it records, places and switches."""
    count_cycles: Callable[[], syscalls.Count] = syscalls.count_cycles
    try_bpf: Callable[[], int] = syscalls.try_bpf
    kvm_version: Callable[[Path], int] = syscalls.kvm_version
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free

    def path(self, name: str) -> Path:
        """The path of `name`, which is absolute on that machine."""
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str | None:
        """A file's text without the outer blanks; None when it cannot be read."""
        try:
            return self.path(name).read_text(errors="replace").strip()
        except OSError:
            return None

    def exists(self, name: str) -> bool:
        try:
            return self.path(name).exists()
        except OSError:  # a folder on the way may not be searched
            return False

    def glob(self, pattern: str) -> list[Path]:
        return sorted(matching(self.root, pattern.lstrip("/")))

    def resolve(self, path: Path) -> Path:
        """Follow symbolic links as the machine under `root` would; the result is absolute there."""
        for _ in range(40):  # as many as the kernel follows
            if not path.is_symlink():
                break
            target = path.readlink()
            path = self.path(str(target)) if target.is_absolute() else path.parent / target
        return Path("/") / path.resolve().relative_to(self.root.resolve())

    def capable(self, *capabilities: int) -> bool:
        """Whether this process holds all these capabilities, or CAP_SYS_ADMIN, which includes
        them."""
        for line in (self.read("/proc/self/status") or "").splitlines():
            if line.startswith("CapEff:"):
                effective = int(line.split()[1], 16)
                held = all(effective >> capability & 1 for capability in capabilities)
                return held or bool(effective >> CAP_SYS_ADMIN & 1)
        return self.euid == 0

    @cached_property
    def cpu_flags(self) -> frozenset[str]:
        for line in (self.read("/proc/cpuinfo") or "").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return frozenset(value.split())
        return frozenset()

    @property
    def is_x86(self) -> bool:
        return self.machine == "x86_64"

    @cached_property
    def is_guest(self) -> bool | None:
        """Whether this machine is virtual; None: not known.

        An x86 CPU says so itself. For other CPUs the agent finds out what the firmware says.
        """
        if self.is_x86:
            return "hypervisor" in self.cpu_flags if self.cpu_flags else None
        virtualization = (self.facts or {}).get("virtualization")
        kind = virtualization.get("kind") if isinstance(virtualization, dict) else None
        return None if kind in (None, "unknown") else kind != "none"

    @property
    def uses_apt(self) -> bool:
        return self.which("apt-get") is not None

    def install(self, debian: str, what: str) -> str:
        """The remedy for a missing program."""
        return f"apt-get install {debian}" if self.uses_apt else f"install {what}"

    @cached_property
    def facts(self) -> dict[str, Any] | None:
        """What `vtax-agent facts` prints; None when the agent gives no facts."""
        agent = self.agent()
        if agent is None:
            return None
        output = self.run([agent, "facts"])
        try:
            return foreign_json.parse_object(output.stdout)
        except ValueError:
            return None
