"""The cores of this host: which are on, on which NUMA node, and which are slower than others.

`vtax-host place cores` says which kind each core is (docs/place-format.md). Where all are alike,
the user says which count as slow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from vtax.core.errors import VtaxError
from vtax.place import service_domain
from vtax.place.host_cores import Cores, HostCores
from vtax.place.plan import cpu_numbers

ROOT = Path("/")
SLOW_SPEED_PERCENT = 50.0
"""The speed of slow cores where nothing says how fast they are."""
SLOW = "slow"


def cores(
    fast: str | None, slow: str | None, slow_speed_percent: float | None, root: Path = ROOT
) -> HostCores:
    """The cores as the user states them, otherwise as the kernel does; where neither does, slow
    cores are supposed.

    Raises MisuseError for impossible lists of CPUs, VtaxError when the kernel lists no CPUs.
    """
    speed = None if slow_speed_percent is None else f"{slow_speed_percent:g}"
    found = service_domain.kinds(root, fast=fast, slow=slow, slow_speed=speed)
    if not found.kinds:
        raise VtaxError("cannot read which CPUs are on from /sys/devices/system/cpu", "mount /sys")
    source = found.source or "all cores are alike"
    supposed = SLOW_SPEED_PERCENT if slow_speed_percent is None else slow_speed_percent
    if any(each.speed_percent is None for each in found.kinds):
        source += f", a speed of {supposed:g} % supposed"
    classes = [
        Cores(each.name, each.speed_percent or supposed, frozenset(cpu_numbers(each.cpus)))
        for each in found.kinds
    ]
    if len(classes) == 1:
        classes.append(Cores(SLOW, supposed, frozenset()))
    return HostCores(
        tuple(classes),
        _nodes(frozenset(cpu for each in classes for cpu in each.cpus), root),
        source,
        tuple(frozenset(cpu_numbers(each)) for each in found.siblings),
        found.sibling,
        found.notes,
    )


def _nodes(planned: frozenset[int], root: Path) -> Mapping[int, int]:
    """NUMA node of each CPU; all on node 0 where the kernel knows no nodes."""
    found = dict.fromkeys(sorted(planned), 0)
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        for cpu in _listed(folder / "cpulist") & planned:
            found[cpu] = int(folder.name.removeprefix("node"))
    return found


def _listed(file: Path) -> frozenset[int]:
    with contextlib.suppress(OSError, ValueError):
        return frozenset(cpu_numbers(file.read_text().strip()))
    return frozenset()
