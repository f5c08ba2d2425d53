"""What a second core gives a sweep: the same design with one and with two workers, interleaved.

    .venv/bin/python bench/paging_sweep.py
    .venv/bin/python bench/paging_sweep.py --rounds 9 --json

Two times are taken of each sweep. *computing* is from the first point handed over to the last one
saved: what grows with the design. *whole* has the start and end of the processes too, a fixed cost.
The target, 1.9, is for computing. Ratios with the 95 % interval that vtax reports for workloads.
*busy* is the share of the workers' time spent in points; the rest is their start and the way there
and back. Unlike the speedup it means something on a machine that does other work too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from interleaved import ratio, ratio_text, rounds

from vtax.core.page.progress import Progress
from vtax.environments.base import allowed_cpus
from vtax.paging.sweep.design import Design, read_design
from vtax.paging.sweep.run import SweepOptions, sweep
from vtax.paging.sweep.simulate import catalog, evaluate

DESIGN = """
workloads = ["swim"]
machines = ["opteron2350"]
modes = ["native", "shadow", "nested", "dav2m"]
[axes]
costs.exit = { scale = [0.5, 1, 2, 4] }
seed = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
"""
TARGET = 1.9
COUNTS = (1, 2)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one sweep."""

    computing_s: float
    whole_s: float
    busy: float


class Clock(Progress):
    """Records when points begin and end."""

    begun = ended = 0.0

    def begin(self, total: int, done: int = 0, text: str = "") -> None:
        self.begun = time.perf_counter()

    def failed(self, text: str) -> None:
        raise SystemExit(f"a point failed, so nothing was measured: {text}")

    def step(self, text: str) -> None:
        self.ended = time.perf_counter()


def one(design: Design, workers: int) -> Times:
    """Run the design once, in a folder that is removed."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as out:
        begin = time.perf_counter()
        outcome = sweep(design, SweepOptions(Path(out, "sweep"), workers), evaluate, clock)
        whole = time.perf_counter() - begin
    computing = clock.ended - clock.begun
    points_s = sum(finished.wall_s or 0.0 for _, finished in outcome.points)
    return Times(computing, whole, points_s / (computing * workers))


def measure(count: int) -> dict[str, object]:
    """The figures, for `make bench` and for people."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sweep.toml")
        path.write_text(DESIGN)
        design = read_design(path, catalog())
        found = rounds(count, [partial(one, design, workers) for workers in COUNTS])
    figures: dict[str, object] = {"points": design.size, "target": TARGET, "rounds": count}
    for name in ("computing_s", "whole_s"):
        one_s, two_s = ([getattr(times, name) for times in each] for each in found)
        figures[name] = {
            "one": one_s,
            "two": two_s,
            "speedup": ratio(one_s, two_s),
        }
    busy = [statistics.median(times.busy for times in each) for each in found]
    figures["busy"] = dict(zip(COUNTS, busy, strict=True))
    return figures


def text(name: str, figure: dict[str, list[float]]) -> str:
    line = f"{name}: one worker {statistics.median(figure['one']):.3g} s, "
    line += f"two {statistics.median(figure['two']):.3g} s"
    return f"{line}: {ratio_text(figure['speedup'])}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if len(allowed_cpus()) < 2:
        raise SystemExit("not measured: a second core is not there")
    figures = measure(options.rounds)
    if options.json:
        print(json.dumps(figures, indent=1))
        return
    print(f"sweep of {figures['points']} points, {figures['rounds']} rounds")
    for name in ("computing_s", "whole_s"):
        print(text(name, figures[name]))
    print("busy: " + ", ".join(f"{n} workers {busy:.3f}" for n, busy in figures["busy"].items()))
    if found := figures["computing_s"]["speedup"]:
        print(f"target {TARGET}x: {'met' if found[0] >= TARGET else 'MISSED'}")


if __name__ == "__main__":
    main()
