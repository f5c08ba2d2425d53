"""Small workloads and machines for the tests of `vtax paging`."""

from __future__ import annotations

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


def lackey_trace(pages: int) -> str:
    """Text of Valgrind's lackey: one instruction and one store to each of `pages` pages."""
    return "".join(f"I  00400000,4\n S {0x10000000 + 4096 * page:x},8\n" for page in range(pages))
