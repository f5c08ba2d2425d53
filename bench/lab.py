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
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

from interleaved import interval, rounds

from vtax.core import cache as user_cache
from vtax.environments import build, guest_kernel
from vtax.environments.base import allowed_cpus

ROUNDS = 5
TARGETS_S = {
    "lab:guest=builtin,snapshot=off": 20.0,
    "lab:snapshot=off": 20.0,
    "lab:guest=builtin": 3.0,
    "lab": 3.0,
}
"""What issue 5 asks of each spec, on two idle CPUs."""


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


def measure(count: int) -> list[dict[str, object]]:
    """A row for each spec; `snapshot_s` is the time to make the snapshot, None: there is none."""
    made = {spec: first_workload_s(spec) for spec in TARGETS_S if "snapshot=off" not in spec}
    values = rounds(count, [partial(first_workload_s, spec) for spec in TARGETS_S])
    return [
        {"spec": spec, "target_s": target, "snapshot_s": made.get(spec), "values_s": times}
        | {"found_s": interval(times, spec)}
        for (spec, target), times in zip(TARGETS_S.items(), values, strict=True)
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
        rows = measure(options.rounds)
    if options.json:
        print(json.dumps(rows, indent=2, default=asdict))
        return
    print(f"{'to the first workload':32} {'median (95 % interval)':>26} {'target':>7}  snapshot")
    for row in rows:
        made = f"{row['snapshot_s']:.1f} s" if row["snapshot_s"] is not None else "-"
        print(f"{row['spec']:32} {row['found_s'].text('s'):>26} {row['target_s']:5.0f} s  {made}")


if __name__ == "__main__":
    main()
