"""Small workloads and machines for the tests of `vtax paging`."""

from __future__ import annotations

import struct

# Two phases that are over in a moment: reads over 8 MiB, then allocations.
WORKLOAD = """\
name = "small"
title = "Made for tests"
basis = "Made for tests."

[[phase]]
name = "scan"
instructions = 2e6
base_cpi = 1.0
references_per_instruction = 0.3
footprint = "8M"
mix = { random = 0.5 }

[[phase]]
name = "allocate"
instructions = 2e6
base_cpi = 1.0
references_per_instruction = 0.3
footprint = "1M"
mix = { random = 0.1 }
changes = { allocations = 50, allocation_pages = 4, lifetime = 2 }
"""


def champsim_trace(pages: int) -> bytes:
    """Records of ChampSim's: one instruction and one store to each of `pages` pages."""
    records = (struct.pack("<QQQ40x", 0x400000, 0, 0x10000000 + 4096 * at) for at in range(pages))
    return b"".join(records)
