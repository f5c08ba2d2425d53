"""Does KVM run an ordinary kernel here? Only a boot tells; the answer is kept until reboot.

/dev/kvm may exist and still hang an ordinary kernel (software KVM variants do).
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from vtax import cache
from vtax.environments.base import allowed_cpus
from vtax.environments.machine import Machine
from vtax.errors import VtaxError
from vtax.formats.files import write_atomic

if TYPE_CHECKING:
    from vtax.environments.qemu import Qemu

PASSED = "passed"


def probe(qemu: Qemu) -> str | None:
    """Why KVM cannot be used; None when a guest booted with it.

    The boot may take up to the time-out of a KVM launch (30 s) the first time.
    """
    folder = cache.folder("probes")
    marker = folder / f"kvm-{_key(qemu)}"
    # One probe at a time, whatever its key: they share the working folder.
    with cache.locked(folder / "probe"):
        if not marker.is_file():
            write_atomic(marker, _boot(dataclasses.replace(qemu, accel="kvm")).encode())
    verdict = marker.read_text()
    return None if verdict == PASSED else verdict


def _boot(qemu: Qemu) -> str:
    # A fixed place in the cache: a probe that was killed leaves nothing that the next one does
    # not reuse. The caller holds the lock.
    work = cache.folder("probes/work")
    try:
        with Machine(qemu, work, allowed_cpus()[-qemu.smp :]):
            return PASSED
    except VtaxError as error:
        return f"its boot probe failed: {error}"


def _key(qemu: Qemu) -> str:
    """Changes with the host's boot, the QEMU binary and the guest's CPU model."""
    from vtax.environments.qemu import program

    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    binary = program().stat()
    text = f"{boot}{binary.st_mtime_ns}{binary.st_size}{qemu.cpu}{qemu.kernel}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
