"""How long `vtax fleet` takes over many runs, and how much memory: a million samples by default.

    .venv/bin/python bench/fleet.py
    .venv/bin/python bench/fleet.py --runs 1000 --samples 1000

Run folders of as many hosts are made in a temporary folder, with the results that vtax saves in
them. Each command is started afresh: its time has Python's start in it. The targets are for a query
over a million samples, and for memory whatever the number of samples.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import polars
from interleaved import VTAX, about

from vtax.compare.analysis import compare
from vtax.compare.saved import save
from vtax.core.formats.folder import RunFolder
from vtax.core.formats.model import ComparisonRecord, EnvironmentRecord, Sample
from vtax.core.formats.samples import frame

QUERIES = {
    "median by host": "SELECT host, environment, median(value) AS m FROM samples "
    "GROUP BY host, environment ORDER BY m DESC LIMIT 10",
    "join with facts": 'SELECT r."kernel.release", avg(s.value), count(*) FROM samples s JOIN runs '
    "r ON s.run = r.run AND s.environment = r.environment GROUP BY 1",
}
TARGET_S = 2.0
ROUNDS = 8
"""The rounds of a run that is analysed; its table of samples is as large as asked for."""


def record(number: int) -> ComparisonRecord:
    """The record of one host's run."""
    kernel = {"kernel": {"release": "6.12.5"}, "serial": str(number)}
    common: dict[str, Any] = {"description": "made for a benchmark", "facts": kernel}
    native = EnvironmentRecord(
        label="native", spec="native", role="baseline", baseline=None, **common
    )
    guest = EnvironmentRecord(label="uml", spec="uml", role="measured", baseline="native", **common)
    return ComparisonRecord(
        vtax_version="0", command_line=("vtax",), name="bench", workload="command",
        started_utc="2026-11-29T00:00:00+00:00", state="complete", workload_parameters={},
        repetitions=ROUNDS, reboot="never", budget_s=None, margin_percent=2.0, seed=1,
        host=f"host{number}", run_id=f"run {number}", environments=(native, guest),
        order=tuple((label, n) for n in range(ROUNDS) for label in ("native", "uml")),
    )  # fmt: skip


def make(parent: Path, runs: int, each: int) -> None:
    """Run folders with `each` samples each."""
    for number in range(runs):
        own = record(number)
        samples = [
            Sample(label, "command", "wall_s", "s", "lower", 1.0 + number % 7 / 100 + n / 1000,
                   n, 0, position, 1.0, 0.9, 0.0, 1.0, 1, 0, 0, 0, 0, None, n, run_id=own.run_id)
            for position, (label, n) in enumerate(own.order)
        ]  # fmt: skip
        path = parent / f"host{number}" / "run"
        path.mkdir(parents=True)
        RunFolder(path).write_record(own)
        save(compare(own, samples, str(path)), path)
        table = polars.concat([frame(samples)] * (each // len(samples) + 1)).head(each)
        table.with_columns(value=polars.col("value") + polars.int_range(each) / each).write_parquet(
            path / "samples.parquet"
        )


def measured(folder: Path, *words: str) -> tuple[float, float, int]:
    """Seconds of one command, its CPU seconds, and the most memory of it in KiB."""
    begin = time.perf_counter()
    process = subprocess.Popen([*VTAX, "fleet", str(folder), *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - begin
    if status:
        raise SystemExit("vtax fleet failed, so nothing was measured")
    return took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--samples", type=int, default=10_000, help="of each run")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    commands = {f"query: {name}": ("--query", sql) for name, sql in QUERIES.items()}
    about()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, options.runs, options.samples)
        for what, words in {**commands, "table of hosts": ("--json",)}.items():
            found = [measured(folder, *words) for _ in range(options.rounds)]
            seconds = [took for took, _, _ in found]
            most = max(kib for *_, kib in found) / 1024
            span = f"{statistics.median(seconds):.2f} s [{min(seconds):.2f} to {max(seconds):.2f}]"
            cpu = statistics.median(cpu_s for _, cpu_s, _ in found)
            print(f"{options.runs} runs of {options.samples} samples, {what}: {span}, of CPU "
                  f"{cpu:.2f} s, at most {most:.0f} MiB; target {TARGET_S:g} s")  # fmt: skip


if __name__ == "__main__":
    main()
