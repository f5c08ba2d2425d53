"""Made-up campaigns of the DGEMM driver, as the study of ATLAS reads them."""

from __future__ import annotations

import random
from collections.abc import Mapping

import tune_data
from vtax.memory.analysis import Measured, SizedRun, Used, compared, environment
from vtax.tune import analysis as tune
from vtax_studies.atlas.data import Data, TlbMisses
from vtax_studies.atlas.setup import FULL, NATIVE, PLACES, UML, Place

MIB = 1 << 20
MACHINE = [("Machine", "a made processor, 2 CPUs, 8 GiB"), ("Kernel", "Linux 6"), ("Load", "0.1")]
EDGES = {NATIVE: 3100, UML: 3000}
CODE = {NATIVE: 18 * MIB, UML: None}
LEFT_OUT = "no emulator here"


def run(place: Place, size: int, number: int, edge: int, chance: random.Random) -> SizedRun:
    """A run that, past the edge, swaps and is a third as fast."""
    over = max(0, 24 * (size**2 - edge**2)) if place.megabytes == 256 else 0
    used = Used(
        wall_s=1.0,
        swap_bytes=over,
        swapped_in_bytes=2 * over,
        swapped_out_bytes=2 * over,
        max_rss_bytes=24 * size**2 + MIB - over,
        major_faults=over // 4096,
        minor_faults=6 * size**2 // 1000 + over // 1000,
        dtlb_misses=3 * size**2 // 500 if place.kernel == NATIVE else None,
        itlb_misses=size // 100 if place.kernel == NATIVE else None,
        killed=0,
        total_bytes=(place.megabytes - 20) * MIB,
        others_bytes=3 * MIB,
        kernel={"code": CODE[place.kernel], "data": MIB, "slab": 9 * MIB},
    )
    level = 4000.0 * min(1.0, size / 700) * chance.gauss(1, 0.01) / (3 if over else 1)
    return SizedRun(size, number, "ok", level, used)


def data(edges: Mapping[str, int] = EDGES, runs: int = 5) -> Data:
    """Native and user-mode Linux with both sizes of memory; the emulated kernels are left out."""
    measured = []
    for place in PLACES:
        if place.kernel in edges:
            chance = random.Random(place.spec)
            own = [
                run(place, size, number, edges[place.kernel], chance)
                for number in range(runs)
                for size in FULL.sizes
            ]
            measured.append(
                Measured(
                    place.spec, f"made {place.name}", place.megabytes * MIB,
                    place.kernel != NATIVE, own,
                )
            )  # fmt: skip
    found = {each.spec: environment(each, "Mflop/s", "higher", 1) for each in measured}
    # The first two made-up environments differ only in NB, which makes no difference.
    specs = [place.spec for place in PLACES if place.kernel in edges and place.megabytes == 256]
    own = tune_data.measured(6, specs)
    moved = tune.transfers(own, tune_data.MARGIN)
    return Data(
        {place: found[place.spec] for place in PLACES if place.spec in found},
        compared(measured, "higher"),
        {
            place: tune.environment(each, 1)
            for place in PLACES
            for each in own
            if each.spec == place.spec
        },
        tune.equivalence(own, moved, tune_data.MARGIN),
        modelled={size: TlbMisses(2.5 * size**2, 60 + size / 10) for size in (100, 200, 400, 800)},
        left_out={place.name: LEFT_OUT for place in PLACES if place.is_emulated},
    )
