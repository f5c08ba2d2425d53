"""A made-up campaign of `vtax tune`, with seeded noise.

The second environment is as fast as the first, and chose another NB, which makes no difference. The
third is ten times slower, has no AVX, and its parameters lose 20 % elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from vtax.core.statistics.rounds import Run
from vtax.tune.analysis import (
    GENERATED_BY,
    NOT_INSTALLED,
    Candidate,
    Measured,
    Peer,
    environment,
    equivalence,
    transfers,
)
from vtax.tune.record import TuneRecord
from vtax.tune.tuning import (
    CacheEdge,
    Curve,
    CurveEdge,
    CurvePoint,
    EdgePoint,
    Fields,
    Probe,
    Probed,
    Rated,
    Rejected,
    Rival,
    Routine,
    Start,
    Tuned,
)

KIB = 1 << 10
SPECS = ("native", "uml:mem=512M", "qemu:accel=tcg,mem=512M")
SPEEDS = (100.0, 100.0, 10.0)
ROUTINES = ("dgemm_nn", "dgemm_nt", "dgemv_n", "dger")
SIZES = tuple(64 * KIB << power for power in range(8))
MARGIN = 2.0


def fields(number: int) -> Fields:
    """The fields of the winner in the environment with this number."""
    return {
        "VECTOR": ("avx512", "avx512", "sse2")[number],
        "MULADD": int(number < 2),
        "NB": (256, 320, 48)[number],
        "MU": (24, 24, 4)[number],
        "NU": (8, 8, 2)[number],
    }


def probed(number: int, chance: random.Random) -> Probed:
    """Two equal probes, one that differs, and one that the third environment lacks."""
    slow = 10.0 if number == 2 else 1.0

    def around(name: str, value: float, unit: str, atlas: str | None = None) -> Probe:
        middle = value * chance.gauss(1, 0.001)
        return Probe(name=name, unit=unit, atlas=atlas, value=middle, low=middle * 0.998,
                     high=middle * 1.002, claimed=None, runs=20)  # fmt: skip

    wide = around("peak_avx512", 118.0, "GFLOP/s")
    if number == 2:
        wide = Probe(name=wide.name, unit=wide.unit, value=None, reason="there is no AVX-512")
    return Probed(
        seconds=9.5,
        probes=(
            Probe(name="l1_size", atlas="L1 Cache Size", unit="bytes", value=48.0 * KIB,
                  low=48.0 * KIB, high=56.0 * KIB, claimed=(64.0 if number == 2 else 48.0) * KIB,
                  agrees=number != 2, runs=20),
            around("pipeline_cycles", 6.0, "cycles", "FPU: Pipeline cycle"),
            around("peak_scalar", 14.0 / slow, "GFLOP/s", "FPU register-to-register performance"),
            wide,
        ),
        curves=(
            Curve(
                name="latency",
                points=tuple(
                    CurvePoint(bytes=4 * KIB << n, ns=(1.0 if n < 4 else 4.0) * slow)
                    for n in range(12)
                ),
                edges=(CurveEdge(bytes=32.0 * KIB, low=32.0 * KIB, high=64.0 * KIB),),
            ),
        ),
    )  # fmt: skip


def tuned(number: int) -> Tuned:
    """The result of a search."""
    return Tuned(
        size=1000,
        start=Start.model_validate(
            {
                "l1_bytes": 48 * KIB,
                "l2_bytes": (1024, 1280, 2048)[number] * KIB,
                "from": "claimed" if number == 2 else "probes",
            }
        ),
        seconds=58.5,
        complete=number != 1,
        resumed=0,
        routines=tuple(
            Routine(
                routine=name,
                fields=fields(number),
                gflops=SPEEDS[number],
                runs=9,
                trials=120,
                rejected=(Rejected(fields={"NB": 1}, why="its result is wrong"),)
                if name == "dger"
                else (),
                rivals=(Rival(fields={"NB": 200}, gflops=SPEEDS[number] * 0.99),),
            )
            for name in ROUTINES
        ),
        notes=("no huge pages",) if number == 2 else (),
    )


def cache_edge(number: int) -> CacheEdge:
    """Two sizes are equally fast; the first environment chooses the smaller one more often."""

    def rated(gflops: float) -> dict[str, Any]:
        return {"gflops": gflops, "low": gflops * 0.999, "high": gflops * 1.001, "runs": 20}

    speed = SPEEDS[number]
    return CacheEdge(
        size=2500,
        l1_only=Rated(**rated(0.8 * speed)),
        points=tuple(
            EdgePoint(bytes=size, **rated(speed * (0.98 if size in SIZES[3:5] else 0.9)))
            for size in SIZES
        ),
        chosen=(SIZES[3 + (number == 1)],) * 12 + (SIZES[4 - (number == 1)],) * 7 + (None,),
        l2_bytes=1 << 20,
    )


def measured(rounds: int = 6, specs: Sequence[str] = SPECS) -> list[Measured]:
    """All that such a campaign measured."""
    chance = random.Random(1)
    found = []
    for here, spec in enumerate(specs):
        runs: dict[Candidate, dict[str, list[Run]]] = {}
        for other, name in enumerate(specs):
            if here == 2 and other < 2:
                continue  # it has no AVX-512
            lost = 0.8 if other != here and other == 2 else 1.0
            runs[Candidate("winner", name)] = {
                routine: noise(SPEEDS[here] * lost, rounds, chance) for routine in ROUTINES
            }
        for vectors, share in (("scalar", 0.12), ("sse2", 0.24)):
            own = noise(SPEEDS[here] * share, rounds, random.Random(f"{vectors} {spec}"))
            runs[Candidate("peer", f"generated {vectors}")] = {"dgemm_nn": own}
        runs[Candidate("peer", "openblas")] = {"dgemm": noise(SPEEDS[here] * 1.05, rounds, chance)}
        refused = {}
        if here == 2:
            why = "dgemm: this processor has no avx512"
            refused = {Candidate("winner", name): why for name in specs[:2]}
        found.append(
            Measured(
                spec,
                f"a machine called {spec}",
                probed(here, chance),
                tuned(here),
                58.5,
                1000,
                cache_edge(here),
                {
                    "generated scalar": Peer(GENERATED_BY, vectors="scalar"),
                    "generated sse2": Peer(GENERATED_BY, vectors="sse2"),
                    "openblas": Peer("libopenblas.so.0", "OpenBLAS 0.3.21"),
                    "blis": Peer("libblis.so.4", None, NOT_INSTALLED),
                },
                runs,
                refused,
            )
        )
    return found


def noise(level: float, rounds: int, chance: random.Random, relative: float = 0.003) -> list[Run]:
    """One run in each round, with this much noise."""
    return [Run(number, 0, level * chance.gauss(1, relative)) for number in range(rounds)]


def record(specs: Sequence[str] = SPECS, rounds: int = 6) -> TuneRecord:
    """What such a campaign leaves in `run.json`."""
    seen = measured(rounds, specs)
    moved = transfers(seen, MARGIN)
    return TuneRecord(
        vtax_version="0",
        command_line=("vtax", "tune"),
        name="tune",
        started_utc="2026-01-01T00:00:00+00:00",
        finished_utc="2026-01-01T00:10:00+00:00",
        state="complete",
        search="lines",
        use=None,
        precision="d",
        threads=1,
        size=1000,
        budget_s=60.0,
        rounds=rounds,
        margin_percent=MARGIN,
        seed=1,
        environments=tuple(environment(each, 1) for each in seen),
        transfer=moved,
        equivalence=equivalence(seen, moved, MARGIN),
    )
