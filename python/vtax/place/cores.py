"""The cores of this host: which are on, on which NUMA node, and which are slower than others.

The kernel says that of cores in `cpu_capacity`, where 1024 is the fastest
(Documentation/ABI/testing/sysfs-devices-system-cpu), or, on hybrid x86, by a PMU for each type of
core, `cpu_core` and `cpu_atom`, with the performance that the firmware states in
`acpi_cppc/highest_perf`. Where all are alike the user says which count as slow.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Collection, Mapping
from pathlib import Path

from vtax.analysis.host_advice import Cores, HostCores
from vtax.errors import MisuseError, VtaxError
from vtax.formats.plan import cpu_list, cpu_numbers

ROOT = Path("/")
CPU = "sys/devices/system/cpu"
SLOW_SPEED_PERCENT = 50.0
"""Where nobody says how fast slow cores are."""
FAST, SLOW = "fast", "slow"


def cores(
    fast: str | None, slow: str | None, slow_speed_percent: float | None, root: Path = ROOT
) -> HostCores:
    """As the user says, otherwise as the kernel does; slow ones are supposed where neither does.

    Raises MisuseError for lists of CPUs that cannot be, VtaxError when the kernel lists no CPUs.
    """
    on = _listed(root / CPU / "online")
    if not on:
        raise VtaxError(f"cannot read which CPUs are on from /{CPU}/online", "mount /sys")
    node = _nodes(on, root)
    speed = SLOW_SPEED_PERCENT if slow_speed_percent is None else slow_speed_percent
    arm = platform.machine() == "aarch64"
    if fast or slow:
        both = _given(fast, slow, on)
        return HostCores(_two(*both, speed), node, "named by --fast and --slow", arm)
    if found := _by_capacity(on, root):
        if slow_speed_percent is not None:
            if len(found) > 2:
                raise MisuseError(
                    f"--slow-speed: this host has {len(found)} kinds of cores",
                    "name two with --fast and --slow",
                )
            found = _two(found[0].cpus, found[1].cpus, speed)
        return HostCores(found, node, "by the kernel's cpu_capacity", arm)
    if types := _by_type(on, root):
        stated = slow_speed_percent or _stated(types, root)
        how = "by core type"
        if stated is None:
            how += f", their speed of {speed:g} % supposed"
        return HostCores(_two(*types, stated or speed), node, how, arm)
    return HostCores(_two(on, frozenset(), speed), node, "all cores are alike", arm)


def _two(fast: Collection[int], slow: Collection[int], speed: float) -> tuple[Cores, ...]:
    return Cores(FAST, 100.0, frozenset(fast)), Cores(SLOW, speed, frozenset(slow))


def _given(
    fast: str | None, slow: str | None, on: frozenset[int]
) -> tuple[frozenset[int], frozenset[int]]:
    if not (fast and slow):
        missing = "--slow" if fast else "--fast"
        raise MisuseError(f"{missing} is missing", "name fast and slow CPUs, e.g. 0-3 and 4-7")
    both = _numbers("--fast", fast, on), _numbers("--slow", slow, on)
    if common := both[0] & both[1]:
        raise MisuseError(f"CPU {cpu_list(common)} is in --fast and in --slow", "name it in one")
    return both


def _numbers(option: str, text: str, on: frozenset[int]) -> frozenset[int]:
    try:
        found = frozenset(cpu_numbers(text.replace(" ", "")))
    except ValueError as error:
        raise MisuseError(f"{option}: {error}", "write for example 0-3,8") from None
    if off := found - on:
        raise MisuseError(
            f"{option} {text}: CPU {cpu_list(off)} is not on", f"CPUs that are: {cpu_list(on)}"
        )
    return found


def _by_capacity(on: frozenset[int], root: Path) -> tuple[Cores, ...]:
    """Of different capacities, the largest first; none where they are alike or not known."""
    known = {cpu: _number(root / CPU / f"cpu{cpu}" / "cpu_capacity") for cpu in on}
    sizes = sorted({size for size in known.values() if size}, reverse=True)
    if len(sizes) < 2 or not all(known.values()):
        return ()
    names = [FAST, SLOW] if len(sizes) == 2 else [FAST, *(f"slow-{size}" for size in sizes[1:])]
    return tuple(
        Cores(
            name,
            100.0 * size / sizes[0],
            frozenset(cpu for cpu, own in known.items() if own == size),
        )
        for name, size in zip(names, sizes, strict=True)
    )


def _by_type(on: frozenset[int], root: Path) -> tuple[frozenset[int], frozenset[int]] | None:
    """Performance and efficient cores of hybrid x86."""
    kinds = [_listed(root / f"sys/devices/{name}/cpus") & on for name in ("cpu_core", "cpu_atom")]
    return (kinds[0], kinds[1]) if all(kinds) else None


def _stated(types: tuple[frozenset[int], frozenset[int]], root: Path) -> float | None:
    """The speed of the second type in percent of the first one's, as the firmware states it."""
    means = []
    for cpus in types:
        known = [_number(root / CPU / f"cpu{cpu}/acpi_cppc/highest_perf") for cpu in cpus]
        sizes = [each for each in known if each]
        if len(sizes) < len(known):
            return None
        means.append(sum(sizes) / len(sizes))
    return 100.0 * means[1] / means[0] if means[1] < means[0] else None


def _nodes(on: frozenset[int], root: Path) -> Mapping[int, int]:
    """NUMA node of each CPU; all on 0 where the kernel knows none."""
    found = dict.fromkeys(sorted(on), 0)
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        for cpu in _listed(folder / "cpulist") & on:
            found[cpu] = int(folder.name.removeprefix("node"))
    return found


def _listed(file: Path) -> frozenset[int]:
    with contextlib.suppress(OSError, ValueError):
        return frozenset(cpu_numbers(file.read_text().strip()))
    return frozenset()


def _number(file: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return None
