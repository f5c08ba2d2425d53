"""vtax's plugins of the QEMU that emulates a host."""

from __future__ import annotations

from dataclasses import replace

from vtax.core import binaries
from vtax.core.errors import VtaxError
from vtax.environments import sandbox, unpacked_qemu
from vtax.environments.qemu_program import Emulator

OTHER = (9, 0)
"""The first version that loads no plugin of version 1 of the interface."""
REMEDY = "install QEMU 7.2 (Debian 12) or 8.2"
SLOW = "libvtax_slow.so"
SPEEDS = sandbox.WORK / "speeds"
"""The folder with the speed of each CPU, in the emulated host's box and in the emulated host:
`cpu0` has percent of full speed, as text."""


def loaded(emulator: Emulator, version: str, name: str, *words: str) -> Emulator:
    """The emulator, of this version, with a plugin that takes `words`.

    Raises VtaxError when it loads none, or the plugin is not built.
    """
    if unpacked_qemu.numbers(version) >= OTHER:
        raise VtaxError(f"QEMU {version} loads no plugin of version 1", REMEDY)
    plugin = sandbox.WORK.parent / name
    return replace(
        emulator,
        options=[*emulator.options, "-plugin", ",".join([f"file={plugin}", *words])],
        read_only={**emulator.read_only, binaries.find(name): plugin},
    )


def slowable(emulator: Emulator, version: str) -> Emulator:
    """The emulator with CPUs whose speed `SPEEDS` says at any time. It needs a thread for each CPU.

    Raises VtaxError as `loaded` does.
    """
    return loaded(emulator, version, SLOW, f"speeds={SPEEDS}")
