"""`swap=SIZE` of machines that run on a kernel vtax did not boot: this one's, or one over ssh.

The agent makes the swap space, and removes it when the agent ends for whatever reason
(crates/agent/src/swap.rs). If a machine's own agent may not do that, another agent holds the
space around the machine: `vtax-agent with-swap`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vtax.core import binaries, cache
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.units import format_bytes
from vtax.environments import swap
from vtax.environments.option_values import one_of

KINDS = ("file", "zram")
KEYS = {
    "swap": "what may be swapped out beside mem= (default: none; root)",
    "swap-in": "file, or zram: compressed memory (default: file)",
}
"""Keys of the environments that have such swap space."""
REFUSED = "vtax-agent: --swap: "
"""An agent that cannot make the swap space says so in a line that begins like this."""
SWAPPINESS = Path("/sys/fs/cgroup/memory/memory.swappiness")
"""The swappiness of control groups, where they have their own (version 1)."""
MACHINES_SWAPPINESS = Path("/proc/sys/vm/swappiness")
"""The swappiness that counts elsewhere."""
USUAL_SWAPPINESS = 60
"""The kernel's default."""
ZRAM = Path("/sys/class/zram-control")
SWEEP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class HostSwap:
    """The swap space that is asked for; false when none is."""

    bytes: int = 0
    kind: str = "file"
    """One of KINDS."""

    @classmethod
    def from_options(cls, environment: str, options: Mapping[str, str]) -> Self:
        """The swap space of a spec's KEYS and `mem`. Raises MisuseError for impossible values."""
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
        """Raise VtaxError when this machine does not let vtax make the swap space."""
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
        """The options of the agent on this machine."""
        return [*self.size(), "--swap-folder", str(folder())] if self else []

    def size(self) -> list[str]:
        """The options of the agent, without the folder."""
        return ["--swap", str(self.bytes), "--swap-in", self.kind] if self else []

    def around(self, argv: Sequence[str]) -> list[str]:
        """The command line of a machine that has the swap space as long as it runs."""
        if not self:
            return list(argv)
        return [str(binaries.find("vtax-agent")), "with-swap", *self.options(), "--", *argv]

    def sweep(self) -> list[str]:
        """The command line that removes what killed agents left; swap space only if it is asked
        for."""
        folders = ["--swap-folder", str(folder())] if self else []
        return [str(binaries.find("vtax-agent")), "sweep", *folders]

    def said(self) -> str:
        """Words about it for the description of a machine."""
        return swap.said(self.bytes) + (" in zram" if self.kind == "zram" else "")


def _available_bytes() -> int:
    """Memory that can be used without swapping (proc(5), MemAvailable)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    found = next(line for line in lines if line.startswith("MemAvailable:"))
    return int(found.split()[1]) << 10


NO_SWAP = HostSwap()


def folder() -> Path:
    """The folder of this machine's swap files, or their records. The next agent removes what a
    killed one left."""
    return cache.folder("swap")


def refused(console: Sequence[str]) -> tuple[str, str | None] | None:
    """Why an agent made no swap space, if its console says that."""
    said = next((line for line in console if line.startswith(REFUSED)), None)
    if said is None:
        return None
    reason = said.removeprefix(REFUSED)
    named = "XDG_CACHE_HOME says which folder it is made in"
    return reason, named if reason.startswith("swap file ") else None


def sweep() -> int:
    """End and remove what killed agents left, control groups and swap; return how many there
    were."""
    done = subprocess.run(
        HostSwap(1).sweep(), capture_output=True, text=True, timeout=SWEEP_TIMEOUT_S, check=False
    )
    if done.returncode != 0 or not done.stdout.strip().isdecimal():
        raise VtaxError(f"vtax-agent sweep: {done.stderr.strip() or 'it says nothing'}")
    return int(done.stdout)
