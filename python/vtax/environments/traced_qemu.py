"""A QEMU that loads vtax's plugin: the machine's own, or that of Debian's backports."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vtax.core import binaries
from vtax.core.errors import MisuseError, VtaxError
from vtax.environments import packages, sandbox, unpacked_qemu
from vtax.environments.qemu import Qemu
from vtax.environments.unpacked_qemu import PACKAGE, QemuProgram, numbers

OLDEST = (9, 2)
"""The first QEMU with version 4 of the plugin interface."""
PLUGIN = "libvtax_trace.so"
MOST_MEMORY = 2 << 30
"""The memory that lies in one piece in the guest's physical addresses."""
PARAMETERS = ("nokaslr", "no5lvl", "nopti")
"""Without these parameters, a kernel's page tables are not where the plugin looks for them."""
_INSIDE = sandbox.WORK.parent


Guest = Qemu


def find() -> QemuProgram:
    """The machine's QEMU if it is new enough, otherwise that of the backports, fetched once.

    Raises VtaxError when there is neither.
    """
    own = unpacked_qemu.installed()
    if own and numbers(own.version) >= OLDEST and _loads_plugins(own.program):
        return own
    oldest = ".".join(map(str, OLDEST))
    try:
        found = unpacked_qemu.fetched(packages.BACKPORTS)
    except VtaxError as error:
        raise VtaxError(
            f"tracing needs QEMU {oldest} or newer: {error}", f"install a newer {PACKAGE}"
        ) from None
    if numbers(found.version) < OLDEST:
        raise VtaxError(
            f"the QEMU of this Debian's backports is {found.version}",
            f"install {PACKAGE} {oldest} or newer",
        )
    return found


def guest(options: Mapping[str, str]) -> Guest:
    """A guest that can be traced. Raises MisuseError for options that it cannot have."""
    made = Guest.from_options({**options, "accel": "tcg"})
    if made.smp != 1:
        raise MisuseError("only a guest with one CPU can be traced", "use smp=1")
    if made.memory_bytes > MOST_MEMORY:
        raise MisuseError("only a guest with at most 2G of memory can be traced", "use --mem 2G")
    return made


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which references of a long run are recorded."""

    interval: int
    """Length of an interval in instructions."""
    period: int
    """The number of intervals of which two are recorded: one to warm up, one to measure."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What the plugin is to write."""

    trace: Path
    """A file, or a pipe that is read meanwhile."""
    summary: Path
    user_only: bool
    pack: bool
    """Whether to compress the trace."""
    sampling: Sampling | None = None
    instruction_tlb: int | None = None
    """Entries of a TLB for instructions, whose misses are counted meanwhile; None: none."""


def inside(guest: Guest, qemu: QemuProgram, recording: Recording | None) -> Guest:
    """The guest in this QEMU, with the plugin recording; None: without the plugin."""
    parameters = (*PARAMETERS, *guest.emulator.parameters)
    emulator = replace(qemu.boxed(), parameters=parameters)
    if recording is not None:
        plugin, out, summary = (_INSIDE / name for name in (PLUGIN, "trace", "summary"))
        words = [f"file={plugin}", f"out={out}", f"summary={summary}"]
        words += [f"memory={guest.memory_bytes}", f"user={_switch(recording.user_only)}"]
        words += [f"pack={_switch(recording.pack)}"]
        if entries := recording.instruction_tlb:
            words += [f"itlb={entries}"]
        if sampling := recording.sampling:
            words += [f"interval={sampling.interval}", f"period={sampling.period}"]
        emulator = replace(
            emulator,
            options=[*emulator.options, "-plugin", ",".join(words)],
            read_only={**emulator.read_only, binaries.find(PLUGIN): plugin},
            writable={recording.trace: out, recording.summary: summary},
        )
    return replace(guest, emulator=emulator)


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _loads_plugins(program: Path) -> bool:
    """Whether QEMU was built with plugins; without them it does not know the option."""
    done = subprocess.run(
        [str(program), "-plugin", "/nonexistent.so"],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    return "Could not load plugin" in done.stderr
