"""A made-up campaign of `vtax place measure`, with seeded noise.

`http` loses nothing by a quota and a third by a hog, `tcp` slows with its service, and the client
of `udp` is saturated at one speed. The second environment has no service threads.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from vtax.place.analysis import SpeedRun, findings, loads
from vtax.place.hypothesis import hypothesis, rivals
from vtax.place.record import PlaceEnvironment, PlaceRecord

SPECS = ("uml:net=vde", "uml:net=tap")
SPEEDS = (100.0, 87.0, 74.0, 61.0, 50.0)
BACKENDS = ("hog", "quota")
ROUNDS = 3
RATES = {"http": (4800.0, "requests/s"), "tcp": (920e6, "bit/s"), "udp": (480e6, "bit/s")}
CPU = {"http": 0.37, "tcp": 0.71, "udp": 0.64}
LINK = {"http": 31.0, "tcp": 92.0, "udp": 48.0}


def kept(load: str, backend: str, speed: float) -> float:
    """The share of throughput that is left."""
    lost = 1.0 - speed / 100.0
    return 1.0 - lost * {"http": 0.66 if backend == "hog" else 0.0, "tcp": 0.9, "udp": 0.6}[load]


def runs() -> Iterator[SpeedRun]:
    """Each point beside its own control, in the same round."""
    chance = random.Random(1)
    pair = 0
    for _ in range(ROUNDS):
        for load, (rate, unit) in RATES.items():
            for backend in BACKENDS:
                for speed in SPEEDS[1:]:
                    pair += 1
                    for asked in (100.0, speed):
                        share = kept(load, backend, asked)
                        yield SpeedRun(
                            environment=SPECS[0],
                            load=load,
                            backend=backend,
                            speed_asked_percent=asked,
                            round=pair,
                            throughput=rate * share * chance.gauss(1, 0.01),
                            unit=unit,
                            speed_obtained_percent=asked if asked == 100 else asked - 0.6,
                            service_cpu=CPU[load] * min(1.0, asked / 100 + 0.2),
                            run_delay=0.02,
                            device_percent=LINK[load] * share,
                            wakeups_per_s=9000.0,
                            packets_per_s=40_000.0 * share,
                            client_saturated=(load, asked, backend) == ("udp", 87.0, "hog"),
                        )
    for number in range(ROUNDS):
        yield SpeedRun(SPECS[1], "http", "", 100.0, pair + 1 + number, 5900.0, "requests/s",
                       device_percent=40.0, service_cpu=0.0)  # fmt: skip


def record() -> PlaceRecord:
    found = loads(runs())
    return PlaceRecord(
        vtax_version="0.1.0",
        command_line=("vtax", "place", "measure"),
        name="place",
        started_utc="2026-11-23T09:00:00+00:00",
        finished_utc="2026-11-23T09:04:30+00:00",
        state="complete",
        backends=BACKENDS,
        does_not={
            "hog": "it stalls the service whether it has work or not",
            "quota": "it does nothing until the service has used its share of a period",
        },
        speeds=SPEEDS,
        seconds=2.0,
        rounds=ROUNDS,
        seed=1,
        environments=(
            PlaceEnvironment(
                spec=SPECS[0],
                description="user-mode Linux 6.1.176, 1 CPU, 1 GiB",
                service=("vde_switch (switch)",),
                machine_cpus=(1,),
                service_cpu=0,
                client_cpu=1,
                notes=("the load's client shares a CPU with the machine",),
            ),
            PlaceEnvironment(
                spec=SPECS[1],
                description="user-mode Linux 6.1.176, 1 CPU, 1 GiB",
                service=(),
                machine_cpus=(1,),
                service_cpu=0,
                client_cpu=1,
                absent="no thread of its own serves it: no slow points",
            ),
        ),
        loads=found,
        hypothesis=hypothesis(found),
        rivals=rivals(found),
        findings=findings(found),
    )
