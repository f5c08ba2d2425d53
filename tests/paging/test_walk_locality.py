"""How TLB misses and reads of walks spread over page-table entries."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import vtrace
from vtax.core.errors import MisuseError
from vtax.paging import simulate, walk_locality

PAGES = 2048
"""More than the Opteron's TLBs hold."""
MACHINE = "opteron2350"


def test_every_miss_and_every_read_has_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "a.vtrace"
    sweep = vtrace.block(PAGES, [page << 12 for page in range(PAGES)])
    path.write_bytes(
        vtrace.trace([sweep, sweep, sweep], (3 * PAGES, 3 * PAGES), b'{"map_on_touch": true}')
    )
    misses, reads = walk_locality(path, MACHINE)
    totals = simulate(path, MACHINE, ("native",)).totals["native"]
    assert sum(misses) == totals["l2_tlb_misses"]
    assert sum(reads) == totals["walk_references"]
    tables = PAGES // 512
    # Each page misses in three sweeps and once more where the guest faults; the first fault of each
    # table ends at the entry above it.
    assert Counter(misses) == {4: PAGES - tables, 3: tables, 1: tables}
    assert len(reads) == PAGES + tables + 2, "entries of upper levels are few"
    assert reads == sorted(reads, reverse=True)


def test_a_profile_is_no_trace() -> None:
    with pytest.raises(MisuseError, match="gcc is no trace"):
        walk_locality("gcc", MACHINE)
