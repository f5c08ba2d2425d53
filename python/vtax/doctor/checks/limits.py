"""What machines can be limited by, and what they need."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding

GIB = 1 << 30
NEEDED_MEMORY = 2 * GIB
"""Memory for a 1 GiB guest, its baseline's page cache and vtax itself."""
NEEDED_DISK = 1 * GIB
"""Disk space: an unpacked kernel package is 0.4 GiB; runs are small."""


class Cgroups(Check):
    """The baseline is capped to a guest's memory by a cgroup."""

    name = "cgroups"
    purpose = "memory cap of the baseline (native:mem=...)"

    def find(self, host: Host) -> Finding:
        lines = (host.read("/proc/self/cgroup") or "").splitlines()
        fields = [line.split(":", 2) for line in lines if line.count(":") >= 2]
        for _, controllers, path in fields:
            if "memory" in controllers.split(","):
                return self._try(host, 1, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes")
        for hierarchy, _, path in fields:
            if hierarchy == "0":
                return self._version_2(host, path)
        return self.impossible("no memory cgroup is mounted")

    def _version_2(self, host: Host, path: str) -> Finding:
        mount = "/sys/fs/cgroup"
        available = host.read(f"{mount}/{path.strip('/')}/cgroup.controllers")
        if available is None:
            return self.impossible("this process's cgroup is not visible from here")
        if "memory" not in available.split():
            return self.missing(
                "version 2, but its memory controller is not given to this user's cgroup",
                "systemd-run --user --scope -p Delegate=yes vtax ..., or run as root",
            )
        return self._try(host, 2, mount, path, "memory.max")

    def _try(self, host: Host, version: int, mount: str, path: str, limit: str) -> Finding:
        """Make a group and remove it at once: ownership alone would not tell."""
        # Inside a container the path may be the host's, which is not mounted here.
        parent = host.path(f"{mount}/{path.strip('/')}")
        if not parent.is_dir():
            parent = host.path(mount)
        group = parent / f"vtax-doctor-{os.getpid()}"
        try:
            group.mkdir()
        except OSError as error:
            return self.missing(
                f"version {version}, but no group can be made: {error.strerror}",
                "run as root, or in a delegated scope: systemd-run --user --scope "
                "-p Delegate=yes vtax ...",
            )
        try:
            if version == 2 and not (group / limit).exists() and not _can_enable(host, parent):
                return self.missing(
                    "version 2, but memory cannot be limited below this process's cgroup",
                    "systemd-run --user --scope -p Delegate=yes vtax ..., or run as root",
                )
        finally:
            with contextlib.suppress(OSError):
                group.rmdir()
        return self.ok(f"version {version}, memory can be limited")


def _can_enable(host: Host, parent: Path) -> bool:
    """Whether the memory controller could be handed to groups below `parent`."""
    return host.writable(parent / "cgroup.subtree_control")


class Memory(Check):
    """Guests live in this host's memory."""

    name = "memory"
    purpose = "guests"

    def find(self, host: Host) -> Finding:
        for line in (host.read("/proc/meminfo") or "").splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
                break
        else:
            return self.degraded("not known: /proc/meminfo has no MemAvailable")
        text = f"{available / GIB:.1f} GiB free"
        if available < NEEDED_MEMORY:
            return self.degraded(
                f"{text}: too little for a 1 GiB guest beside the host's own work",
                "end other programs, or use smaller guests (mem=512M) and --preset tiny",
            )
        return self.ok(text)


class Disk(Check):
    """Runs, and the kernel package in the cache."""

    name = "disk"
    purpose = "runs, the cache"

    def find(self, host: Host) -> Finding:
        # The cache's folder may not exist yet; the nearest one that does is on its disk.
        cache = next(path for path in (host.cache, *host.cache.parents) if path.exists())
        folders = {"here": host.work, "for the cache": cache}
        free = {name: host.free_bytes(folder) for name, folder in folders.items()}
        text = ", ".join(f"{amount / GIB:.1f} GiB free {name}" for name, amount in free.items())
        if min(free.values()) < NEEDED_DISK:
            return self.degraded(text, "free at least 1 GiB, or set XDG_CACHE_HOME")
        return self.ok(text)


CHECKS = (Cgroups, Memory, Disk)
