"""Figure 6: scripted switches in a stretch in which every reference is followed."""

from __future__ import annotations

import tomllib
from typing import Any

import polars as pl

from vtax.paging import Policy, Reading, native
from vtax.studies.dav2m import machines as changed
from vtax.studies.dav2m.jobs import Frames, described, simulated, stamped
from vtax.studies.dav2m.setup import MACHINE

STEP = 250_000
"""Instructions of a window."""
BEFORE, AFTER = 60, 160
"""Windows before the first switch, and after each."""
QUICK_BEFORE, QUICK_AFTER = 20, 40


class Scripted(Policy):
    """Shadow paging, then nested paging, then shadow paging again."""

    window_instructions = STEP
    start = "shadow"

    def __init__(self, to_nested: int, to_shadow: int) -> None:
        self.to_nested, self.to_shadow = to_nested, to_shadow
        self.window = 0

    def decide(self, now: Reading, last_window: Reading) -> str:
        """By the number of windows so far."""
        self.window += 1
        return "nested" if self.to_nested <= self.window < self.to_shadow else "shadow"


def transitions(benchmark: str, seed: int, quick: bool) -> Frames:
    """What a switch in each direction costs in each phase of the benchmark, over time."""
    before, after = (QUICK_BEFORE, QUICK_AFTER) if quick else (BEFORE, AFTER)
    machine = described(MACHINE)
    rows = []
    for phase, text in _single_phases(benchmark):
        policy = Scripted(before, before + after)
        result = simulated(
            text,
            machine,
            ("shadow", "nested", policy),
            seed,
            window_instructions=STEP,
            instruction_limit=float(STEP * (before + 2 * after)),
            whole=True,
        )
        for direction, start in (("s2n", before), ("n2s", before + after)):
            curve = excess(result.windows, start, start + after, float(machine["clock_hz"]))
            rows.append(stamped(curve, benchmark=benchmark, phase=phase, direction=direction))
    return {"transitions": pl.concat(rows)}


def excess(windows: pl.DataFrame, start: int, end: int, clock_hz: float) -> pl.DataFrame:
    """Cumulative time of the scripted run beyond the mode it is in, from window `start` on.

    The first row is the switch itself, before anything was lost.
    """
    cycles = windows.pivot("mode", index="window", values="cycles").sort("window")
    mode = windows.filter(mode=Scripted.__name__, window=start)["paging"][0]
    stretch = cycles.filter(pl.col("window").is_between(start, end, closed="left"))
    to_ms = 1e3 / clock_hz
    curve = stretch.select(
        milliseconds=pl.col(Scripted.__name__).cum_sum() * to_ms,
        excess_ms=(pl.col(Scripted.__name__) - pl.col(mode)).cum_sum() * to_ms,
    )
    return pl.concat([pl.DataFrame({"milliseconds": [0.0], "excess_ms": [0.0]}), curve])


def _single_phases(benchmark: str) -> list[tuple[str, str]]:
    """The benchmark's phases, each as a workload of its own."""
    description: dict[str, Any] = tomllib.loads(native.load().workload_description(benchmark))
    return [
        (
            phase["name"],
            changed.to_toml({**description, "schedule": [], "repeat": 1, "phase": [phase]}),
        )
        for phase in description["phase"]
    ]
