"""Points, cliffs and what each kernel leaves to programs, from the runs of `vtax memory`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vtax.core.formats.model import Better
from vtax.memory import cliff as memory_cliff
from vtax.memory.record import MemoryCliff, MemoryDifference, MemoryEnvironment, MemoryPoint

End = Literal["ok", "oom", "failed"]

IMAGE = {
    "code": ("Kernel code",),
    "data": ("Kernel rodata", "Kernel data", "Kernel bss"),
}
"""Parts of a kernel's image, and their names in /proc/iomem."""
LIVING = {"slab": "Slab", "page tables": "PageTables", "stacks": "KernelStack"}
"""Parts of memory that a kernel has besides, and their names in /proc/meminfo."""
NO_TLB = "the machine has no PMU that counts them all the time"
_UNCOUNTED = {
    "dtlb_misses": NO_TLB,
    "itlb_misses": NO_TLB,
    "working_set_bytes": "not asked for with --working-set, or the machine does not say it",
}
MODULES = "modules"
"""Code and data of the kernel's loaded modules."""
RESERVED = "reserved at boot"
"""What a guest's kernel keeps of its memory from the start besides code and data, such as the
structures of pages; code and data too where the machine does not show them."""
PARTS = (*IMAGE, MODULES, RESERVED, *LIVING)


@dataclass(frozen=True, slots=True)
class Used:
    """What `vtax-agent memory` wrote about a run. None: the machine did not say."""

    wall_s: float | None = None
    swap_bytes: int | None = None
    own_swap: bool = False
    """`swap_bytes` is of the program's control group, while what was swapped in and out is counted
    for the whole machine: others' is in it."""
    swapped_in_bytes: int | None = None
    swapped_out_bytes: int | None = None
    max_rss_bytes: int | None = None
    working_set_bytes: int | None = None
    major_faults: int | None = None
    minor_faults: int | None = None
    dtlb_misses: int | None = None
    itlb_misses: int | None = None
    stalled_s: float | None = None
    killed: int | None = None
    """Processes that the OOM killer ended during the run."""
    total_bytes: int | None = None
    """All memory that the kernel manages."""
    kernel: Mapping[str, int | None] = field(default_factory=dict)
    """Bytes by part, from the last look while the program ran."""
    others_bytes: int | None = None
    """The resident sets of all processes before the program started."""

    @property
    def pressed(self) -> bool | None:
        """Whether the machine was short of memory; None: it does not say."""
        if self.own_swap:
            return None if self.swap_bytes is None else self.swap_bytes > 0
        signs = (self.swapped_out_bytes, self.swapped_in_bytes, self.killed)
        known = [sign for sign in signs if sign is not None]
        return any(known) if known else None


@dataclass(frozen=True, slots=True)
class SizedRun:
    """A run of one size."""

    size: int
    round: int
    end: End
    value: float | None
    used: Used = Used()
    message: str | None = None
    too_slow: bool = False
    """It failed because it did not end within its time limit."""


@dataclass(frozen=True, slots=True)
class Measured:
    """All runs of one environment."""

    spec: str
    description: str
    memory_bytes: int | None
    is_guest: bool
    runs: Sequence[SizedRun]
    notes: tuple[str, ...] = ()


def used(found: Mapping[str, Any]) -> Used:
    """What the JSON of a machine says; a value that it should not have counts as not known."""
    before, after = (
        _mapping(_mapping(found.get(key)).get("events")) for key in ("before", "after")
    )
    seen = _mapping(found.get("seen"))
    last = _mapping(seen.get("last")) or _mapping(found.get("after"))
    memory, image = _mapping(last.get("memory_bytes")), _mapping(found.get("image_bytes"))
    kernel = {part: _sum(image, names) for part, names in IMAGE.items()}
    kernel |= {part: _count(memory.get(name)) for part, name in LIVING.items()}
    kernel[MODULES] = _count(found.get("modules_bytes"))
    page = _count(found.get("page_bytes"))
    out = _grown(before, after, "pswpout", page)
    swapped = _count(seen.get("swap_bytes"))
    if out == 0:
        # Nothing was written to swap: no look could have missed any.
        swapped = 0
    stalls = [_count(_mapping(found.get(key)).get("stalled_us")) for key in ("before", "after")]
    wall = found.get("wall_s")
    if isinstance(wall, bool):
        wall = None
    return Used(
        wall_s=float(wall) if isinstance(wall, int | float) and 0 < wall < 1e9 else None,
        swap_bytes=swapped,
        own_swap=found.get("own_swap") is True,
        swapped_in_bytes=_grown(before, after, "pswpin", page),
        swapped_out_bytes=out,
        max_rss_bytes=_count(found.get("max_rss_bytes")),
        working_set_bytes=_count(seen.get("working_set_bytes")),
        major_faults=_count(found.get("major_faults")),
        minor_faults=_count(found.get("minor_faults")),
        dtlb_misses=_count(found.get("dtlb_misses")),
        itlb_misses=_count(found.get("itlb_misses")),
        stalled_s=None if None in stalls else (stalls[1] - stalls[0]) / 1e6,  # type: ignore[operator]
        killed=_grown(before, after, "oom_kill", 1),
        total_bytes=_count(memory.get("MemTotal")),
        kernel=kernel,
        others_bytes=_count(found.get("others_bytes")),
    )


def environment(measured: Measured, unit: str, better: Better, seed: int) -> MemoryEnvironment:
    """The record of one environment."""
    sizes = sorted({run.size for run in measured.runs})
    points = {
        size: _point(size, [run for run in measured.runs if run.size == size], unit)
        for size in sizes
    }
    found = memory_cliff.find(curve(measured.runs), better, seed)
    cliff = None
    if found is not None:
        cliff = MemoryCliff(size=found.size, low=found.low, high=found.high)
    resident = points[cliff.size].max_rss_bytes if cliff and cliff.size is not None else None
    kernel = _kernel(measured)
    # Elsewhere they are the processes of the whole machine, outside of the limit.
    others = _median(run.used.others_bytes for run in measured.runs if measured.is_guest)
    return MemoryEnvironment(
        spec=measured.spec,
        description=measured.description,
        memory_bytes=measured.memory_bytes,
        kernel_bytes=kernel,
        absent={part: "the machine does not show it" for part, size in kernel.items()
                if size is None}
        | {name: why for name, why in _UNCOUNTED.items()
           if all(getattr(point, name) is None for point in points.values())},
        points=tuple(points.values()),
        cliff=cliff,
        others_bytes=None if others is None else round(others),
        user_bytes=None if resident is None else round(resident),
        notes=measured.notes,
    )  # fmt: skip


def compared(measured: Iterable[Measured], better: Better) -> tuple[MemoryDifference, ...]:
    """Whether the cliffs of each pair of environments differ."""
    curves = {each.spec: curve(each.runs) for each in measured}
    return tuple(
        MemoryDifference(
            a=each.a, b=each.b, size_a=each.size_a, size_b=each.size_b, p=each.p,
            verdict=each.verdict,
        )
        for each in memory_cliff.differences(curves, better)
    )  # fmt: skip


def curve(runs: Iterable[SizedRun]) -> memory_cliff.Curve:
    """The runs to look for a cliff in: runs with a value, and those without performance.

    The latter were killed for lack of memory or ran into their time limit: a machine without swap
    that has almost no memory left reads its programs' own code from the disk over and over.
    """
    found: dict[int, list[memory_cliff.Run]] = {}
    for run in runs:
        if run.end != "failed" or run.too_slow:
            pressed = True if run.end == "oom" else run.used.pressed
            own = memory_cliff.Run(run.round, run.value, pressed)
            found.setdefault(run.size, []).append(own)
    return found


def _point(size: int, runs: Sequence[SizedRun], unit: str) -> MemoryPoint:
    values = [run.value for run in runs if run.value is not None]
    ends = [run.end for run in runs]
    middle = {
        name: _median(getattr(run.used, name) for run in runs)
        for name in (
            "swap_bytes", "swapped_in_bytes", "swapped_out_bytes", "max_rss_bytes",
            "working_set_bytes", "major_faults", "minor_faults", "dtlb_misses", "itlb_misses",
            "stalled_s",
        )
    }  # fmt: skip
    return MemoryPoint(
        size=size,
        n=len(values),
        median=statistics.median(values) if values else None,
        low=min(values, default=None),
        high=max(values, default=None),
        unit=unit,
        end=max(("ok", "oom", "failed"), key=ends.count),
        killed=ends.count("oom"),
        failed=ends.count("failed"),
        message=next((run.message for run in reversed(runs) if run.message), None),
        **middle,
    )


def _kernel(measured: Measured) -> dict[str, int | None]:
    """The median of each part over the runs; the part that a guest reserved follows from its
    size."""
    parts = {part: _median(run.used.kernel.get(part) for run in measured.runs) for part in PARTS}
    total = _median(run.used.total_bytes for run in measured.runs)
    size = measured.memory_bytes
    # A container shows the host's memory, which is more than its own.
    if measured.is_guest and total is not None and size is not None and total < size:
        rest = size - total - sum(parts[part] or 0 for part in IMAGE)
        parts[RESERVED] = rest if rest > 0 else None
    return {part: None if size is None else round(size) for part, size in parts.items()}


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _grown(
    before: Mapping[str, Any], after: Mapping[str, Any], name: str, unit: int | None
) -> int | None:
    first, last = _count(before.get(name)), _count(after.get(name))
    if first is None or last is None or unit is None or last < first:
        return None
    return (last - first) * unit


def _sum(found: Mapping[str, Any], names: Sequence[str]) -> int | None:
    known = [size for name in names if (size := _count(found.get(name))) is not None]
    return sum(known) if known else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: object) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60
    return value if fits else None  # type: ignore[return-value]
