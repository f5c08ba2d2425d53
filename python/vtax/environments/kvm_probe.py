"""Does KVM run an ordinary kernel here? Only a boot tells; the answer is kept until reboot.

/dev/kvm may exist and still hang an ordinary kernel (software KVM variants do).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from vtax.core import cache
from vtax.core.errors import VtaxError
from vtax.core.formats.files import write_atomic
from vtax.environments.machine import Machine
from vtax.environments.process_environment import ProcessEnvironment
from vtax.environments.qemu_program import program

PASSED = "passed"


def probe(environment: ProcessEnvironment, cpus: Sequence[int], key: str) -> str | None:
    """Why KVM cannot be used; None when a machine of `environment`, which uses KVM, booted.

    `key` stands for what the answer depends on besides QEMU and this boot of the host. The boot may
    take up to the time-out of that machine the first time.
    """
    folder = cache.folder("probes")
    marker = folder / f"kvm-{_digest(key)}"
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
        with Machine(environment, work, cpus):
            return PASSED
    except VtaxError as error:
        return f"its boot probe failed: {error}"


def _digest(key: str) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    binary = program().stat()
    text = f"{boot}{binary.st_mtime_ns}{binary.st_size}{key}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
