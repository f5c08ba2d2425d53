"""Made-up campaigns of `vtax place measure`, as the study of asymmetric cores reads them.

By default everything is as the paper has it. A `Made` load loses `elasticity` percent for each
percent of speed; its service keeps its CPU time where the core has enough, so that a slow core is
busier.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from vtax.place import analysis as place
from vtax.place.analysis import SpeedRun
from vtax.place.record import PlaceEnvironment, PlaceRecord
from vtax_studies.asymmetric_cores.data import Data, joined
from vtax_studies.asymmetric_cores.setup import (
    DISK,
    QEMU,
    REFERENCES,
    SPECS,
    SPEEDS,
    SPINDLE,
    TAP,
    VDE,
    VDE_FOUR,
    XEN,
    XEN_FOUR,
)

MACHINE = [("Machine", "a made processor, 2 CPUs, 8 GiB"), ("Kernel", "Linux 6"), ("Load", "0.1")]
DESCRIBED = {
    VDE: "user-mode Linux 6.1, 1 CPU, 1 GiB",
    QEMU: "QEMU full-system emulation (TCG), Linux 6.1, 1 CPU, 1 GiB",
    TAP: "user-mode Linux 6.1, 1 CPU, 1 GiB",
    VDE_FOUR: "user-mode Linux 6.1, 4 guests",
    **dict.fromkeys((XEN, XEN_FOUR), "domU (PV) of Xen 4.17, on an emulated machine (QEMU TCG)"),
    **dict.fromkeys((DISK, SPINDLE), "QEMU with KVM, Linux 6.1, 1 CPU, a disk"),
}
SERVICE = {
    **dict.fromkeys((VDE, VDE_FOUR), "vde_switch (switch)"),
    **dict.fromkeys((QEMU, DISK, SPINDLE), "qemu-system-x86 (main-loop)"),
    **dict.fromkeys((XEN, XEN_FOUR), "vif1.0-q0-guest-rx (xen)"),
}
DOES_NOT = {"quota": "slowness below the quota", "hog": "slow instructions"}
UNITS = {"tcp": "bit/s", "tcp-in": "bit/s", "udp": "bit/s"}
REASON = "no QEMU here"


@dataclass(frozen=True)
class Made:
    """A load of a made-up environment."""

    elasticity: float
    cpu: float = 0.5
    """CPU time of the service at full speed, as a share of one core."""
    link: float = 60.0
    """Utilisation of the link at full speed, in percent of the rate."""
    hog: float | None = None
    """Elasticity where a hog slows the service; None: the same."""
    saturated: bool = False
    """Whether the load's client is saturated, at every speed."""
    noise: float = 0.003
    cpu_noise: float = 0.0
    """Noise of the service's CPU time, relative to it."""
    watts: float | None = None
    """The host's power at full speed; half of it goes with the speed."""


PAPER: Mapping[str, Made] = {
    "ab": Made(0.28, 0.91, 60.0),
    "tcp": Made(0.30, 0.79, 70.0),
    "udp": Made(0.50, 0.30, 25.0),
    "dgemm": Made(0.0, 0.01, 0.0),
    "http": Made(0.20, 0.95, 80.0),
    "http10": Made(0.25, 0.93, 70.0),
    "tcp-in": Made(0.35, 0.70, 50.0),
}
ALONE = Made(0.84, 1.0, 0.0)
"""A CPU-bound load with slow vCPUs."""
DISKS = {SPINDLE: Made(0.0, 0.05, 0.0), DISK: Made(0.0, 0.4, 0.0)}
"""What a load of a disk is in each environment."""


def runs(name: str, load: str, made: Made, rounds: int) -> Iterator[SpeedRun]:
    """Each point beside its own control, in the same round."""
    chance, pair = random.Random(f"{name} {load}"), 0
    unsteady = random.Random(f"{name} {load} CPU")
    for _ in range(rounds):
        for backend in DOES_NOT:
            lost = made.hog if backend == "hog" and made.hog is not None else made.elasticity
            for speed in SPEEDS:
                pair += 1
                for asked in (100.0, speed):
                    share = 1.0 - lost * (100.0 - asked) / 100.0
                    yield SpeedRun(
                        environment=SPECS[name],
                        load=load,
                        backend=backend,
                        speed_asked_percent=asked,
                        speed_obtained_percent=asked,
                        round=pair,
                        throughput=1e6 * share * math.exp(chance.gauss(0, made.noise)),
                        unit=UNITS.get(load, "requests/s"),
                        service_cpu=min(made.cpu * share, asked / 100.0)
                        * (1.0 + made.cpu_noise * unsteady.gauss(0, 1)),
                        device_percent=made.link * share if made.link else None,
                        client_saturated=made.saturated,
                        watts=made.watts and made.watts * (50.0 + asked / 2.0) / 100.0,
                    )


def record(name: str, loads: Mapping[str, Made], rounds: int = 5) -> PlaceRecord:
    """The record of one environment, without the hypothesis, which is about all environments."""
    own = [run for load, made in loads.items() for run in runs(name, load, made, rounds)]
    service = SERVICE.get(name)
    if service is None or name in DISKS:
        own = [replace(run, backend="") for run in own if run.is_control]
    return PlaceRecord(
        vtax_version="0",
        command_line=(),
        name="place",
        started_utc="2026-11-23T09:00:00+00:00",
        finished_utc="2026-11-23T10:00:00+00:00",
        state="complete",
        backends=tuple(DOES_NOT),
        does_not=DOES_NOT,
        speeds=(100.0, *SPEEDS),
        seconds=2.0,
        rounds=rounds,
        seed=1,
        environments=(
            PlaceEnvironment(
                spec=SPECS[name],
                description=DESCRIBED[name],
                service=(service,) if service else (),
                machine_cpus=(1,),
                service_cpu=0,
                client_cpu=1,
                absent=None if service else "no slow points: no thread serves it alone",
                notes=("the load's client shares CPU 1 with it",),
            ),
        ),
        loads=place.loads(own),
    )


def data(
    changes: Mapping[str, Made] | None = None,
    *,
    environments: tuple[str, ...] = (VDE, QEMU, TAP),
    alone: Made | None = ALONE,
    disks: Mapping[str, Made] = DISKS,
    without: tuple[str, ...] = (),
    rounds: int = 5,
) -> Data:
    """Everything as in the paper, except for `changes` of loads in all environments."""
    loads = {name: each for name, each in {**PAPER, **(changes or {})}.items()
             if name not in without}  # fmt: skip
    slow_guest = record(QEMU, dict.fromkeys(REFERENCES, alone), rounds) if alone else None
    surveyed = [
        record(name, dict.fromkeys(("disk", "dbench"), made), rounds)
        for name, made in disks.items()
    ]
    return Data(
        joined([record(name, loads, rounds) for name in environments]),
        joined([slow_guest] if slow_guest else []),
        joined(surveyed),
        left_out={name: REASON for name in (VDE, QEMU, TAP) if name not in environments},
    )
