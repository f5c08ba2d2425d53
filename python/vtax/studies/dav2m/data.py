"""The simulated data that claims and figures are computed from."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import polars as pl

from vtax.studies.rule import Missing


def _none() -> pl.DataFrame:
    return pl.DataFrame()


@dataclass(frozen=True, slots=True)
class Data:
    """One frame per kind of simulation; an empty frame was not simulated.

    All cycles are modelled. Rows of `modes`, `windows`, `exits` and `switches` are those of
    `vtax.paging.simulate` with the columns `machine` and `benchmark` before them.
    """

    modes: pl.DataFrame = field(default_factory=_none)
    windows: pl.DataFrame = field(default_factory=_none)
    exits: pl.DataFrame = field(default_factory=_none)
    switches: pl.DataFrame = field(default_factory=_none)
    pages: pl.DataFrame = field(default_factory=_none)
    """Native runs: benchmark, page, instructions, cycles, l2_tlb_misses."""
    locality: pl.DataFrame = field(default_factory=_none)
    """benchmark, page, region, references."""
    transitions: pl.DataFrame = field(default_factory=_none)
    """benchmark, phase, direction, milliseconds since the switch, excess_ms (cumulative)."""
    sensitivity: pl.DataFrame = field(default_factory=_none)
    """benchmark, exit_factor, tlb_factor, mode, cycles."""
    choices: pl.DataFrame = field(default_factory=_none)
    """benchmark, parameter, setting (empty: all defaults), switches, overhead_percent."""
    walks: pl.DataFrame = field(default_factory=_none)
    """guest_levels, host_levels, references_per_walk without any cache."""

    machines: pl.DataFrame = field(default_factory=_none)
    """machine, title, clock_hz, exit_cycles, policy_cycles: the presets' own values."""

    def frames(self) -> dict[str, pl.DataFrame]:
        """What was simulated, by name."""
        named = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: frame for name, frame in named.items() if not frame.is_empty()}


def need(frame: pl.DataFrame, what: str) -> pl.DataFrame:
    """The frame, or `Missing` when it holds nothing."""
    if frame.is_empty():
        raise Missing(f"not simulated: {what}")
    return frame
