"""A made-up campaign of `vtax memory`: three environments, with and without a cliff."""

from __future__ import annotations

import random
from collections.abc import Sequence

from vtax.memory.analysis import Measured, SizedRun, Used, compared, environment
from vtax.memory.record import MemoryRecord

MIB = 1 << 20
SIZES = tuple(range(500, 3100, 250))
SPECS = ("native:mem=64M,swap=1G", "uml:mem=64M", "qemu:mem=512M")


def _runs(edge: int, swaps: bool, level: float, seed: int) -> Sequence[SizedRun]:
    chance = random.Random(seed)
    made = []
    for number in range(5):
        for size in SIZES:
            past = size > edge
            swapped = max(0, 24 * (size**2 - edge**2)) if past and swaps else 0
            used = Used(
                wall_s=1.0,
                swap_bytes=swapped,
                swapped_in_bytes=2 * swapped,
                swapped_out_bytes=2 * swapped,
                max_rss_bytes=24 * min(size, edge) ** 2,
                working_set_bytes=20 * min(size, edge) ** 2 if swaps else None,
                major_faults=5 + swapped // 4096,
                minor_faults=6 * size + swapped // 1000,
                dtlb_misses=size**2 // 100 if swaps else None,
                itlb_misses=size // 100 if swaps else None,
                killed=int(past and not swaps),
                total_bytes=40 * MIB,
                kernel={"slab": 9 * MIB, "page tables": MIB // 3, "stacks": MIB // 2}
                | ({"code": 14 * MIB, "data": 6 * MIB} if swaps else {}),
            )
            if past and not swaps:
                made.append(SizedRun(size, number, "oom", None, used))
                continue
            value = level * chance.gauss(1, 0.02) * (0.3 if past else 1)
            made.append(SizedRun(size, number, "ok", value, used))
    return made


def record(specs: Sequence[str] = SPECS) -> MemoryRecord:
    """What such a campaign leaves in `run.json`."""
    ways = ((1500, True, 4000.0), (1250, False, 3900.0), (9000, True, 400.0))
    found = [
        Measured(
            spec, f"a machine called {spec}", 64 * MIB, not swaps, _runs(edge, swaps, level, 1)
        )
        for spec, (edge, swaps, level) in zip(specs, ways, strict=False)
    ]
    return MemoryRecord(
        vtax_version="0",
        command_line=("vtax", "memory"),
        name="memory",
        started_utc="2026-01-01T00:00:00+00:00",
        finished_utc="2026-01-01T00:00:01+00:00",
        state="complete",
        argv=("vtax-dgemm", "--size", "{size}"),
        metric="dgemm",
        unit="Mflop/s",
        better="higher",
        sizes=SIZES,
        runs=5,
        seed=1,
        environments=tuple(environment(each, "Mflop/s", "higher", 1) for each in found),
        differences=compared(found, "higher"),
    )
