"""Made-up data in the shape of a simulation, for tests of the paging study; no model ran."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from vtax_studies.dav2m import STUDY, simulate
from vtax_studies.dav2m.data import Data
from vtax_studies.dav2m.setup import (
    CHOICES,
    EXIT_FACTORS,
    FOCUS,
    LOCALITY,
    MACHINE,
    PHASED,
    SECOND_MACHINE,
    SURVEYED,
    TLB_FACTORS,
)
from vtax_studies.driver import made
from vtax_studies.model import Outcome, StudyOptions

WINDOWS = 120
NATIVE = 1.6e11
OVERHEADS = {
    # shadow, nested, DAV2M in percent
    "swim": (5.0, 14.0, 5.2),
    "apsi": (6.0, 6.5, 6.1),
    "zeusmp": (4.0, 12.3, 4.3),
    "gcc": (112.0, 8.0, 7.6),
    "gzip": (32.0, 4.0, 4.3),
    "fma3d": (3.0, 3.4, 3.1),
    "crafty": (2.0, 2.2, 2.1),
}
SWITCHES = {"swim": 0, "apsi": 1, "zeusmp": 0, "gcc": 13, "gzip": 2, "fma3d": 0, "crafty": 1}
KEPT_MODE = {"swim": "shadow", "zeusmp": "shadow", "fma3d": "shadow"}
"""The mode that DAV2M keeps; nested for benchmarks that are not named."""
GAINS = {"mcf": -4.0, "cactusADM": -6.0, "swim": 2.0, "apsi": 5.0, "zeusmp": 6.0}


def modes() -> pl.DataFrame:
    """Totals of both machines."""
    rows = []
    for machine in (MACHINE, SECOND_MACHINE):
        for name in FOCUS:
            shadow, nested, dav2m = OVERHEADS[name]
            found = {"native": 0.0, "shadow": shadow, "nested": nested, "dav2m": dav2m}
            found |= {"naive": max(shadow, nested) + 3, "vtax": dav2m - 0.4, "oracle": dav2m - 0.6}
            for mode, over in found.items():
                switches = {"dav2m": SWITCHES[name], "naive": 100 * SWITCHES[name]}.get(mode, 0)
                rows.append(_totals(machine, name, mode, over, switches))
    return pl.DataFrame(rows, infer_schema_length=None)


def _totals(machine: str, name: str, mode: str, over: float, switches: int) -> dict[str, Any]:
    misses = 2e4 if name in ("fma3d", "crafty") else 3e6
    return {
        "machine": machine,
        "benchmark": name,
        "mode": mode,
        "instructions": 1e9 * WINDOWS,
        "cycles": NATIVE * (1 + over / 100),
        "overhead_percent": over,
        "l2_tlb_misses": misses * WINDOWS,
        "switches": float(switches),
        "relative_error_percent": 0.2,
    }


def windows() -> pl.DataFrame:
    """Windows under both static modes and DAV2M."""
    rows = [
        {**_window(name, mode, at), "machine": machine}
        for machine in (MACHINE, SECOND_MACHINE)
        for name in FOCUS
        for mode in ("shadow", "nested", "dav2m")
        for at in range(WINDOWS)
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def _window(name: str, mode: str, at: int) -> dict[str, Any]:
    paging = _paging(name, mode, at)
    bursting = name in PHASED and at % 30 >= 20
    exits = {"swim": 900.0, "zeusmp": 2e3}.get(name, 8e5 if bursting else 5e3)
    misses = {"zeusmp": 6e3, "swim": 3e6}.get(name, 1e5 * (1.3 + math.sin(at / 4)))
    shadow, nested, _ = OVERHEADS[name]
    over = shadow * (3 if bursting else 0.3) if paging == "shadow" else nested
    cpi = 1.3 * (1 + over / 100)
    return {
        "machine": MACHINE,
        "benchmark": name,
        "mode": mode,
        "window": at,
        "phase": at // 30,
        "instructions": 1e9,
        "cycles": cpi * 1e9,
        "cpi": cpi,
        "smoothed_cpi": cpi,
        "l1_tlb_misses": 3 * misses,
        "l2_tlb_misses": misses,
        "exits_nested_fault": 0.0,
        "exits_shadow_fill": exits if paging == "shadow" else 0.0,
        "exits_policy": 1.0 if mode == "dav2m" else 0.0,
        "exits_other": 500.0,
        "paging": paging,
        "state": {"shadow": "Shadow", "nested": "Nested"}[paging] if mode == "dav2m" else None,
        "threshold_vexit": 1e4 * 2.0 ** (at // 40) if mode == "dav2m" else None,
        "threshold_tmiss": 1e5 * 2.0 ** (at // 30) if mode == "dav2m" else None,
    }


def _paging(name: str, mode: str, at: int) -> str:
    if mode != "dav2m":
        return mode
    if name == "gcc":
        return "shadow" if at % 20 < 3 else "nested"
    return KEPT_MODE.get(name, "shadow" if at == 0 else "nested")


CYCLE = ("PreNested", "Prepaging", "Nested", "PreShadow", "Shadow")


def states() -> pl.DataFrame:
    """DAV2M goes round its diagram, fifteen windows in each state."""
    rows = [
        {"machine": MACHINE, "benchmark": name, "mode": "dav2m", "instructions": 15e9 * at,
         "state": (CYCLE[-1], *CYCLE)[at % 6]}
        for name in FOCUS
        for at in range(6)
    ]  # fmt: skip
    return pl.DataFrame(rows)


def arrows() -> pl.DataFrame:
    """The diagram of the model itself."""
    return simulate.arrows()["arrows"]


def pages() -> pl.DataFrame:
    """Native runs with both page sizes."""
    rows = []
    for name in SURVEYED:
        gain = GAINS.get(name, 13.0)
        small = {"benchmark": name, "page": "4K", "instructions": 1e11, "cycles": 1.5e11}
        large = {**small, "page": "2M", "cycles": 1.5e11 * (1 - gain / 100)}
        rows.append({**small, "l2_tlb_misses": 4e8 if name == "swim" else 5e7})
        rows.append({**large, "l2_tlb_misses": 3e7 if name == "swim" else 4e4})
    return pl.DataFrame(rows, infer_schema_length=None)


def locality() -> pl.DataFrame:
    """Zipf-like regions for mcf and vpr, even ones for the scan, nearly even ones for swim."""
    slopes = {"swim": 0.15, "vpr": 1.6, "mcf": 1.8, "scan": 0.0}
    rows = []
    for name, page in LOCALITY:
        for region in range(50):
            count = round(1e6 / (region + 1) ** slopes[name])
            row = {"benchmark": name, "page": page, "region": region, "references": count}
            rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def transitions() -> pl.DataFrame:
    """Curves that end at 60 ms towards shadow paging on gcc, half of that the other way."""
    rows = []
    for name in FOCUS:
        full = 60.0 if name == "gcc" else 12.0
        for direction, total in (("s2n", full / 2), ("n2s", full)):
            for at in range(40):
                excess = total * (1 - math.exp(-at / 8)) / (1 - math.exp(-39 / 8))
                row = {"benchmark": name, "phase": "first", "direction": direction}
                rows.append({**row, "milliseconds": at * 4.0, "excess_ms": excess})
    return pl.DataFrame(rows, infer_schema_length=None)


def sensitivity() -> pl.DataFrame:
    """More expensive exits favour nested paging, and so do larger TLBs."""
    rows = []
    for exit_factor in EXIT_FACTORS:
        for tlb_factor in TLB_FACTORS:
            for name in FOCUS:
                shadow, nested, _ = OVERHEADS[name]
                found = {"native": 0.0, "shadow": shadow * exit_factor, "nested": nested}
                found["nested"] /= tlb_factor
                found["dav2m"] = min(found["shadow"], found["nested"]) + 0.2 * tlb_factor
                keys = {"benchmark": name, "exit_factor": exit_factor, "tlb_factor": tlb_factor}
                rows += [
                    {**keys, "mode": mode, "cycles": NATIVE * (1 + over / 100), "switches": 1.0}
                    for mode, over in found.items()
                ]
    return pl.DataFrame(rows, infer_schema_length=None)


def choices() -> pl.DataFrame:
    """Every variant of DAV2M on gzip and gcc."""
    rows = []
    for name in PHASED:
        over = OVERHEADS[name][2]
        usual = {"switches": float(SWITCHES[name]), "overhead_percent": over}
        rows.append({"benchmark": name, "parameter": "", "setting": "", **usual})
        for choice in CHOICES:
            changed = {"switches": usual["switches"] + 20, "overhead_percent": over + 1.5}
            keys = {"benchmark": name, "parameter": choice.parameter, "setting": choice.shown}
            rows.append({**keys, **changed})
    return pl.DataFrame(rows, infer_schema_length=None)


def machines() -> pl.DataFrame:
    """Costs of the presets."""
    return pl.DataFrame(
        [
            {
                "machine": name,
                "title": name,
                "clock_hz": 2e9,
                "exit_cycles": 2000.0,
                "policy_cycles": 2000.0,
            }
            for name in (MACHINE, SECOND_MACHINE)
        ]
    )


def walks() -> pl.DataFrame:
    """The four-by-four walk."""
    return pl.DataFrame([{"guest_levels": 4, "host_levels": 4, "references_per_walk": 24.0}])


def data(**replaced: pl.DataFrame) -> Data:
    """All frames, some of them replaced."""
    frames = {
        "modes": modes(),
        "windows": windows(),
        "states": states(),
        "arrows": arrows(),
        "pages": pages(),
        "locality": locality(),
        "transitions": transitions(),
        "sensitivity": sensitivity(),
        "choices": choices(),
        "walks": walks(),
        "machines": machines(),
    }
    return Data(**(frames | replaced))


def outcome() -> Outcome:
    """The study of the made-up data."""
    return made(STUDY, data(), StudyOptions())
