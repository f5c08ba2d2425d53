"""Made-up passes over sizes with drifts of a known size."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from vtax.audit.order_drift import Observation, Order

SIZES = (200, 400, 800, 1600)


def observations(
    *,
    rounds: int = 5,
    guest: float = 0.0,
    machine: float = 0.0,
    noise: float = 0.01,
    seed: int = 1,
    sizes: Sequence[int] = SIZES,
) -> list[Observation]:
    """`guest`: how much slower the last place after a boot is than the first; a reboot ends that.

    `machine`: how much slower the machine becomes over each round, whatever is rebooted.
    """
    drawn = random.Random(seed)
    found = []
    for number in range(rounds):
        between = [Order.DESCENDING, Order.RANDOM]
        drawn.shuffle(between)
        passes = [Order.ASCENDING, *between, Order.CONTROL, Order.AGAIN]
        for turn, order in enumerate(passes):
            own = list(sizes)
            if order is Order.DESCENDING:
                own.reverse()
            elif order is Order.RANDOM:
                drawn.shuffle(own)
            for place, size in enumerate(own):
                done = 1.0 if order is Order.AGAIN else place / (len(own) - 1)
                passed = (turn * len(own) + place) / (len(passes) * len(own))
                wall_s = size * 1e-4 * (1 + guest * done)
                wall_s *= math.exp(drawn.gauss(0, noise)) * (1 + machine) ** (number + passed)
                boot = 4 * number + min(turn, 3)
                found.append(Observation(number, boot, order, size, place, {"wall_s": wall_s}))
    return found
