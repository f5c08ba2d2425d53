"""A made-up campaign of `vtax place measure`: loads whose elasticity is known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from vtax.place import analysis as place
from vtax.place import hypothesis as place_hypothesis
from vtax.place.analysis import SpeedRun
from vtax.place.record import PlaceEnvironment, PlaceLoad, PlaceRecord

SPEEDS = (100.0, 87.0, 74.0, 61.0, 50.0)
PAPER = {"ab": 86.0, "netperf TCP": 85.0, "netperf UDP": 75.0, "SPEC CPU2006": 58.0}
"""Percent of full performance at half speed: the paper's section 3.1."""


def runs(
    elasticity: float,
    rounds: int = 3,
    noise: float = 0.0,
    seed: int = 1,
    speeds: Sequence[float] = SPEEDS,
    **fields: Any,
) -> list[SpeedRun]:
    """Runs of a load that loses `elasticity` percent for each percent of speed, on a machine that
    drifts."""
    chance = random.Random(seed)
    known: dict[str, Any] = {
        "environment": "uml:net=vde",
        "load": "http",
        "backend": "quota",
        "unit": "requests/s",
        "service_cpu": 0.4,
        "device_percent": 80.0,
    } | fields
    return [
        SpeedRun(
            speed_asked_percent=speed,
            speed_obtained_percent=speed,
            round=number,
            throughput=1000
            * (1 - 0.1 * number)
            * (1 - elasticity * (100 - speed) / 100)
            * chance.gauss(1, noise),
            **known,
        )
        for number in range(rounds)
        for speed in speeds
    ]


def loads(count: int = 14, noise: float = 0.02) -> tuple[PlaceLoad, ...]:
    """Loads in two environments; the more sensitive they are, the less Combined Usage they have."""
    made: list[SpeedRun] = []
    for number in range(count):
        made += runs(
            0.9 - 0.8 * number / count,
            noise=noise,
            seed=number,
            environment=f"environment {number % 2}",
            load=f"load {number // 2}",
            service_cpu=0.2 + 0.7 * number / count,
            device_percent=20.0 + 60.0 * number / count,
            run_delay=0.1 * (number % 3),
        )
    return place.loads(made)


def record() -> PlaceRecord:
    """What such a campaign leaves in `run.json`."""
    found = loads()
    return PlaceRecord(
        vtax_version="0",
        command_line=("vtax", "place", "measure"),
        name="place",
        started_utc="2026-01-01T00:00:00+00:00",
        finished_utc="2026-01-01T00:00:01+00:00",
        state="complete",
        backends=("quota",),
        does_not={"quota": "it stretches no instruction"},
        speeds=SPEEDS,
        seconds=1.0,
        rounds=3,
        seed=1,
        environments=tuple(
            PlaceEnvironment(
                spec=spec,
                description="a machine",
                service=("vde_switch (switch)",),
                machine_cpus=(1,),
                service_cpu=0,
                client_cpu=1,
            )
            for spec in dict.fromkeys(each.environment for each in found)
        ),
        loads=found,
        hypothesis=place_hypothesis.hypothesis(found),
        rivals=place_hypothesis.rivals(found),
        predictor=place_hypothesis.predictor(found),
        findings=place.findings(found),
    )
