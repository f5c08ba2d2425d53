"""A QEMU that loads vtax's plugin: the machine's own, or that of Debian's backports."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vtax.core import binaries
from vtax.core.errors import MisuseError, VtaxError
from vtax.environments import packages, sandbox
from vtax.environments.qemu import Qemu
from vtax.environments.qemu_program import PROGRAM, Emulator

PACKAGE = "qemu-system-x86"
OLDEST = (9, 2)
"""The first QEMU with version 4 of the plugin interface."""
PLUGIN = "libvtax_trace.so"
MOST_MEMORY = 2 << 30
"""The memory that lies in one piece in the guest's physical addresses."""
PARAMETERS = ("nokaslr", "no5lvl", "nopti")
"""Without these parameters, a kernel's page tables are not where the plugin looks for them."""
_INSIDE = sandbox.WORK.parent
_LIBRARIES = "usr/lib/x86_64-linux-gnu"


Guest = Qemu


@dataclass(frozen=True, slots=True)
class PluginQemu:
    """A QEMU that can load the plugin."""

    program: Path
    version: str
    tree: Path | None
    """The folder that it was unpacked into; None: it is installed."""


def find() -> PluginQemu:
    """The machine's QEMU if it is new enough, otherwise that of the backports, fetched once.

    Raises VtaxError when there is neither.
    """
    own = shutil.which(PROGRAM)
    version = _version(Path(own)) if own else None
    if own and version and _numbers(version) >= OLDEST and _loads_plugins(Path(own)):
        return PluginQemu(Path(own), version, None)
    try:
        tree = packages.fetch(packages.BACKPORTS, "qemu", with_needs=((PACKAGE,),))
    except VtaxError as error:
        raise VtaxError(
            f"tracing needs QEMU {'.'.join(map(str, OLDEST))} or newer: {error}",
            f"install a newer {PACKAGE}",
        ) from None
    program = tree / "usr/bin" / PROGRAM
    version = _version(program, tree)
    if version is None or _numbers(version) < OLDEST:
        raise VtaxError(
            f"the QEMU of this Debian's backports is {version or 'one that does not run'}",
            f"install {PACKAGE} {'.'.join(map(str, OLDEST))} or newer",
        )
    return PluginQemu(program, version, tree)


def guest(options: Mapping[str, str]) -> Guest:
    """A guest that can be traced. Raises MisuseError for options that it cannot have."""
    made = Guest.from_options({**options, "accel": "tcg"})
    if made.smp != 1:
        raise MisuseError("only a guest with one CPU can be traced", "use smp=1")
    if made.memory_bytes > MOST_MEMORY:
        raise MisuseError("only a guest with at most 2G of memory can be traced", "use --mem 2G")
    return made


@dataclass(frozen=True, slots=True)
class Recording:
    """What the plugin is to write."""

    trace: Path
    """A file, or a pipe that is read meanwhile."""
    summary: Path
    user_only: bool
    pack: bool
    """Whether to compress the trace."""


def inside(guest: Guest, qemu: PluginQemu, recording: Recording | None) -> Guest:
    """The guest in this QEMU, with the plugin recording; None: without the plugin."""
    return replace(guest, emulator=_emulator(qemu, recording, guest.memory_bytes))


def _emulator(qemu: PluginQemu, recording: Recording | None, memory_bytes: int) -> Emulator:
    read_only, writable, options = {}, {}, []
    variables = {}
    program = qemu.program
    if qemu.tree is not None:
        tree = _INSIDE / "qemu"
        read_only[qemu.tree] = tree
        program = tree / "usr/bin" / PROGRAM
        variables = _variables(tree)
        options += ["-L", str(tree / "usr/share/qemu"), "-L", str(tree / "usr/share/seabios")]
    if recording is not None:
        plugin, out, summary = (_INSIDE / name for name in (PLUGIN, "trace", "summary"))
        read_only[binaries.find(PLUGIN)] = plugin
        writable = {recording.trace: out, recording.summary: summary}
        words = [f"file={plugin}", f"out={out}", f"summary={summary}", f"memory={memory_bytes}"]
        words += [f"user={_switch(recording.user_only)}", f"pack={_switch(recording.pack)}"]
        options += ["-plugin", ",".join(words)]
    return Emulator(program, options, PARAMETERS, read_only, writable, variables)


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _variables(tree: Path) -> dict[str, str]:
    libraries = tree / _LIBRARIES
    return {"LD_LIBRARY_PATH": str(libraries), "QEMU_MODULE_DIR": str(libraries / "qemu")}


def _version(program: Path, tree: Path | None = None) -> str | None:
    variables = _variables(tree) if tree else {}
    try:
        done = subprocess.run(
            [str(program), "--version"], env={"PATH": "/usr/bin:/bin", **variables},
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
    except OSError:
        return None
    found = re.search(r"version (\d+\.\d+\S*)", done.stdout)
    return found[1] if found else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _loads_plugins(program: Path) -> bool:
    """Whether QEMU was built with plugins; without them it does not know the option."""
    done = subprocess.run(
        [str(program), "-plugin", "/nonexistent.so"],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    return "Could not load plugin" in done.stderr
