"""Which QEMU emulates the host of a lab."""

from __future__ import annotations

import functools

from vtax.core.errors import VtaxError
from vtax.environments import packages, qemu_program, sandbox, unpacked_qemu
from vtax.environments.emulated_host import plugins
from vtax.environments.qemu_program import Emulator
from vtax.environments.unpacked_qemu import QemuProgram

FIRST_WRONG = (9, 1)
"""From this version on a guest under shadow paging reads its host's CR3 instead of its own, and its
kernel overwrites the page tables that it runs on. Exit code 0, a read of CR0, stands for "no exit"
where the decoder adds the register's number (`X86_TYPE_C` in target/i386/tcg/decode-new.c.inc), so
KVM's intercept of CR3 is not looked at. By its source the error is in 10.0.2 and 10.0.13; no later
version was looked at."""

PLUGIN = "libvtax_nested.so"
MODEL_PAGE = sandbox.WORK / "model-page"
"""The page in the emulated host's box, and in the emulated host."""


def find() -> QemuProgram:
    """The machine's own QEMU; Debian 12's where that has the error, and where it can be fetched.

    Raises VtaxError when no QEMU is installed.
    """
    own = unpacked_qemu.installed()
    if own is None:
        raise VtaxError(f"{qemu_program.program()} does not run", "apt-get install qemu-system-x86")
    if not is_wrong(own.version):
        return own
    other = _of_debian_12()
    return other if isinstance(other, QemuProgram) else own


def boxed(model: str | None, *, slow_cores: bool = False) -> Emulator:
    """That QEMU for the host's box; with the name of a machine of the model, it counts what the
    nested guest does and publishes it in `MODEL_PAGE`; with `slow_cores` its CPUs can be slowed.

    Raises VtaxError when it cannot be had, or loads no such plugin.
    """
    qemu = find()
    emulator = qemu.boxed()
    if model is not None:
        words = (f"page={MODEL_PAGE}", f"machine={model}")
        emulator = plugins.loaded(emulator, qemu.version, PLUGIN, *words)
    return plugins.slowable(emulator, qemu.version) if slow_cores else emulator


def shadow_obstacle() -> str | None:
    """Why no guest runs under shadow paging in the QEMU that `find` returns; None where one does.

    Raises VtaxError when no QEMU is installed.
    """
    version = find().version
    return f"{wrong(version)}, and {_of_debian_12()}" if is_wrong(version) else None


def wrong(version: str) -> str:
    """What a QEMU with the error cannot do."""
    return f"QEMU {version} cannot run a guest under shadow paging"


def is_wrong(version: str) -> bool:
    """Whether a QEMU of this version has the error."""
    return unpacked_qemu.numbers(version) >= FIRST_WRONG


@functools.cache
def _of_debian_12() -> QemuProgram | str:
    """Debian 12's QEMU, or why it cannot be had."""
    try:
        return unpacked_qemu.fetched(packages.DEBIAN_12)
    except VtaxError as error:
        return error.message
