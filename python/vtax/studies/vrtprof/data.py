"""What the study measured, as claims and figures take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from vtax.analysis.intervals import Recording
from vtax.studies.rule import Missing
from vtax.studies.vrtprof.setup import NATIVE


def _none() -> pl.DataFrame:
    return pl.DataFrame()


def has(recording: Recording, name: str) -> bool:
    """Whether any row has a value of the event."""
    frame = recording.frame
    return name in frame.columns and frame[name].count() > 0


@dataclass(frozen=True, slots=True)
class Data:
    """Recordings by environment and workload, and the runs of table IV.

    `overheads`: workload, setting (empty: not recorded), repetition, cpu_s, wall_s, rows, lost.
    """

    recordings: Mapping[str, Mapping[str, Sequence[Recording]]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    """Events that this machine does not have, and why."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Environments that did not come up, and why."""
    overheads: pl.DataFrame = field(default_factory=_none)

    def of(self, environment: str) -> list[Recording]:
        """All recordings of an environment; raises Missing when there is none."""
        found = [one for each in self.recordings.get(environment, {}).values() for one in each]
        if not found:
            reason = self.left_out.get(environment, "not recorded")
            raise Missing(f"{environment}: {reason}")
        return found

    def guests(self) -> list[str]:
        """Recorded environments with nested guests, fewest guests first."""
        return [name for name in self.recordings if name.endswith(("guest", "guests"))]

    def native(self) -> list[Recording]:
        return self.of(NATIVE)

    def labelled(self, workload: str, environments: Sequence[str]) -> list[Recording]:
        """Recordings of one workload; the label of each is its environment."""
        found = [
            one for name in environments for one in self.recordings.get(name, {}).get(workload, ())
        ]
        if not found:
            raise Missing(f"{workload} was not recorded")
        return found

    def measured(self, recordings: Sequence[Recording], names: Sequence[str]) -> list[str]:
        """Those of the names that any row of a recording has a value of."""
        return [name for name in names if any(has(one, name) for one in recordings)]

    def why_absent(self, name: str) -> str:
        return self.absent.get(name, "not recorded")
