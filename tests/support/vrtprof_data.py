"""Made-up recordings as VrtProf's study makes them, and real ones of an emulated machine.

`vrtprof-arm64` was recorded by the study in QEMU's emulated arm64 machine: the finest rows of two
workloads, and what recording cost all six in three repetitions. Nothing else here was measured.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import recording_data
from vtax.core.recorder.intervals import load
from vtax_studies.driver import made
from vtax_studies.model import Outcome, StudyOptions
from vtax_studies.vrtprof import STUDY
from vtax_studies.vrtprof.data import Data
from vtax_studies.vrtprof.setup import (
    DOMUS,
    EMULATED,
    GUESTS,
    HARDWARE,
    NATIVE,
    SETTINGS,
    UML,
    WORKLOADS,
)

RECORDED = Path(__file__).resolve().parents[1] / "data" / "vrtprof-arm64"

NO_PMU = "this machine has no such counter (no PMU?)"
OVERHEADS = {"20ms": 0.4, "1ms": 1.0, "100us": 4.0}
MACHINE = [("Machine", "made up, 2 CPUs"), ("Kernel", "Linux 6.18.0")]


def rows(seed: int, guests: int | None) -> pl.DataFrame:
    """Rows without hardware counters; the more guests there are, the fewer exits each has."""
    frame = recording_data.rows(seed, n=200, cpus=1, virtual=guests is not None, pmu=False)
    random = np.random.default_rng(seed)
    # From the middle on, there are three times as many, as with exits.
    busy = np.where(np.arange(frame.height) < frame.height // 2, 4.0, 12.0)
    faults = pl.Series("faults.user", random.poisson(busy).astype(np.uint64))
    frame = frame.with_columns(faults)
    if guests is None:
        return frame
    exits = (frame["kvm.exits"].cast(int) // guests).cast(pl.UInt64)
    switches = (exits // 4 + random.poisson(2.0, frame.height)).cast(pl.UInt64)
    return frame.with_columns(exits.alias("kvm.exits"), switches.alias("sched.switches"))


def xen_rows(seed: int, domus: int) -> pl.DataFrame:
    """Rows of Xen's own records, of the same exits; interrupts are apart from them."""
    frame = rows(seed, domus)
    interrupts = np.random.default_rng(seed).poisson(3.0, frame.height).astype(np.uint64)
    own = {"kvm.exits": "xen.vmexit", "sched.switches": "xen.runstate_change"}
    frame = frame.rename(own).drop("kvm.exit.npf", "steal.time", "faults.user")
    return frame.with_columns(pl.Series("xen.interrupt", interrupts))


def overheads() -> pl.DataFrame:
    """Runs of about a second; each setting costs what OVERHEADS says, plus or minus a little."""
    random = np.random.default_rng(3)
    found: list[dict[str, Any]] = []
    for work in WORKLOADS:
        for repetition in range(5):
            for setting in ("", *(each.every for each in SETTINGS)):
                factor = 1 + OVERHEADS.get(setting, 0.0) / 100
                cpu = factor * (1 + random.normal(0, 5e-4))
                row = {"workload": work.name, "setting": setting, "repetition": repetition}
                found.append({**row, "rows": 1000, "lost": 0, "cpu_s": cpu, "wall_s": 1.01 * cpu})
    return pl.DataFrame(found)


def data(parent: Path) -> Data:
    """Two runs of two workloads in every environment; only the emulated one has a PMU."""
    places: list[tuple[str, int | None]] = [(NATIVE, None), (UML, None)]
    places += [(name, number) for number, name in GUESTS.items()]
    places += [(name, number) for number, name in DOMUS.items()]
    recordings = {}
    for at, (name, guests) in enumerate(places):
        in_xen = guests is not None and name in DOMUS.values()
        make = partial(xen_rows, domus=guests) if in_xen else partial(rows, guests=guests)
        recordings[name] = {
            work: [
                load(
                    recording_data.write(
                        parent / f"{at}-{work}-{run}", make(100 * at + 10 * run + place)
                    ),
                    name,
                )
                for run in range(2)
            ]
            for place, work in enumerate(("compiler-like", "gups"))
        }
    recordings[EMULATED] = {
        work: [load(RECORDED / work, EMULATED)] for work in ("compiler-like", "gups")
    }
    names = ("hw.cycles", "hw.cycles.kernel", "hw.cache_misses", *HARDWARE)
    absent = dict.fromkeys(names, NO_PMU)
    return Data(recordings, absent, overheads(), emulated_overheads())


def emulated_overheads() -> pl.DataFrame:
    """The overheads that were measured."""
    table = pl.read_csv(RECORDED / "overheads.csv")
    return table.with_columns(pl.col("setting").fill_null(""))


def outcome(parent: Path) -> Outcome:
    return made(STUDY, data(parent), StudyOptions(), MACHINE)
