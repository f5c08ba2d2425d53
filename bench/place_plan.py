"""How long the planner of vtax place takes for a large host, and how far from the optimum it is.

    make bench                      # about two minutes
    .venv/bin/python bench/place_plan.py --rounds 20

Large: 2,000 threads of 250 guests on 256 cores of two classes on four NUMA nodes, half of them
vCPUs that stay. Small: hosts that branch and cut solves to the end, against the heuristic with a
core of a quarter of the options.
"""

from __future__ import annotations

import argparse
import random
import time
from statistics import median

import numpy as np

from vtax.analysis import placement
from vtax.analysis.assignment import Effort
from vtax.analysis.placement import Constraints, CoreClass, PlacementPlan, Thread
from vtax.analysis.power import PowerModel

PROVING_S = 20.0


def threads(count: int, guests: int, nodes: int, vcpus: float, seed: int) -> list[Thread]:
    chance = random.Random(seed)
    made = []
    for number in range(count):
        guest = number % guests
        vcpu = number < vcpus * count
        low = chance.uniform(-0.1, 0.8)
        made.append(
            Thread(
                f"thread {number}", "vcpu" if vcpu else "vhost", f"guest {guest}",
                min(chance.expovariate(12), 1.0), (low, low + chance.uniform(0, 0.2)),
                guest % nodes,
            )
        )  # fmt: skip
    return made


def classes(cores: int, nodes: int) -> list[CoreClass]:
    """Three of four cores are fast; speeds and power are like those of a hybrid processor."""
    fast, slow = PowerModel("a fast core", 20.0, 1.0), PowerModel("a slow core", 5.0, 0.5)
    each = cores // nodes
    return [
        CoreClass("fast", 1.0, dict.fromkeys(range(nodes), each * 3 // 4), fast),
        CoreClass("slow", 0.5, dict.fromkeys(range(nodes), each // 4), slow),
    ]


def large(seed: int) -> tuple[float, PlacementPlan]:
    some = threads(2000, 250, 4, 0.5, seed)
    host = classes(256, 4)
    started = time.perf_counter()
    found = placement.plan(some, host, Constraints())
    return time.perf_counter() - started, found


def small(seed: int) -> float | None:
    """Percent above the optimum; None: the optimum was not proven in time."""
    chance = random.Random(seed)
    count = chance.randrange(60, 220)
    host = classes(max(8, count // 16), 2)
    some = threads(count, chance.randrange(4, 40), 2, 0.0, seed)
    limits = Constraints(loss_percent=20)
    ours = placement.plan(some, host, limits, Effort(options=count // 2, gap=1.0))
    best = placement.plan(some, host, limits, Effort(options=10**6, seconds=PROVING_S))
    if best.method != "exact":
        return None
    return 100 * (ours.dynamic_model_watts / best.dynamic_model_watts - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    imported = time.perf_counter()
    import scipy.optimize  # noqa: F401

    print(f"loading the solver, once: {time.perf_counter() - imported:.2f} s")
    done = [large(seed) for seed in range(options.rounds)]
    times = [seconds for seconds, _ in done]
    gaps = [found.gap_percent for _, found in done if found.gap_percent is not None]
    print(
        f"256 cores, 2,000 threads: {median(times):.2f} s, worst {max(times):.2f} s,"
        f" n={len(times)}, target 1 s"
    )
    print(f"its gap to the bound: {median(gaps):.2f} %, worst {max(gaps):.2f} %")
    known = [above for seed in range(3 * options.rounds) if (above := small(seed)) is not None]
    print(
        f"above the optimum of small hosts: {np.mean(known):.2f} %, worst {max(known):.2f} %,"
        f" n={len(known)} of {3 * options.rounds}, target 2 %"
    )


if __name__ == "__main__":
    main()
