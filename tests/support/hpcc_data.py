"""Made-up runs of the study of HPC Challenge; nothing was measured."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import order_data
from comparison_data import sample
from vtax.audit.order_drift import Observation
from vtax.core.formats.model import Sample
from vtax_studies.driver import made
from vtax_studies.hpcc import STUDY
from vtax_studies.hpcc.data import Data, Place
from vtax_studies.hpcc.setup import (
    BETWEEN,
    CPU,
    HPL,
    HPL_TIME,
    LATENCY,
    NATIVE,
    NESTED,
    RANDOM_ACCESS,
    SHADOW,
    TABLE,
    TCG,
    UML,
    WALL,
)
from vtax_studies.hpcc.updates import PerUpdate
from vtax_studies.model import Outcome, StudyOptions

MACHINE = [("Machine", "made up, 2 CPUs"), ("Kernel", "Linux 6.18.0")]
TABLES = {200: 1 << 15, 400: 1 << 17, 2048: 1 << 22}
SPEEDS = {NATIVE: 1.0, UML: 0.97, TCG: 0.01}
"""Speed of HPL against native."""
RANDOM_SPEEDS = {NATIVE: 1.0, UML: 0.5, TCG: 0.05}
NO_KVM = "no /dev/kvm here"
UPDATES = (
    PerUpdate(NATIVE, "irq.timer", (1e-6, 2e-6, 1.5e-6)),
    PerUpdate(NESTED, "kvm.exits", (0.002, 0.003, 0.002)),
    PerUpdate(SHADOW, "kvm.exits", (0.9, 1.0, 1.1)),
)


def data(drifts: Mapping[str, float] | None = None, *, inverted: float = 0.3) -> Data:
    """`drifts`: drifts of guests, from the first place of a pass to the last.

    `inverted`: the share of runs in guests whose CPU time is above their wall time, by 5 %.
    """
    observations, samples = {}, {size: list[Sample]() for size in TABLES}
    drifts = {NATIVE: 0.0, UML: 0.2, TCG: 0.0} if drifts is None else drifts
    for number, (name, speed) in enumerate(SPEEDS.items()):
        drawn = random.Random(number)
        own = []
        for each in order_data.observations(
            guest=drifts[name], noise=0.004, seed=number, sizes=tuple(TABLES)
        ):
            one = replace(each, values=_values(each, name, speed, drawn, inverted))
            own.append(one)
            samples[each.size] += [
                sample(
                    name, len(own), one.values[metric], metric=metric, better="higher",
                    round=each.round, boot=each.boot, position=len(own),
                )
                for metric in (HPL, RANDOM_ACCESS)
            ]  # fmt: skip
        observations[name] = own
    places = {
        name: Place(f"the spec of {name}", f"a {name}", name != NATIVE, steps_s=2e-6)
        for name in SPEEDS
    }
    return Data(
        places, observations, samples,
        messages=messages(), updates=UPDATES, left_out={"QEMU, KVM": NO_KVM},
    )  # fmt: skip


def messages() -> list[Sample]:
    """Two processes: the guest's messages take ten times as long as native ones, those between two
    guests a thousand times."""
    within = _messages(random.Random(9), {NATIVE: (0.5, 0.02), TCG: (5.0, 0.002)})
    return within + _messages(random.Random(10), {BETWEEN: (500.0, 0.00002)})


def _messages(
    drawn: random.Random, environments: Mapping[str, tuple[float, float]]
) -> list[Sample]:
    return [
        sample(
            name, number, value * drawn.uniform(0.95, 1.05), metric=metric, better=better,
            unit=unit, round=number // 3, boot=0, position=number,
        )
        for number in range(15)
        for name, (latency, rate) in environments.items()
        for metric, value, unit, better in (
            (LATENCY, latency, "us", "lower"), (RANDOM_ACCESS, rate, "GUP/s", "higher"),
        )
    ]  # fmt: skip


def _values(
    each: Observation, name: str, speed: float, drawn: random.Random, inverted: float
) -> dict[str, float]:
    time_s = each.values["wall_s"] / speed
    wall_s = TABLES[each.size] * 1e-7
    # Natively a small table is off by half, in guests by 5 %; a large table is hardly off.
    apart = -0.001 if each.size == max(TABLES) else -0.5 if name == NATIVE else -0.05
    if name != NATIVE and drawn.random() < inverted:
        apart = 0.05
    return {
        HPL_TIME: time_s,
        HPL: 1.0 / time_s,
        RANDOM_ACCESS: RANDOM_SPEEDS[name] * drawn.uniform(0.95, 1.05),
        TABLE: float(TABLES[each.size]),
        WALL: wall_s,
        CPU: wall_s * (1 + apart),
    }


def outcome() -> Outcome:
    return made(STUDY, data(), StudyOptions(), MACHINE)
