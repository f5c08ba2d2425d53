"""The single simulations: each gives rows for the frames of `Data`.

They run in processes of their own, so that arguments and results are plain.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from vtax.studies.paging import machines as changed
from vtax.studies.paging.setup import (
    MACHINE,
    MACHINE_TITLES,
    SECOND_MACHINE,
    SEED_SETUP,
    Choice,
)

Frames = dict[str, pl.DataFrame]

COMPARED = ("native", "shadow", "nested", "dav2m", "naive", "vtax", "oracle")
SENSITIVE = ("native", "shadow", "nested", "dav2m")

SCAN = """\
name = "scan"
title = "A scan that misses at every level"
basis = "Made for the study: each reference is in another page and another 4 MiB region."
[[phase]]
name = "scan"
instructions = 1e9
base_cpi = 1.0
references_per_instruction = 1.0
footprint = "1G"
mix = { sequential = 1.0, stride = "4100K" }
"""
"""The seed's worst-case microbenchmark (section 3): pages 4 MiB and 4 KiB apart."""

LOCALITY_REFERENCES = 4_000_000
QUICK_LOCALITY_REFERENCES = 400_000

STEP = 250_000
"""Instructions of a window of figure 6."""
BEFORE, AFTER = 120, 400
"""Windows before the first switch, and after each."""
QUICK_BEFORE, QUICK_AFTER = 40, 80


def focus(benchmark: str, machine: str, seed: int) -> Frames:
    """A focused benchmark in the seed's setup under every mode."""
    result = _simulate(benchmark, machine, COMPARED, seed)
    keys = {"machine": machine, "benchmark": benchmark}
    return {
        name: stamped(getattr(result, name), **keys)
        for name in ("modes", "windows", "exits", "switches")
    }


def pages(benchmark: str, seed: int) -> Frames:
    """A native 64-bit run with small pages and one with large ones."""
    rows = []
    for page in ("4K", "2M"):
        options = {"guest_page": page, "guest_tables": 4}
        result = _simulate(benchmark, MACHINE, ("native",), seed, **options)
        totals = result.modes.select("instructions", "cycles", "l2_tlb_misses")
        rows.append(stamped(totals, benchmark=benchmark, page=page))
    return {"pages": pl.concat(rows)}


def sensitivity(benchmark: str, exit_factor: float, tlb_factor: float, seed: int) -> Frames:
    """A focused benchmark on a machine with other exits and TLBs."""
    description = changed.scaled(_description(MACHINE), exit_factor, tlb_factor)
    result = _simulate(benchmark, description, SENSITIVE, seed)
    keys = {"benchmark": benchmark, "exit_factor": exit_factor, "tlb_factor": tlb_factor}
    return {"sensitivity": stamped(result.modes.select("mode", "cycles", "switches"), **keys)}


def choices(benchmark: str, choice: Choice | None, seed: int) -> Frames:
    """DAV2M with one open point changed, or with all defaults."""
    parameters = {"dav2m": choice.values} if choice else {}
    modes = ("native", "shadow", "nested", "dav2m")
    result = _simulate(benchmark, MACHINE, modes, seed, parameters=parameters)
    totals = result.modes.filter(mode="dav2m").select("switches", "overhead_percent")
    keys = {
        "benchmark": benchmark,
        "parameter": choice.parameter if choice else "",
        "setting": choice.shown if choice else "",
    }
    return {"choices": stamped(totals, **keys)}


def stamped(frame: pl.DataFrame, **keys: Any) -> pl.DataFrame:
    """The frame with these columns before its own."""
    return frame.select(*(pl.lit(value).alias(key) for key, value in keys.items()), pl.all())
