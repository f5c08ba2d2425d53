"""`swap=SIZE` of machines that run on a kernel vtax did not boot: this one's, or one over ssh.

The agent makes it, and removes it when it ends for whatever reason
(crates/vtax-agent/src/swap.rs). Of a machine whose own agent may not, another holds it around the
machine: `vtax-agent with-swap`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vtax import binaries, cache
from vtax.environments import swap
from vtax.environments.base import one_of
from vtax.errors import MisuseError, VtaxError
from vtax.units import format_bytes

KINDS = ("file", "zram")
KEYS = {
    "swap": "what may be swapped out beside mem=, to a file made for it (default: none; root)",
    "swap-in": "file, or zram: compressed memory (default: file)",
}
"""Of environments that have it."""
REFUSED = "vtax-agent: --swap: "
"""What the agent says when it cannot make it begins so."""
SWAPPINESS = Path("/sys/fs/cgroup/memory/memory.swappiness")
"""Where control groups have their own (version 1)."""
MACHINES_SWAPPINESS = Path("/proc/sys/vm/swappiness")
"""What counts elsewhere."""
USUAL_SWAPPINESS = 60
"""The kernel's default."""
ZRAM = Path("/sys/class/zram-control")
SWEEP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class HostSwap:
    """What is asked for; false when nothing is."""

    bytes: int = 0
    kind: str = "file"
    """One of KINDS."""

    @classmethod
    def from_options(cls, environment: str, options: Mapping[str, str]) -> Self:
        """Of a spec's KEYS and `mem`. MisuseError when their values cannot be."""
        one_of(environment, options, "swap-in", KINDS)
        wanted = swap.size(environment, options)
        if wanted and "mem" not in options:
            raise MisuseError(
                f"{environment}: swap= without mem=: nothing would be swapped", "give mem="
            )
        if not wanted and "swap-in" in options:
            raise MisuseError(f"{environment}: swap-in= without swap=", "give swap=")
        return cls(wanted, options.get("swap-in", "file"))

    def __bool__(self) -> bool:
        return self.bytes > 0

    def check(self, environment: str) -> None:
        """Raise VtaxError when this machine lets vtax not make it."""
        if not self:
            return
        if os.geteuid() != 0:
            raise VtaxError(
                f"{environment}: swap= needs root: only root may turn swap on",
                "run vtax as root, or use uml:mem=SIZE,swap=SIZE, which needs none",
            )
        if not SWAPPINESS.exists() and MACHINES_SWAPPINESS.read_text().strip() == "0":
            raise VtaxError(
                f"{environment}: swap=: vm.swappiness is 0: nothing would be swapped",
                f"sysctl vm.swappiness={USUAL_SWAPPINESS}",
            )
        if self.kind == "zram":
            if not ZRAM.exists():
                raise VtaxError(f"{environment}: this kernel has no zram", "modprobe zram")
            # Pages that cannot be compressed are kept as they are.
            where, free = "this machine's memory", _available_bytes()
            remedy = "use a smaller one, or leave out swap-in=zram"
        else:
            found = os.statvfs(folder())
            where, free = str(folder()), found.f_bavail * found.f_frsize
            remedy = "free space there, or set XDG_CACHE_HOME to a folder that has it"
        if free < self.bytes:
            wanted = format_bytes(self.bytes)
            raise VtaxError(
                f"{environment}: swap={wanted}: {where} has {format_bytes(free)} free", remedy
            )

    def options(self) -> list[str]:
        """The agent's on this machine."""
        return [*self.size(), "--swap-folder", str(folder())] if self else []

    def size(self) -> list[str]:
        """The agent's, but for the folder."""
        return ["--swap", str(self.bytes), "--swap-in", self.kind] if self else []

    def around(self, argv: Sequence[str]) -> list[str]:
        """The command line of a machine that has it as long as it runs."""
        if not self:
            return list(argv)
        return [str(binaries.find("vtax-agent")), "with-swap", *self.options(), "--", *argv]

    def sweep(self) -> list[str]:
        """The command line that removes what killed agents left; swap only if it is asked for."""
        folders = ["--swap-folder", str(folder())] if self else []
        return [str(binaries.find("vtax-agent")), "sweep", *folders]

    def said(self) -> str:
        """What a description of a machine says of it."""
        return swap.said(self.bytes) + (" in zram" if self.kind == "zram" else "")


def _available_bytes() -> int:
    """Memory that can be used without swapping (proc(5), MemAvailable)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    found = next(line for line in lines if line.startswith("MemAvailable:"))
    return int(found.split()[1]) << 10


NO_SWAP = HostSwap()


def folder() -> Path:
    """Where this machine's are, or their records. What a killed agent left the next one removes."""
    return cache.folder("swap")


def refused(console: Sequence[str]) -> tuple[str, str | None] | None:
    """Why an agent made none, if that is what its console says."""
    said = next((line for line in console if line.startswith(REFUSED)), None)
    if said is None:
        return None
    reason = said.removeprefix(REFUSED)
    named = "XDG_CACHE_HOME says which folder it is made in"
    return reason, named if reason.startswith("swap file ") else None


def sweep() -> int:
    """End and remove what killed agents left: control groups and swap; returns how many."""
    done = subprocess.run(
        HostSwap(1).sweep(), capture_output=True, text=True, timeout=SWEEP_TIMEOUT_S, check=False
    )
    if done.returncode != 0 or not done.stdout.strip().isdecimal():
        raise VtaxError(f"vtax-agent sweep: {done.stderr.strip() or 'it says nothing'}")
    return int(done.stdout)
