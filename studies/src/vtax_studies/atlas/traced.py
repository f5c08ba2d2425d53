"""Figures 14 and 15 by the model: the driver is traced.

Its references meet the paper's data TLB, and the blocks that it executes its instruction TLB.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources

from vtax import paging
from vtax.core import binaries
from vtax.core.formats.scratch import scratch
from vtax.workloads.dgemm import DGEMM_PROGRAM
from vtax_studies.atlas.data import TlbMisses
from vtax_studies.dav2m.validation.programs import Program
from vtax_studies.dav2m.validation.tracing import trace_into
from vtax_studies.model import Progress

MACHINE = "pentiumd.toml"
OPTIONS = ("--times", "1", "--cold", "--size")
MEMORY = "756M"
KERNEL = ("transparent_hugepage=never",)
"""The paper's kernels had no transparent huge pages."""
INSTRUCTION_ENTRIES = 32
"""Section 5.4 of the paper."""


def tlb_misses(sizes: Sequence[int], progress: Progress) -> Mapping[int, TlbMisses]:
    """Modelled misses of the driver and of the kernel below it, by size, natively.

    Raises VtaxError where nothing can be traced.
    """
    text = resources.files(__package__).joinpath(MACHINE).read_text("utf-8")
    machine, found = tomllib.loads(text), {}
    program = str(binaries.find(DGEMM_PROGRAM))
    with scratch("traced") as folder:
        for at, size in enumerate(sizes):
            progress(at, len(sizes), f"tracing {size} rows")
            driver = Program("driver", (program, *OPTIONS, str(size)), (program,))
            file = folder / f"{size}.vtrace"
            traced = trace_into(
                file, driver.argv, MEMORY,
                warm_up=False, parameters=KERNEL, instruction_tlb=INSTRUCTION_ENTRIES,
            )  # fmt: skip
            result = paging.simulate(file, machine, ["native"])
            of_instructions = traced.instruction_tlb_misses
            assert of_instructions is not None, "it was asked for"
            found[size] = TlbMisses(result.native["l2_tlb_misses"], of_instructions)
            file.unlink()
    return found
