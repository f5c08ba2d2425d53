"""How many of Xen's events a second `record-xen` takes in emulation, and how many Xen loses.

    .venv/bin/python bench/xen.py [--rounds N] [--json]    # about 1 minute a round

A tiny paravirtualized domain (tests/support/tiny_domains) makes known numbers of hypercalls,
emulated instructions and updates of page tables, as fast as it can, on a CPU of its own. Its events
are counted over the rows in which it made them. The first number is what was counted a second; with
what Xen lost it is what Xen made. Each round has a machine of its own: Xen's buffers keep their
size until it boots again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests/support")]

from vtax.environments import build  # noqa: E402
from vtax.environments.base import allowed_cpus  # noqa: E402
from vtax.environments.xen.machine import XenMachine  # noqa: E402
from xen_events import DOMU_CPU, Dom0, tiny  # noqa: E402

ROUNDS = 3
COUNT = 200_000
"""How often the domain does each of its three operations."""
TARGET_PER_S = 200_000
"""The target, in events a second."""
COUNTED = ("xen.hypercall", "xen.pv_forced_emulation")


@dataclass(frozen=True, slots=True)
class Round:
    """One run of the tiny domain."""

    buffer: str
    made: int
    counted: int
    lost: int
    counted_per_s: float
    """Over the time in which the domain ran."""
    share_lost: float


def measure(buffer: str) -> Round:
    """Run the domain once, in a machine of its own."""
    with tempfile.TemporaryDirectory(prefix="vtax-bench-") as work:
        folder = Path(work)
        environment = build("xen")
        machine = environment.start(folder, allowed_cpus()[-environment.host_cpus() :])
        assert isinstance(machine, XenMachine)
        with machine:
            dom0 = Dom0(machine)
            dom0.begin("--every", "10ms", "--buffer", buffer)
            dom0.run("pv", tiny("pv", COUNT, folder))
            recorded = dom0.end(folder / "out")
    own = recorded.rows.filter(pl.col("cpu") == DOMU_CPU)
    busy = own.filter(pl.sum_horizontal(*COUNTED) > COUNT / 1000)
    counted = sum(int(busy[name].sum()) for name in COUNTED)
    seconds = int(busy["length_ns"].sum()) / 1e9
    lost = int(recorded.record["lost_records"])
    made = 3 * COUNT
    return Round(buffer, made, counted, lost, counted / seconds, lost / (counted + lost))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    build("xen").check()
    rounds = [measure(buffer) for _ in range(options.rounds) for buffer in ("1M", "8M")]
    if options.json:
        print(json.dumps([asdict(each) for each in rounds], indent=1))
        return
    for buffer in ("1M", "8M"):
        own = [each for each in rounds if each.buffer == buffer]
        rates = ", ".join(f"{each.counted_per_s:,.0f}" for each in own)
        lost = ", ".join(f"{100 * each.share_lost:.1f} %" for each in own)
        middle = statistics.median(each.counted_per_s for each in own)
        verdict = "met" if middle >= TARGET_PER_S else "missed"
        print(f"buffers of {buffer}: {rates} events/s counted; lost {lost}; target {verdict}")


if __name__ == "__main__":
    main()
