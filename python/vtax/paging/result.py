"""The result of a simulation, as polars frames. Every cycle in it is modelled."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from vtax._native import Outcome

Number = float | None
"""None where there is no such number."""


@dataclass(frozen=True)
class SimulationResult:
    """The result of one simulation: totals, windows, exits and switches of every mode.

    Counts are estimates, and so not whole, where phases were sampled. polars is imported when the
    first frame is asked for.
    """

    workload: str
    """The workload's name."""
    machine: str
    """The machine's name."""
    settings: Mapping[str, Any]
    """How the guest was virtualized, by the names that the model uses."""
    phases: tuple[str, ...]
    """The names of the workload's phases; empty where they only have numbers."""
    outcome: Outcome
    """The compiled model's own result."""

    @property
    def whole(self) -> bool:
        """Whether every reference was followed; otherwise phases were sampled."""
        return self.outcome.whole

    @property
    def cut(self) -> str | None:
        """Where the trace's file was cut, so that the simulation ends there; None: it is whole."""
        return self.outcome.cut

    @cached_property
    def totals(self) -> dict[str, dict[str, Number]]:
        """The row of `modes` for each mode, by the mode's name, without polars."""
        columns = {name: _numbers(data) for name, data in self.outcome.modes().items()}
        return {
            mode: {name: values[index] for name, values in columns.items()}
            for index, mode in enumerate(self.outcome.mode_names)
        }

    @cached_property
    def native(self) -> dict[str, float]:
        """Counts and cycles without virtualization, whether or not `native` is among the modes."""
        return self.outcome.native()

    @cached_property
    def modes(self) -> pl.DataFrame:
        """One row per mode: counts and cycles over the whole run.

        `overhead_percent` is the cycles beyond native in percent of native. `cycles` is the sum of
        `cycles_base` (the workload's own), `cycles_tlb` (hits in the second TLB), `cycles_walks`
        (page walks), `cycles_exits` (leaving the guest, the hypervisor's work, coming back),
        `cycles_guest` (the guest kernel's work), `cycles_switches` (changing the mode) and
        `cycles_refill` (filling shadow tables that a change threw away). `walk_references_*` splits
        the references of page walks by where they were served, `exits_*` the exits by cause;
        `flooded` counts shadow pages thrown away after three writes to their guest tables.
        `relative_error_percent` is half of the 95 % interval of the cycles; null if all was
        followed.
        """
        return _frame({"mode": self.outcome.mode_names}, self.outcome.modes())

    @cached_property
    def windows(self) -> pl.DataFrame:
        """One row per mode and window, with the counts and cycles of that window alone.

        Besides the columns of `modes`: `window` (from 0), `phase`, `cpi`, `smoothed_cpi` (moving
        average over ten windows), `paging` (the mode at the window's end; null natively and under
        agile paging), and for a policy its `state`, `threshold_vexit` (exits) and `threshold_tmiss`
        (TLB misses); null where the policy has none.
        """
        import polars as pl

        first = (pl.col("window").cast(pl.Int64), self._phase())
        return self._per_mode("windows").select(
            "mode", *first, pl.exclude("mode", "window", "phase")
        )

    @cached_property
    def exits(self) -> pl.DataFrame:
        """One row per mode and cause of exits: `mode`, `cause`, `count`."""
        import polars as pl

        causes = self.outcome.exit_causes()
        frames = [
            pl.DataFrame({"cause": causes, "count": self.outcome.exit_counts(index)}).select(
                pl.lit(mode).alias("mode"), "cause", "count"
            )
            for index, mode in enumerate(self.outcome.mode_names)
        ]
        return pl.concat(frames)

    @cached_property
    def switches(self) -> pl.DataFrame:
        """One row per change of the paging mode.

        `mode` (the policy or the oracle), `instructions` (retired before it), `to` ("shadow" or
        "nested") and `cost_cycles` (cost of the change itself, without the refill that follows).
        """
        columns = ("mode", "instructions", "to", "cost_cycles")
        return self._per_mode("switches").select(columns)

    @cached_property
    def states(self) -> pl.DataFrame:
        """The states of each policy: its first one, and a row per change.

        `mode` (the policy), `instructions` (retired before it) and `state` (from then on, as in
        `windows`). A state can end within a window.
        """
        return self._per_mode("states").select("mode", "instructions", "state")

    def _per_mode(self, table: str) -> pl.DataFrame:
        import polars as pl

        frames = []
        for index, mode in enumerate(self.outcome.mode_names):
            columns = getattr(self.outcome, table)(index)
            texts = {name: data for name, data in columns.items() if isinstance(data, list)}
            numbers = {name: data for name, data in columns.items() if name not in texts}
            frame = _frame(texts, numbers)
            frames.append(frame.select(pl.lit(mode).alias("mode"), pl.all()))
        return pl.concat(frames)

    def _phase(self) -> pl.Expr:
        """The phase's name instead of its number, where it has a name."""
        import polars as pl

        number = pl.col("phase").cast(pl.Int64)
        names = dict(enumerate(self.phases))
        text = number.cast(pl.String)
        if names:
            text = number.replace_strict(names, default=text, return_dtype=pl.String)
        return text.alias("phase")


def _numbers(data: bytes) -> list[Number]:
    return [None if math.isnan(value) else value for value in array("d", data)]


def _frame(texts: dict[str, Any], numbers: dict[str, bytes]) -> pl.DataFrame:
    import numpy as np
    import polars as pl

    columns: list[pl.Series] = [pl.Series(name, data, pl.String) for name, data in texts.items()]
    columns += [pl.Series(name, np.frombuffer(data)) for name, data in numbers.items()]
    return pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None))
