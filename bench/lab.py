"""How long the lab takes to its first workload: booted, and restored from its snapshot.

    .venv/bin/python bench/lab.py [--rounds N] [--json]    # about 5 minutes

Every round starts each contender once, in shuffled order; figures are the seconds from asking for
the machine to the end of a first command (`true`) in the nested guest. The snapshots are made
before the first round, and that is reported as well.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from vtax.core import cache as user_cache
from vtax.core.statistics.statistics import median_estimate
from vtax.environments import build, guest_kernel
from vtax.environments.base import allowed_cpus

SEED = 1
ROUNDS = 5
TARGETS_S = {
    "lab:guest=builtin,snapshot=off": 20.0,
    "lab:snapshot=off": 20.0,
    "lab:guest=builtin": 3.0,
    "lab": 3.0,
}
"""What issue 5 asks of each spec, on two idle CPUs."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One contender's times."""

    spec: str
    target_s: float
    snapshot_s: float | None
    """The time to make the snapshot; None where there is none."""
    values_s: tuple[float, ...]

    def row(self) -> dict[str, object]:
        estimate = median_estimate(self.values_s, [0] * len(self.values_s), SEED, log=False)
        half = estimate.half_width() if estimate else None
        median = statistics.median(self.values_s)
        return {
            "spec": self.spec,
            "median_s": median,
            "low_s": None if half is None else median - half,
            "high_s": None if half is None else median + half,
            "target_s": self.target_s,
            "snapshot_s": self.snapshot_s,
            "values_s": list(self.values_s),
        }


def first_workload_s(spec: str) -> float:
    """Seconds from the start to the end of the first command in the nested guest."""
    with tempfile.TemporaryDirectory(prefix="vtax-bench-") as work:
        (Path(work) / "r0").mkdir()
        begin = time.monotonic()
        machine = build(spec).start(Path(work), allowed_cpus())
        try:
            machine.run(["true"], {"PATH": "/bin:/usr/bin"}, "r0", 60.0)
            return time.monotonic() - begin
        finally:
            machine.close()


def measure(rounds: int) -> list[Figure]:
    order = random.Random(SEED)
    made = {spec: first_workload_s(spec) for spec in TARGETS_S if "snapshot=off" not in spec}
    values: dict[str, list[float]] = {spec: [] for spec in TARGETS_S}
    for _ in range(rounds):
        for spec in order.sample(list(TARGETS_S), len(TARGETS_S)):
            values[spec].append(first_workload_s(spec))
    return [
        Figure(spec, target, made.get(spec), tuple(values[spec]))
        for spec, target in TARGETS_S.items()
    ]


def _share_kernels(cache: Path) -> None:
    """Share unpacked kernels, which are not part of the measurement and need not be fetched
    twice."""
    guest_kernel.prepare()
    (cache / "vtax").mkdir(mode=0o700)
    for name in ("kernels", "guests"):
        (cache / "vtax" / name).symlink_to(user_cache.folder(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    # A cache of its own: the user's snapshots are neither changed nor measured.
    with tempfile.TemporaryDirectory(prefix="vtax-bench-cache-") as cache:
        _share_kernels(Path(cache))
        os.environ["XDG_CACHE_HOME"] = cache
        rows = [figure.row() for figure in measure(options.rounds)]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(
        f"{'to the first workload':32} {'median':>8} {'95 % interval':>17} {'target':>7}  snapshot"
    )
    for row in rows:
        low, high = row["low_s"], row["high_s"]
        interval = f"{low:.2f} to {high:.2f} s" if low is not None else "not known"
        made = f"{row['snapshot_s']:.1f} s" if row["snapshot_s"] is not None else "-"
        print(
            f"{row['spec']:32} {row['median_s']:6.2f} s {interval:>17} "
            f"{row['target_s']:5.0f} s  {made}"
        )


if __name__ == "__main__":
    main()
