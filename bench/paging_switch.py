"""How long `vtax paging switch` pauses a guest, beside a bare reload of the module.

    .venv/bin/python bench/paging_switch.py [--rounds N] [--json]    # about 2 minutes

For each number of CPUs two labs run: one whose guest is switched, one whose guest was ended, so
that its module can be loaded again by plain rmmod and insmod. Every round does both once in each
direction, in shuffled order. Figures are medians in emulated milliseconds; the first switch and
the first reload of a restored lab run code that the emulator has not translated yet, and are
left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vtax.analysis.statistics import median_estimate
from vtax.environments.base import allowed_cpus
from vtax.environments.lab.environment import Lab
from vtax.environments.lab.machine import LabMachine

SEED = 1
ROUNDS = 10
CPUS = (1, 2)
DIRECTIONS = {"shadow": 0, "nested": 1}
"""Mode to the value of npt=."""
MODULE = "/modules/kvm_amd.ko"
PAUSE_TARGET_MS = 1000.0
MULTIPLE_TARGET = 4


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of one direction on one number of CPUs, with the ends of their 95 % intervals."""

    smp: int
    to: str
    pause_ms: tuple[float, float, float]
    """Median, low, high."""
    bare_reload_ms: tuple[float, float, float]
    pause_over_bare_reload: float
    """The two medians' quotient."""
    phases_ms: dict[str, float]
    values: dict[str, list[float]]


@contextmanager
def lab(smp: int) -> Iterator[LabMachine]:
    with tempfile.TemporaryDirectory(prefix="vtax-bench-") as work:
        environment = Lab.from_options({"guest": "builtin", "smp": str(smp)})
        environment.check()
        with LabMachine(environment, Path(work), allowed_cpus()) as machine:
            yield machine


def bare_reload_ms(machine: LabMachine, to: str) -> float:
    """The time of rmmod and insmod as the emulated host's own clock has it, in ms."""
    script = "read a b </proc/uptime; rmmod kvm_amd; "
    script += f"insmod {MODULE} npt={DIRECTIONS[to]}; read c d </proc/uptime; echo $a $c"
    begin, end = machine.host.shell(script, "load its module again").split()
    # The clock has steps of 10 ms, which a median of many evens out to some of them.
    return (float(end) - float(begin)) * 1e3


def measure(smp: int, rounds: int) -> list[Row]:
    order = random.Random(SEED)
    reports: dict[str, list[dict[str, Any]]] = {to: [] for to in DIRECTIONS}
    reloads: dict[str, list[float]] = {to: [] for to in DIRECTIONS}
    with lab(smp) as guest, lab(smp) as idle:
        idle.host.shell("kill -9 $(cat /run/vtax/guests/0/pid); sleep 1", "end its guest")

        def switch(to: str) -> None:
            reports[to].append(guest.host.switch(to))

        def reload(to: str) -> None:
            reloads[to].append(bare_reload_ms(idle, to))

        for _ in range(rounds + 1):
            for to in DIRECTIONS:
                for contender in order.sample([switch, reload], 2):
                    contender(to)
    return [row(smp, to, reports[to][1:], reloads[to][1:]) for to in DIRECTIONS]


def row(smp: int, to: str, reports: Sequence[dict[str, Any]], reloads: list[float]) -> Row:
    pauses = [float(report["guests"][0]["pause_ms"]) for report in reports]
    phases: dict[str, list[float]] = {}
    for report in reports:
        for phase in report["phases"]:
            phases.setdefault(phase["name"], []).append(phase["ms"])
    pause, bare = interval(pauses), interval(reloads)
    return Row(
        smp,
        to,
        pause,
        bare,
        pause[0] / bare[0],
        {name: interval(values)[0] for name, values in phases.items()},
        {"pause_ms": pauses, "bare_reload_ms": reloads},
    )


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median and the ends of its bootstrap interval."""
    estimate = median_estimate(values, [0] * len(values), SEED, log=False)
    if estimate is None:
        raise SystemExit("too few rounds for an interval: use --rounds 5 or more")
    half = estimate.half_width()
    return estimate.value, estimate.value - half, estimate.value + half


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [row for smp in CPUS for row in measure(smp, options.rounds)]
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    load = os.getloadavg()[0]
    targets = f"{PAUSE_TARGET_MS:.0f} ms and {MULTIPLE_TARGET} bare reloads"
    print(f"load of this machine: {load:.1f}; the pause is to be below {targets}")
    print(f"{'switch':22} {'pause':>24} {'bare reload':>22} {'multiple':>9}")
    for each in rows:
        title = f"smp={each.smp} to {each.to}"
        print(
            f"{title:22} {shown(each.pause_ms):>24} {shown(each.bare_reload_ms):>22} "
            f"{each.pause_over_bare_reload:9.1f}"
        )
        print("  " + ", ".join(f"{name} {ms:.0f}" for name, ms in each.phases_ms.items()))


def shown(values: tuple[float, float, float]) -> str:
    median, low, high = values
    return f"{median:.0f} ms ({low:.0f} to {high:.0f})"


if __name__ == "__main__":
    main()
