"""Made-up recordings for the tests of analysis: known rates, phases and correlations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

Floats = NDArray[np.float64]
STARTED_NS = 7_000_000_000_000
"""Nanoseconds since boot: a number for which doubles need care."""
EVENTS = (
    ("hw.instructions", "count"),
    ("hw.cycles", "count"),
    ("hw.branch_misses", "count"),
    ("hw.dtlb_load_misses", "count"),
    ("kvm.exits", "count"),
    ("kvm.exit.npf", "count"),
    ("sched.switches", "count"),
    ("steal.time", "ns"),
)


def ar1(random: np.random.Generator, n: int, rhos: Floats) -> Floats:
    """n x k independent first-order processes of variance 1, each with its own rho."""
    from scipy.signal import lfilter

    warm_up = 500
    noise = random.normal(size=(n + warm_up, rhos.size)) * np.sqrt(1.0 - rhos**2)
    columns = [lfilter([1.0], [1.0, -rho], noise[:, i]) for i, rho in enumerate(rhos)]
    return np.column_stack(columns)[warm_up:]


def rows(
    seed: int, *, n: int = 300, cpus: int = 2, virtual: bool = True, pmu: bool = True
) -> pl.DataFrame:
    """Rows of about 1 million instructions; from the middle on, exits come three times as often.

    dTLB misses follow the exits where the machine is virtual. Branch misses follow the switches
    where it is not virtual, and nothing where it is.
    """
    random = np.random.default_rng(seed)
    frames = [_cpu(random, cpu, n, virtual, pmu) for cpu in range(cpus)]
    return pl.concat(frames)


def _cpu(random: np.random.Generator, cpu: int, n: int, virtual: bool, pmu: bool) -> pl.DataFrame:
    instructions = 1_000_000 + random.integers(0, 2_000, n)
    busy = np.where(np.arange(n) < n // 2, 20.0, 60.0)
    npf = random.poisson(busy) if virtual else np.zeros(n, dtype=np.int64)
    exits = npf + (random.poisson(10.0, n) if virtual else 0)
    misses = 3_000 + (40 * npf if virtual else 0) + random.normal(0, 200, n)
    switches = random.poisson(2.0, n)
    branches = random.poisson(500, n) + (0 if virtual else 25 * switches)
    cycles = (instructions * (0.8 + 0.0001 * misses)).astype(np.int64)
    lengths = (cycles / 2.5).astype(np.int64)
    modes = random.choice(["guest user", "guest kernel", "vmm kernel"], n, p=[0.7, 0.2, 0.1])
    table: dict[str, Any] = {
        "seq": np.arange(n),
        "interval": np.arange(n),
        "time_ns": STARTED_NS + np.cumsum(lengths),
        "tsc": np.cumsum(cycles),
        "cpu": np.full(n, cpu),
        "pid": np.full(n, 4000 + cpu),
        "tid": np.full(n, 4001 + cpu),
        "comm": ["CPU 0/KVM" if virtual else "milc"] * n,
        "vm": np.full(n, 4000 if virtual else 0),
        "vcpu": np.full(n, cpu if virtual else -1),
        "mode": modes if virtual else ["host user"] * n,
        "length_ns": lengths,
        "length_instructions": instructions if pmu else None,
        "length_cycles": cycles if pmu else None,
        "time_enabled": np.cumsum(lengths),
        "time_running": np.cumsum(lengths),
        "lost": np.zeros(n, dtype=np.int64),
        "hw.instructions": instructions if pmu else None,
        "hw.cycles": cycles if pmu else None,
        "hw.branch_misses": branches if pmu else None,
        "hw.dtlb_load_misses": misses.astype(np.int64) if pmu else None,
        "kvm.exits": exits,
        "kvm.exit.npf": npf,
        "sched.switches": switches,
        "steal.time": np.zeros(n, dtype=np.int64),
    }
    absent = [name for name, values in table.items() if values is None]
    frame = pl.DataFrame({name: v for name, v in table.items() if v is not None})
    unsigned = pl.selectors.integer() - pl.selectors.by_name("vcpu")
    frame = frame.with_columns(unsigned.cast(pl.UInt64))
    return frame.with_columns(pl.lit(None, dtype=pl.Int64).alias(name) for name in absent).select(
        list(table)
    )


def write(folder: Path, frame: pl.DataFrame, *, stream: bool = False) -> Path:
    """A run folder as the recorder leaves it; with `stream`, as it is while it records."""
    folder.mkdir(parents=True)
    described = [
        {
            "name": name,
            "unit": unit,
            "about": name,
            "source": "perf" if name.startswith("hw.") else "tracepoint",
            "kind": "delta",
            "coverage": 1.0,
        }
        for name, unit in EVENTS
        if name in frame.columns
    ]
    (folder / "events.json").write_text(json.dumps({"columns": described}))
    if not stream:
        record = {"format": 1, "reference": "instructions", "warnings": []}
        (folder / "record.json").write_text(json.dumps(record))
    if stream:
        frame.write_ipc_stream(folder / "intervals.arrows")
    else:
        frame.write_parquet(folder / "intervals.parquet")
    return folder


def campaign(parent: Path) -> dict[str, list[Path]]:
    """Two native and two virtual runs."""
    return {
        "lab": [write(parent / f"lab-{i}", rows(i)) for i in (1, 2)],
        "native": [write(parent / f"native-{i}", rows(10 + i, virtual=False)) for i in (1, 2)],
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("runs")
    campaign(parent)
    return parent
