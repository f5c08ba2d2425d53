"""Time to detect: how long rounds, hyperfine and duets take to see 1 % and 2 % under noise.

    .venv/bin/python bench/detect.py --minutes 18      # apt-get install hyperfine

A program that counts (awk, about 20 ms) is compared with itself and with 1 % and 2 % more to count,
by three procedures, in slices of shuffled order: `vtax compare` (rounds on one CPU), `--duet`, and
hyperfine (all runs of one, then all of the other; Welch's t test on its `--export-json`, as its
script `welch_ttest.py` does). vtax's runs are also looked at by CPU time. Half of the slices have a
neighbour that is busy and idle at random.

A slice is cut into campaigns of n rounds; hyperfine's are the last n runs before a change of the
command and the first n after it. The time to detect is that of the least n of which 80 % saw the
difference, in the right direction. Its interval is a bootstrap's over campaigns. How often the
program differed from itself says whether a procedure may be believed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from interleaved import SEED, VTAX, about, quiet, seconds
from scipy import stats

from vtax.compare.detection import as_run
from vtax.core.formats.folder import load
from vtax.core.statistics.detection import rounds_needed
from vtax.core.statistics.places import placed, without_places
from vtax.core.statistics.rounds import block_means, log_ratio

COUNT = 600_000
PERCENTS = (0, 1, 2)
PROCEDURES = ("rounds", "duet", "hyperfine")
SIZES = (3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 60, 80, 100, 128)
RUNS = 60
"""hyperfine's runs of each command; campaigns of more cannot be looked at."""
LEAST = 8
"""Campaigns of one size; with fewer, nothing is said about it."""
POWER = 0.8
BASE, OTHER = "native:cpus=1", "native:cpus=1,pids=4095"
PROGRAM = 'BEGIN { n = ENVIRON["VTAX_RESULTS"] ~ /pids/ ? b : a; for (i = 0; i < n; i++); }'
NEIGHBOUR = """
import random, time
while True:
    end = time.monotonic() + random.expovariate(1 / 0.5)
    while time.monotonic() < end: pass
    time.sleep(random.expovariate(1 / 0.5))
"""


@dataclass(slots=True)
class Cell:
    """What a procedure saw of one difference by one clock, with or without a neighbour."""

    percent: int
    seen: dict[int, list[bool]] = field(default_factory=dict)
    """By size, whether each campaign saw a difference (of the right sign, if there is one)."""
    round_s: list[float] = field(default_factory=list)
    """Seconds of a pair of runs, everything included but starting the tool."""
    stated: list[float] = field(default_factory=list)
    """Rounds that vtax states to see 1 %, from each slice."""

    def campaign(self, size: int, estimate: float, distance: float) -> None:
        """Keep what a campaign found: a difference, and how far its interval is from 0."""
        right = self.percent == 0 or estimate > 0
        self.seen.setdefault(size, []).append(distance > 0 and right)


def program(percent: int) -> list[str]:
    more = COUNT * (100 + percent) // 100
    return ["awk", "-v", f"a={COUNT}", "-v", f"b={more}", PROGRAM]


@contextmanager
def neighbour(wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR]) as process:
        try:
            yield
        finally:
            process.kill()


Cells = dict[tuple[str, str, bool, int], Cell]
"""By procedure, clock, whether there is a neighbour, and difference in percent."""


def vtax(cells: Cells, name: str, noisy: bool, percent: int, slice_s: float) -> None:
    with tempfile.TemporaryDirectory() as out:
        argv = [*VTAX, "compare", "--baseline", BASE, "--in", OTHER, "--no-control", "--quiet"]
        argv += ["--reps", "10000", "--budget", f"{slice_s:.0f}s", "--out", out]
        argv += ["--duet"] if name == "duet" else []
        quiet([*argv, "--", *program(percent)])
        (folder,) = Path(out).iterdir()
        _, samples = load(folder)
        made = sorted(path.stat().st_mtime for path in folder.glob("raw/*/r*/stdout"))
    for clock in ("wall_s", "cpu_s"):
        own, base = (
            [as_run(each) for each in samples if (each.environment, each.metric) == (label, clock)]
            for label in (OTHER, BASE)
        )
        cell = cells.setdefault((name, clock, noisy, percent), Cell(percent))
        cell.round_s.append((made[-1] - made[0]) / (len(base) - 1))
        for size in SIZES:
            for at in range(0, min(len(own), len(base)) - size + 1, size):
                found = placed(log_ratio, own[at : at + size], base[at : at + size])
                if found is not None:
                    cell.campaign(size, found.value, abs(found.value) - found.half_width())
        level = without_places(own, base) if name == "duet" else own
        differences, _ = block_means(level, base)
        needed = rounds_needed(differences, math.log(1.01), places=name == "duet")
        if needed is not None:
            cell.stated.append(needed.rounds or math.inf)


def hyperfine(cells: Cells, name: str, noisy: bool, percent: int, slice_s: float) -> None:
    cell = cells.setdefault((name, "wall_s", noisy, percent), Cell(percent))
    begin, found = time.monotonic(), []
    with tempfile.TemporaryDirectory() as out:
        while time.monotonic() - begin < slice_s:
            for extra in (0, percent):
                more = COUNT * (100 + extra) // 100
                line = ["awk", "-v", f"a={more}", PROGRAM]
                kept = Path(out, "times.json")
                argv = ["hyperfine", "-N", "--warmup", "1", "--runs", str(RUNS), shlex.join(line)]
                run_s = seconds(partial(quiet, [*argv, "--export-json", str(kept)]))
                found.append(json.loads(kept.read_text())["results"][0]["times"])
                cell.round_s.append(2 * run_s / (RUNS + 1))
    for number, (before, after) in enumerate(itertools.pairwise(found)):
        for size in [each for each in SIZES if each <= RUNS]:
            sides = (before[-size:], after[:size])
            own, base = sides if number % 2 else sides[::-1]
            test = stats.ttest_ind(own, base, equal_var=False)
            cell.campaign(size, float(test.statistic), 0.05 - float(test.pvalue))


def first(seen: Mapping[int, Sequence[bool]]) -> int | None:
    """The least size of which enough campaigns saw the difference; None: no size did."""
    sizes = [size for size, own in sorted(seen.items()) if len(own) >= LEAST]
    return next((size for size in sizes if np.mean(seen[size]) >= POWER), None)


def interval(cell: Cell) -> tuple[float, float]:
    """Sizes that 95 % of resampled campaigns lie between; infinite: no size is enough."""
    source = np.random.default_rng(SEED)
    drawn = []
    for _ in range(400):
        again = {
            size: source.choice(np.asarray(own), len(own)).tolist()
            for size, own in cell.seen.items()
            if len(own) >= LEAST
        }
        drawn.append(first(again) or math.inf)
    drawn.sort()
    return drawn[10], drawn[-11]


def took(cell: Cell) -> str:
    """The time to detect."""
    round_s = float(np.mean(cell.round_s))
    size, ends = first(cell.seen), interval(cell)
    low, high = (f"{end * round_s:.1f}" if math.isfinite(end) else "more" for end in ends)
    if size:
        return f"{size * round_s:.1f} s ({low} to {high}), {size} rounds"
    sizes = {size: own for size, own in cell.seen.items() if len(own) >= LEAST}
    if not sizes:
        return "-"
    most = max(sizes)
    return f"{100 * np.mean(sizes[most]):.0f} % seen in {most * round_s:.1f} s, {most} rounds"


def row(cells: Cells, name: str, clock: str, noisy: bool) -> str:
    none, *others = (cells[name, clock, noisy, percent] for percent in PERCENTS)
    alarms = [hit for size, own in none.seen.items() if size >= 10 for hit in own]
    false = f"{100 * np.mean(alarms):.0f} % of {len(alarms)}" if alarms else "-"
    rounds = float(np.median([each for cell in (none, *others) for each in cell.stated] or [0]))
    stated = "-"
    if rounds:
        round_s = np.mean([each for cell in (none, *others) for each in cell.round_s])
        stated = f"{rounds:.0f} rounds, {rounds * round_s:.0f} s" if rounds < math.inf else "more"
    first_column = f"{name}, {clock}{', a neighbour' if noisy else ''}"
    return f"| {first_column} | {false} | {' | '.join(map(took, others))} | {stated} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=18.0)
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args()
    names = PROCEDURES if shutil.which("hyperfine") else PROCEDURES[:2]
    if len(names) < len(PROCEDURES):
        print("not measured: hyperfine is missing: apt-get install hyperfine", file=sys.stderr)
    kinds = list(itertools.product(names, (False, True), PERCENTS))
    slice_s = max(1.0, 60 * options.minutes / len(kinds) / options.passes - 2)
    source, cells = random.Random(SEED), Cells()
    loads: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(options.passes):
        for name, noisy, percent in source.sample(kinds, len(kinds)):
            with neighbour(noisy):
                procedure = hyperfine if name == "hyperfine" else vtax
                procedure(cells, name, noisy, percent, slice_s)
            loads[noisy].append(os.getloadavg()[0])
    about({"hyperfine": subprocess.getoutput("hyperfine --version")})
    for noisy, found in loads.items():
        said = "with the neighbour" if noisy else "without"
        print(f"load {said}: {min(found):.1f} to {max(found):.1f}")
    print("| procedure, clock | itself differs | to see 1 % | to see 2 % | stated for 1 % |")
    print("| --- | --- | --- | --- | --- |")
    for key in dict.fromkeys(each[:3] for each in cells):
        print(row(cells, *key))


if __name__ == "__main__":
    main()
