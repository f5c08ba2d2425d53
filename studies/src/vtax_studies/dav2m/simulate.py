"""The simulations that the study is made of, as independent jobs for several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from vtax.core.processes import Pool
from vtax.paging import (
    Policy,
    Reading,
    SimulationResult,
    locality,
    machine_description,
    native,
    simulate,
    workload_description,
)
from vtax_studies.dav2m.data import Data, frame_names
from vtax_studies.dav2m.setup import (
    CHOICES,
    EXIT_FACTORS,
    FOCUS,
    LOCALITY,
    MACHINE,
    PAPER_SETTINGS,
    PHASED,
    QUICK_EXIT_FACTORS,
    QUICK_TLB_FACTORS,
    SECOND_MACHINE,
    SURVEYED,
    TLB_FACTORS,
    Choice,
)
from vtax_studies.model import Progress, StudyOptions

Description = dict[str, Any]
"""A machine or a workload as its TOML file has it."""


def scaled(description: Mapping[str, Any], exit_factor: float, tlb_factor: float) -> Description:
    """The machine with its exits and the entries of its data TLBs multiplied.

    Arrays keep their ways unless they were fully associative or would have fewer entries than
    ways.
    """
    changed: Description = deepcopy(dict(description))
    changed["name"] = f"{changed['name']}-exit{exit_factor:g}-tlb{tlb_factor:g}"
    changed["costs"]["exit"] = max(1, round(changed["costs"]["exit"] * exit_factor))
    for level in ("l1", "l2"):
        for array in changed["tlb"].get(level, ()):
            entries = max(1, round(array["entries"] * tlb_factor))
            full = array["ways"] == array["entries"]
            array["ways"] = entries if full else min(array["ways"], entries)
            array["entries"] = entries
    return changed


def without_walk_caches(description: Mapping[str, Any]) -> Description:
    """The machine without anything that lets a walk skip references."""
    changed: Description = deepcopy(dict(description))
    changed["name"] = f"{changed['name']}-no-walk-caches"
    changed["walk"] = {}
    return changed


Frames = Mapping[str, pl.DataFrame]
"""Rows by the name of the frame of `Data` that they belong to."""

COMPARED = ("native", "shadow", "nested", "dav2m", "naive", "vtax", "oracle")
SENSITIVE = ("native", "shadow", "nested", "dav2m")

SCAN: Description = {
    "name": "scan",
    "title": "A scan that misses at every level",
    "basis": "Made for the study: each reference is in another page and another 4 MiB region.",
    "phase": [
        {
            "name": "scan",
            "instructions": 1e9,
            "base_cpi": 1.0,
            "references_per_instruction": 1.0,
            "footprint": "1G",
            "mix": {"sequential": 1.0, "stride": "4100K"},
        }
    ],
}
"""The paper's worst-case microbenchmark (section 3): pages 4 MiB and 4 KiB apart."""

WALKS: Description = {
    "name": "walks",
    "title": "Uniformly random references",
    "basis": "Made for the study: every reference walks.",
    "phase": [
        {
            "name": "walks",
            "instructions": 1e7,
            "base_cpi": 1.0,
            "references_per_instruction": 1.0,
            "footprint": "64M",
            "mix": {"random": 1.0},
        }
    ],
}
"""More pages than any TLB here has entries; the memory is mapped within the first window."""

LOCALITY_REFERENCES = 4_000_000
QUICK_LOCALITY_REFERENCES = 400_000


def focus(benchmark: str, machine: str, seed: int) -> Frames:
    """A focused benchmark in the paper's setup under every mode."""
    result = simulated(benchmark, machine_description(machine), COMPARED, seed)
    return compared(result, benchmark, machine)


def compared(result: SimulationResult, benchmark: str, machine: str) -> Frames:
    """The frames of one benchmark, or program, under several modes."""
    keys = {"machine": machine, "benchmark": benchmark}
    return {
        name: stamped(getattr(result, name), **keys)
        for name in ("modes", "windows", "exits", "switches", "states")
    }


def pages(benchmark: str, seed: int) -> Frames:
    """A native 64-bit run with small pages and one with large ones."""
    rows = []
    for page in ("4K", "2M"):
        settings: dict[str, Any] = {"guest_page": page, "guest_levels": 4}
        result = simulated(benchmark, machine_description(MACHINE), ("native",), seed, **settings)
        totals = result.modes.select("instructions", "cycles", "l2_tlb_misses")
        rows.append(stamped(totals, benchmark=benchmark, page=page))
    return {"pages": pl.concat(rows)}


def sensitivity(benchmark: str, exit_factor: float, tlb_factor: float, seed: int) -> Frames:
    """A focused benchmark on a machine with other exits and TLBs."""
    description = scaled(machine_description(MACHINE), exit_factor, tlb_factor)
    result = simulated(benchmark, description, SENSITIVE, seed)
    keys = {"benchmark": benchmark, "exit_factor": exit_factor, "tlb_factor": tlb_factor}
    return {"sensitivity": stamped(result.modes.select("mode", "cycles", "switches"), **keys)}


def choices(benchmark: str, choice: Choice | None, seed: int) -> Frames:
    """DAV2M with one open point changed, or with all defaults."""
    parameters = {"dav2m": choice.values} if choice else None
    modes = ("native", "shadow", "nested", "dav2m")
    result = simulated(benchmark, machine_description(MACHINE), modes, seed, parameters)
    totals = result.modes.filter(mode="dav2m").select("switches", "overhead_percent")
    keys = {
        "benchmark": benchmark,
        "parameter": choice.parameter if choice else "",
        "setting": choice.shown if choice else "",
    }
    return {"choices": stamped(totals, **keys)}


def region_counts(benchmark: str, page: str, seed: int, quick: bool) -> Frames:
    """References to each region that one entry of the first table level covers."""
    references = QUICK_LOCALITY_REFERENCES if quick else LOCALITY_REFERENCES
    counts = locality(SCAN if benchmark == "scan" else benchmark, references, seed)
    rows = pl.DataFrame({"region": range(len(counts)), "references": counts})
    return {"locality": stamped(rows, benchmark=benchmark, page=page)}


def walks(seed: int) -> Frames:
    """References per TLB miss in a four-by-four-level walk that nothing shortens."""
    machine = without_walk_caches(machine_description(MACHINE))
    settings: dict[str, Any] = {
        "guest_levels": 4,
        "host_page": "4K",
        "window": 1_000_000,
    }
    result = simulated(WALKS, machine, ("nested",), seed, **settings)
    # The first windows also have the walks that ended in faults while memory was mapped.
    steady = result.windows.sort("window").tail(1)
    per_walk = float(steady["walk_references"][0]) / float(steady["l2_tlb_misses"][0])
    row = {"guest_levels": 4, "host_levels": 4, "references_per_walk": per_walk}
    return {"walks": pl.DataFrame([row])}


def machines() -> Frames:
    """What the claims need to know of the presets."""
    rows = []
    for name in (MACHINE, SECOND_MACHINE):
        text = machine_description(name)
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


def arrows() -> Frames:
    """The transitions of DAV2M's diagram as the model has them."""
    keys = ("origin", "to", "condition", "action")
    rows = [
        {"number": at, **dict(zip(keys, arrow, strict=True))}
        for at, arrow in enumerate(native.load().dav2m_transitions(), 1)
    ]
    return {"arrows": pl.DataFrame(rows)}


def simulated(
    workload: str | Path | Description,
    machine: Description,
    modes: Any,
    seed: int,
    parameters: dict[str, dict[str, Any]] | None = None,
    **settings: Any,
) -> SimulationResult:
    """A simulation of `workload` in the paper's setup, changed by `settings`."""
    settings = {**PAPER_SETTINGS, **settings, "seed": seed}
    return simulate(workload, machine, modes, parameters=parameters, **settings)


def stamped(frame: pl.DataFrame, **keys: Any) -> pl.DataFrame:
    """The frame with these columns in front of its own."""
    return frame.select(*(pl.lit(value).alias(key) for key, value in keys.items()), pl.all())


STEP = 250_000
"""Instructions of a window."""
BEFORE, AFTER = 60, 160
"""Windows before the first switch, and after each switch."""
QUICK_BEFORE, QUICK_AFTER = 20, 40


class Scripted(Policy):
    """Shadow paging, then nested paging, then shadow paging again."""

    window_instructions = STEP
    start = "shadow"

    def __init__(self, to_nested: int, to_shadow: int) -> None:
        self.to_nested, self.to_shadow = to_nested, to_shadow
        self.window = 0

    def decide(self, now: Reading, last_window: Reading) -> str:
        """The mode by the number of windows so far."""
        self.window += 1
        return "nested" if self.to_nested <= self.window < self.to_shadow else "shadow"


def transitions(benchmark: str, seed: int, quick: bool) -> Frames:
    """What a switch in each direction costs in each phase of the benchmark, over time."""
    before, after = (QUICK_BEFORE, QUICK_AFTER) if quick else (BEFORE, AFTER)
    machine = machine_description(MACHINE)
    rows = []
    for phase, workload in _single_phases(benchmark):
        policy = Scripted(before, before + after)
        result = simulated(
            workload,
            machine,
            ("shadow", "nested", policy),
            seed,
            window=STEP,
            instructions=float(STEP * (before + 2 * after)),
            whole=True,
        )
        for direction, start in (("s2n", before), ("n2s", before + after)):
            curve = excess(result.windows, start, start + after, float(machine["clock_hz"]))
            rows.append(stamped(curve, benchmark=benchmark, phase=phase, direction=direction))
    return {"transitions": pl.concat(rows)}


def excess(windows: pl.DataFrame, start: int, end: int, clock_hz: float) -> pl.DataFrame:
    """Cumulative time of the scripted run beyond the mode it is in, from window `start` on.

    The first row is the switch itself, before anything was lost.
    """
    cycles = windows.pivot("mode", index="window", values="cycles").sort("window")
    mode = windows.filter(mode=Scripted.__name__, window=start)["paging"][0]
    chosen = cycles.filter(pl.col("window").is_between(start, end, closed="left"))
    to_ms = 1e3 / clock_hz
    curve = chosen.select(
        milliseconds=pl.col(Scripted.__name__).cum_sum() * to_ms,
        excess_ms=(pl.col(Scripted.__name__) - pl.col(mode)).cum_sum() * to_ms,
    )
    return pl.concat([pl.DataFrame({"milliseconds": [0.0], "excess_ms": [0.0]}), curve])


def _single_phases(benchmark: str) -> list[tuple[str, Description]]:
    """The benchmark's phases, each as a workload of its own."""
    description = workload_description(benchmark)
    single = {**description, "schedule": [], "repeat": 1}
    return [(phase["name"], {**single, "phase": [phase]}) for phase in description["phase"]]


@dataclass(frozen=True, slots=True)
class Job:
    """A simulation and the figures that need it."""

    name: str
    figures: frozenset[str]
    work: Callable[..., Frames]
    arguments: tuple[object, ...]


def planned(options: StudyOptions) -> list[Job]:
    """The jobs that the options ask for, the long ones first."""
    wanted = options.figure
    return [job for job in _all(options) if wanted is None or wanted in job.figures]


def run(planned_jobs: Sequence[Job], progress: Progress) -> Data:
    """Run the jobs on all CPUs that this process may use."""
    rows: dict[str, list[pl.DataFrame]] = {}
    workers = max(1, min(len(os.sched_getaffinity(0)), len(planned_jobs)))
    with Pool(workers) as pool:
        futures = {pool.submit(job.work, *job.arguments): job for job in planned_jobs}
        for done, future in enumerate(as_completed(futures), 1):
            for name, frame in future.result().items():
                rows.setdefault(name, []).append(frame)
            progress(done, len(futures), futures[future].name)
    return assembled(rows)


def assembled(rows: Mapping[str, Sequence[pl.DataFrame]]) -> Data:
    """One frame per name, in an order that does not depend on which job ended first."""
    frames: dict[str, Any] = {}
    for name, parts in rows.items():
        whole = pl.concat(parts, how="diagonal_relaxed")
        keys = [key for key in _ORDER if key in whole.columns]
        frames[name] = whole.sort(keys, maintain_order=True)
    return Data(**{name: frames[name] for name in frame_names() if name in frames})


_ORDER = (
    "machine",
    "benchmark",
    "page",
    "parameter",
    "setting",
    "exit_factor",
    "tlb_factor",
    "direction",
)


def _all(options: StudyOptions) -> Iterator[Job]:
    seed, quick = options.seed, options.quick
    for name in FOCUS:
        yield Job(f"switches of {name}", _set("6"), transitions, (name, seed, quick))
    for machine in (MACHINE, SECOND_MACHINE):
        figures = (
            _set("4", "5", "7", "8", "9", "10", "11", "12") if machine == MACHINE else _set("10")
        )
        for name in FOCUS:
            yield Job(f"{name} on {machine}", figures, focus, (name, machine, seed))
    for name in SURVEYED:
        yield Job(f"page sizes of {name}", _set("2"), pages, (name, seed))
    for name, page in LOCALITY:
        yield Job(f"locality of {name}", _set("3"), region_counts, (name, page, seed, quick))
    for name in PHASED:
        yield Job(f"DAV2M on {name}", _set("9", "choices"), choices, (name, None, seed))
        for choice in CHOICES:
            title = f"DAV2M on {name}: {choice.parameter} {choice.shown}"
            yield Job(title, _set("9", "choices"), choices, (name, choice, seed))
    yield Job("walks without caches", _set("4"), walks, (seed,))
    yield Job("DAV2M's transitions", _set("7", "8"), arrows, ())
    yield Job("machine presets", _set("9", "10"), machines, ())
    exits = QUICK_EXIT_FACTORS if quick else EXIT_FACTORS
    tlbs = QUICK_TLB_FACTORS if quick else TLB_FACTORS
    for exit_factor in exits:
        for tlb_factor in tlbs:
            for name in FOCUS:
                title = f"{name}, exit x{exit_factor:g}, TLB x{tlb_factor:g}"
                arguments = (name, exit_factor, tlb_factor, seed)
                yield Job(title, _set("sensitivity"), sensitivity, arguments)


def _set(*numbers: str) -> frozenset[str]:
    return frozenset(numbers)
