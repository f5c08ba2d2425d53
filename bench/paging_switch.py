"""How long `vtax paging switch` pauses a guest, beside a bare reload of the module.

    .venv/bin/python bench/paging_switch.py [--rounds N] [--icount N] [--json]    # about 3 minutes

For each number of CPUs three labs run: one whose guest is idle and switched, one whose guest does
nothing but fault and is switched, and one whose guest was ended, so that its module can be loaded
again by plain rmmod and insmod. Every round does each once in each direction, in shuffled order.
Figures are medians in emulated milliseconds; the first switch and the first reload of a restored
lab run code that the emulator has not translated yet, and are left out. Retries are states that
were saved again because they lacked the error code of a waiting page fault (docs/host.md).

With --icount N each instruction of the emulated host takes 2^N ns, on one CPU: what the emulator
spends on translating code and on walking page tables, and other load of this machine, do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from interleaved import SEED, Interval, interval

from vtax.environments.base import allowed_cpus
from vtax.environments.lab.environment import Lab
from vtax.environments.lab.machine import LabMachine
from vtax.environments.machine_command import MachineCommand

ROUNDS = 10
CPUS = (1, 2)
DIRECTIONS = {"shadow": 0, "nested": 1}
"""The value of npt= for each mode."""
MODULE = "/modules/kvm_amd.ko"
STORM = "/proc/1/exe workload fault-storm --mem 4M --seconds 3000"
PAUSE_TARGET_MS = 1000.0
MULTIPLE_TARGET = 4


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of one direction on one number of CPUs, with the ends of their 95 % intervals."""

    smp: int
    to: str
    guest: str
    """What the guest does."""
    retries: int
    """Retries in all rounds together."""
    retries_ms: float
    """What retries add to the guest's pauses, in all rounds together."""
    pause_ms: Interval
    bare_reload_ms: Interval
    pause_over_bare_reload: float
    """The quotient of the two medians."""
    phases_ms: dict[str, float]
    values: dict[str, list[float]]


@contextmanager
def lab(smp: int, icount: str) -> Iterator[LabMachine]:
    with tempfile.TemporaryDirectory(prefix="vtax-bench-") as work:
        options = {"guest": "builtin", "smp": str(smp), "icount": icount}
        environment = Lab.from_options(options)
        environment.check()
        with LabMachine(environment, Path(work), allowed_cpus()) as machine:
            yield machine


def bare_reload_ms(machine: LabMachine, to: str) -> float:
    """The time of rmmod and insmod by the emulated host's own clock, in ms."""
    script = "read a b </proc/uptime; rmmod kvm_amd; "
    script += f"insmod {MODULE} npt={DIRECTIONS[to]}; read c d </proc/uptime; echo $a $c"
    begin, end = machine.host.shell(script, "load its module again").split()
    # The clock has steps of 10 ms, which the median of many runs partly evens out.
    return (float(end) - float(begin)) * 1e3


def fault(machine: LabMachine) -> None:
    """Let the guest do nothing but fault."""
    argv = ["busybox", "sh", "-c", f"{STORM} >/dev/null 2>&1 </dev/null &"]
    machine.guests[0].run(MachineCommand(argv, {"PATH": "/bin"}, "/run/storm", 60.0, leave=True))


def measure(smp: int, rounds: int, icount: str) -> list[Row]:
    order = random.Random(SEED)
    reports: dict[tuple[str, str], list[dict[str, Any]]] = {}
    reloads: dict[str, list[float]] = {}
    with lab(smp, icount) as idle, lab(smp, icount) as faulting, lab(smp, icount) as empty:
        empty.host.shell("kill -9 $(cat /run/vtax/guests/0/pid); sleep 1", "end its guest")
        fault(faulting)

        def switch(to: str, guest: str, machine: LabMachine) -> None:
            reports.setdefault((to, guest), []).append(machine.host.switch(to))

        def reload(to: str) -> None:
            reloads.setdefault(to, []).append(bare_reload_ms(empty, to))

        contenders: list[Callable[[str], None]] = [
            partial(switch, guest="idle", machine=idle),
            partial(switch, guest="faults", machine=faulting),
            reload,
        ]
        for _ in range(rounds + 1):
            for to in DIRECTIONS:
                for contender in order.sample(contenders, len(contenders)):
                    contender(to)
    return [row(smp, to, guest, each[1:], reloads[to][1:]) for (to, guest), each in reports.items()]


def row(
    smp: int, to: str, guest: str, reports: Sequence[dict[str, Any]], reloads: list[float]
) -> Row:
    guests = [report["guests"][0] for report in reports]
    pauses = [float(each["pause_ms"]) for each in guests]
    phases: dict[str, list[float]] = {}
    for report in reports:
        for phase in report["phases"]:
            phases.setdefault(phase["name"], []).append(phase["ms"])
    pause, bare = interval(pauses, "pause"), interval(reloads, "reload")
    return Row(
        smp,
        to,
        guest,
        sum(each["retries"] for each in guests),
        sum(each["retries_ms"] for each in guests),
        pause,
        bare,
        pause.median / bare.median,
        {name: median(values) for name, values in phases.items()},
        {"pause_ms": pauses, "bare_reload_ms": reloads},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--icount", default="off", metavar="N")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cpus = CPUS if options.icount == "off" else (1,)
    rows = [row for smp in cpus for row in measure(smp, options.rounds, options.icount)]
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    load = os.getloadavg()[0]
    targets = f"{PAUSE_TARGET_MS:.0f} ms and {MULTIPLE_TARGET} bare reloads"
    print(f"load of this machine: {load:.1f}; the pause is to be below {targets}")
    print(f"{'switch':22} {'pause':>24} {'bare reload':>22} {'multiple':>9}  retries")
    for each in rows:
        title = f"smp={each.smp} {each.guest} to {each.to}"
        print(
            f"{title:22} {each.pause_ms.text('ms', 0):>24} {each.bare_reload_ms.text('ms', 0):>22} "
            f"{each.pause_over_bare_reload:9.1f} {each.retries:4} in {each.retries_ms:.0f} ms"
        )
        print("  " + ", ".join(f"{name} {ms:.0f}" for name, ms in each.phases_ms.items()))


if __name__ == "__main__":
    main()
