"""The single simulations: each gives rows for the frames of `Data`.

They run in processes of their own, so that arguments and results are plain.
"""

from __future__ import annotations

import tomllib
from typing import Any

import polars as pl

from vtax.paging import native
from vtax.paging.modes import choose
from vtax.paging.result import SimulationResult
from vtax.paging.run import execute
from vtax.paging.settings import Settings
from vtax.studies.dav2m import machines as changed
from vtax.studies.dav2m.setup import MACHINE, SECOND_MACHINE, SEED_SETTINGS, Choice

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

WALKS = """\
name = "walks"
title = "Uniformly random references"
basis = "Made for the study: every reference walks."
[[phase]]
name = "walks"
instructions = 1e7
base_cpi = 1.0
references_per_instruction = 1.0
footprint = "64M"
mix = { random = 1.0 }
"""
"""More pages than any TLB here has entries; the memory is mapped within the first window."""

LOCALITY_REFERENCES = 4_000_000
QUICK_LOCALITY_REFERENCES = 400_000


def focus(benchmark: str, machine: str, seed: int) -> Frames:
    """A focused benchmark in the seed's setup under every mode."""
    result = simulated(benchmark, described(machine), COMPARED, seed)
    keys = {"machine": machine, "benchmark": benchmark}
    return {
        name: stamped(getattr(result, name), **keys)
        for name in ("modes", "windows", "exits", "switches")
    }


def pages(benchmark: str, seed: int) -> Frames:
    """A native 64-bit run with small pages and one with large ones."""
    rows = []
    for page in ("4K", "2M"):
        options: dict[str, Any] = {"guest_page": page, "guest_levels": 4}
        result = simulated(benchmark, described(MACHINE), ("native",), seed, **options)
        totals = result.modes.select("instructions", "cycles", "l2_tlb_misses")
        rows.append(stamped(totals, benchmark=benchmark, page=page))
    return {"pages": pl.concat(rows)}


def sensitivity(benchmark: str, exit_factor: float, tlb_factor: float, seed: int) -> Frames:
    """A focused benchmark on a machine with other exits and TLBs."""
    description = changed.scaled(described(MACHINE), exit_factor, tlb_factor)
    result = simulated(benchmark, description, SENSITIVE, seed)
    keys = {"benchmark": benchmark, "exit_factor": exit_factor, "tlb_factor": tlb_factor}
    return {"sensitivity": stamped(result.modes.select("mode", "cycles", "switches"), **keys)}


def choices(benchmark: str, choice: Choice | None, seed: int) -> Frames:
    """DAV2M with one open point changed, or with all defaults."""
    parameters = {"dav2m": choice.values} if choice else None
    modes = ("native", "shadow", "nested", "dav2m")
    result = simulated(benchmark, described(MACHINE), modes, seed, parameters)
    totals = result.modes.filter(mode="dav2m").select("switches", "overhead_percent")
    keys = {
        "benchmark": benchmark,
        "parameter": choice.parameter if choice else "",
        "setting": choice.shown if choice else "",
    }
    return {"choices": stamped(totals, **keys)}


def locality(benchmark: str, page: str, seed: int, quick: bool) -> Frames:
    """References to each region that one entry of the first table level covers."""
    extension = native.load()
    text = SCAN if benchmark == "scan" else extension.workload_description(benchmark)
    references = QUICK_LOCALITY_REFERENCES if quick else LOCALITY_REFERENCES
    counts = extension.locality(extension.Workload.parse(text), references, seed)
    rows = pl.DataFrame({"region": range(len(counts)), "references": counts})
    return {"locality": stamped(rows, benchmark=benchmark, page=page)}


def walks(seed: int) -> Frames:
    """References per TLB miss, four by four levels, with nothing that skips any."""
    machine = changed.without_walk_caches(described(MACHINE))
    options: dict[str, Any] = {
        "guest_levels": 4,
        "host_page": "4K",
        "window_instructions": 1_000_000,
    }
    result = simulated(WALKS, machine, ("nested",), seed, **options)
    # The first windows also hold the walks that ended in faults while memory was mapped.
    steady = result.windows.sort("window").tail(1)
    per_walk = float(steady["walk_references"][0]) / float(steady["l2_tlb_misses"][0])
    row = {"guest_levels": 4, "host_levels": 4, "references_per_walk": per_walk}
    return {"walks": pl.DataFrame([row])}


def machines() -> Frames:
    """What the claims need to know of the presets."""
    rows = []
    for name in (MACHINE, SECOND_MACHINE):
        text = described(name)
        rows.append(
            {
                "machine": name,
                "title": text["title"],
                "clock_hz": float(text["clock_hz"]),
                "exit_cycles": float(text["costs"]["exit"]),
                "policy_cycles": float(text["costs"]["policy"]),
            }
        )
    return {"machines": pl.DataFrame(rows)}


def described(machine: str) -> changed.Description:
    """The description of a preset."""
    extension = native.load()
    return tomllib.loads(extension.machine_description(extension.Machine.preset(machine)))


def simulated(
    workload: str,
    machine: changed.Description,
    modes: Any,
    seed: int,
    parameters: dict[str, dict[str, Any]] | None = None,
    **options: Any,
) -> SimulationResult:
    """A simulation of `workload` (a name or a TOML text) in the seed's setup but for `options`."""
    extension = native.load()
    text = workload if "\n" in workload else extension.workload_description(workload)
    settings = Settings(**{**SEED_SETTINGS, **options}, seed=seed)
    with native.translated(machine["name"]):
        parsed = extension.Workload.parse(text), extension.Machine.parse(changed.to_toml(machine))
    return execute(*parsed, choose(modes, parameters or {}), settings)


def stamped(frame: pl.DataFrame, **keys: Any) -> pl.DataFrame:
    """The frame with these columns before its own."""
    return frame.select(*(pl.lit(value).alias(key) for key, value in keys.items()), pl.all())
