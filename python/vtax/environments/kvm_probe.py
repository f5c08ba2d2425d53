"""Does KVM run an ordinary kernel here? Only a boot tells; the answer is kept until reboot.

/dev/kvm may exist and still hang an ordinary kernel (software KVM variants do).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from vtax.core import cache
from vtax.core.checks.host import Host
from vtax.core.errors import VtaxError
from vtax.core.formats.files import write_atomic
from vtax.environments.base import allowed_cpus
from vtax.environments.process_environment import ProcessEnvironment
from vtax.environments.qemu_program import program

PASSED = "passed"
DEVICE = Path("/dev/kvm")
HARDWARE = {"vmx", "svm"}
"""Flags of CPUs on which stock KVM runs."""


def obstacle(device: Path = DEVICE) -> str | None:
    """Why KVM cannot even be tried; None when it can. Only a boot proves that it works."""
    if not device.exists():
        return f"{device} does not exist"
    if not os.access(device, os.R_OK | os.W_OK):
        return f"no permission for {device} (join the group kvm)"
    return None


def doubt(environment: ProcessEnvironment, binary: Path) -> str | None:
    """Why `binary` runs no machine of `environment` by KVM; None where nothing speaks against it.

    A boot is tried only where the CPU shows no hardware for KVM.
    """
    if (reason := obstacle()) or Host().cpu_flags & HARDWARE:
        return reason
    return probe(environment, allowed_cpus()[-environment.shape().cpus :], str(binary), binary)


def probe(
    environment: ProcessEnvironment, cpus: Sequence[int], key: str, binary: Path | None = None
) -> str | None:
    """Why KVM cannot be used; None when a machine of `environment`, which uses KVM, booted.

    `key` stands for what the answer depends on besides `binary`, by default QEMU, and this boot of
    the host. The boot may take up to the time-out of that machine the first time.
    """
    folder = cache.folder("probes")
    marker = folder / f"kvm-{_digest(key, binary or program())}"
    # One probe at a time, whatever its key: they share the working folder.
    with cache.locked(folder / "probe"):
        if not marker.is_file():
            write_atomic(marker, _boot(environment, cpus).encode())
    verdict = marker.read_text()
    return None if verdict == PASSED else verdict


def _boot(environment: ProcessEnvironment, cpus: Sequence[int]) -> str:
    # A fixed path in the cache: a probe that was killed leaves nothing that the next one does
    # not reuse. The caller holds the lock.
    work = cache.folder("probes/work")
    try:
        with closing(environment.start(work, cpus)):
            return PASSED
    except VtaxError as error:
        return f"its boot probe failed: {error}"


def _digest(key: str, binary: Path) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    found = binary.stat()
    text = f"{boot}{found.st_mtime_ns}{found.st_size}{key}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
