"""Short commands: what vtax adds to the time of `true`, and around it, beside hyperfine.

    make bench                      # about half a minute
    .venv/bin/python bench/short_commands.py --rounds 20 --json

Both run the same program in turn. Inside is the median that the tool itself reports; around is what
the tool's whole command takes beyond the sum of the times that it reports, per run. The latter has
a part that comes once (start, analysis, report): with few runs and with many it is told apart.

After a pause a command takes longer, whoever runs it: caches and the processor have cooled down. So
there is hyperfine once more, with a pause before each run as vtax has one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import check_output

import polars as pl
from interleaved import VTAX, about, quiet, ratio, ratio_text, rounds, seconds, versions

RUNS = 200
FEW = 2


@dataclass(frozen=True, slots=True)
class Batch:
    """One command of a tool with many runs, and one with few."""

    median_s: float
    around_s: float
    """Time around the command per run, including the part that comes once."""
    more_s: float
    """Time around the command for each further run."""


Tool = Callable[[int, Path], list[float]]


def hyperfine(runs: int, folder: Path, *more: str) -> list[float]:
    out = folder / "hyperfine.json"
    quiet(["hyperfine", "-N", *more, "--runs", str(runs), "--export-json", str(out), program()])
    return list(json.loads(out.read_text())["results"][0]["times"])


def pausing(runs: int, folder: Path) -> list[float]:
    return hyperfine(runs, folder, "--prepare", "sleep 0.001")


def vtax(runs: int, folder: Path) -> list[float]:
    argv = [*VTAX, "compare", "--in", "native", "--baseline", "none", "--no-control"]
    argv += ["--no-warm-up", "--quiet", "--reps", str(runs), "--out", str(folder)]
    quiet([*argv, "--", "command", program()])
    (samples,) = folder.glob("*/samples.parquet")
    return pl.read_parquet(samples).unique("position")["wall_s"].to_list()


def program() -> str:
    """The program with its path, so that looking it up is not compared."""
    return shutil.which("true") or "/bin/true"


def batch(tool: Tool) -> Batch:
    around, times = {}, {}
    for runs in (FEW, RUNS):
        with tempfile.TemporaryDirectory() as folder:
            whole = seconds(lambda: times.update({runs: tool(runs, Path(folder))}))  # noqa: B023
        around[runs] = whole - sum(times[runs])
    more = (around[RUNS] - around[FEW]) / (RUNS - FEW)
    return Batch(statistics.median(times[RUNS]), around[RUNS] / RUNS, more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not shutil.which("hyperfine"):
        print("not measured: hyperfine is missing: apt-get install hyperfine", file=sys.stderr)
        return
    tools: list[Tool] = [hyperfine, pausing, vtax]
    theirs, paused, ours = rounds(options.rounds, [partial(batch, tool) for tool in tools])
    version = {"hyperfine": check_output(["hyperfine", "--version"], text=True).strip()}
    figures = {
        "inside, median": (theirs, "median_s", "time of true"),
        "inside, median, after a pause": (paused, "median_s", "time of true"),
        "around": (theirs, "around_s", f"beyond it, per run of {RUNS}"),
        "each further run": (theirs, "more_s", "beyond it, without what comes once"),
    }
    rows = []
    for name, (others, field, meaning) in figures.items():
        own = [getattr(each, field) for each in ours]
        base = [getattr(each, field) for each in others]
        rows.append(
            {"name": name, "meaning": meaning, "vtax_s": own, "hyperfine_s": base}
            | {"ratio": ratio(own, base)}
        )
    if options.json:
        print(
            json.dumps({"versions": versions() | version, "runs": RUNS, "figures": rows}, indent=1)
        )
        return
    about(version)
    for row in rows:
        own, base = (1e3 * statistics.median(row[side]) for side in ("vtax_s", "hyperfine_s"))
        print(f"{row['name']} ({row['meaning']}): vtax {own:.3f} ms, hyperfine {base:.3f} ms; "
              f"{ratio_text(row['ratio'])} (n={options.rounds})")  # fmt: skip


if __name__ == "__main__":
    main()
