"""Cycles per instruction of each layer: guest user, guest kernel, VMM and host.

There are two ways, depending on what was recorded. Counted: pairs of events `hw.cycles.PART` and
`hw.instructions.PART`, whose counters ran only there (user, kernel, guest, host). Sampled: each
interval is given whole to the layer that ran when it ended (column `mode`); an interval in which
several layers ran blurs them, so the shorter the intervals, the sharper the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from vtax.core.recorder.intervals import CYCLES, INSTRUCTIONS, Recording

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the stack over all runs of a label."""

    label: str
    name: str
    method: Literal["counted", "sampled"]
    intervals: int
    instructions: int
    cycles: int

    @property
    def cpi(self) -> float:
        return self.cycles / self.instructions


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers that were found, or why there are none."""

    layers: tuple[Layer, ...]
    absent: tuple[str, ...]


def cpi_per_layer(recordings: Sequence[Recording]) -> Layers:
    """The layers of each label, in the order given; never a number that was not counted."""
    found: list[Layer] = []
    absent = []
    for label in dict.fromkeys(recording.label for recording in recordings):
        own = [recording for recording in recordings if recording.label == label]
        lacking = [text for recording in own if (text := _lacking(recording))]
        layers = [] if lacking else [*_counted(label, own), *_sampled(label, own)]
        found += layers
        if not layers:
            absent.append(f"{label}: {lacking[0] if lacking else 'no row says in which layer'}")
    return Layers(tuple(found), tuple(absent))


def _lacking(recording: Recording) -> str | None:
    counted = {"instructions": "length_instructions", "cycles": "length_cycles"}
    none = [word for word, name in counted.items() if not recording.frame[name].count()]
    return f"{' and '.join(none)} were not counted" if none else None


def _counted(label: str, recordings: Sequence[Recording]) -> list[Layer]:
    names = [event.name for event in recordings[0].events]
    layers = [name.removeprefix(CYCLES) for name in names if name.startswith(CYCLES)]
    found = []
    for layer in layers:
        pair = (CYCLES + layer, INSTRUCTIONS + layer)
        if all(name in recording.frame.columns for recording in recordings for name in pair):
            sums = [_sums(recording.frame, *pair) for recording in recordings]
            found.append(_layer(label, layer, "counted", sums))
    return [layer for layer in found if layer.instructions > 0]


def _sampled(label: str, recordings: Sequence[Recording]) -> list[Layer]:
    import polars as pl

    names: dict[str, None] = {}
    for recording in recordings:
        names |= dict.fromkeys(recording.frame["mode"].drop_nulls().unique(maintain_order=True))
    found = []
    for name in sorted(names):
        rows = [recording.frame.filter(pl.col("mode") == name) for recording in recordings]
        sums = [_sums(frame, "length_cycles", "length_instructions") for frame in rows]
        found.append(_layer(label, name, "sampled", sums))
    return [layer for layer in found if layer.instructions > 0]


def _sums(frame: pl.DataFrame, cycles: str, instructions: str) -> tuple[int, int, int]:
    """The number of rows that have both, their instructions and their cycles."""
    both = frame.select(cycles, instructions).drop_nulls()
    return both.height, int(both[instructions].sum()), int(both[cycles].sum())


def _layer(
    label: str,
    name: str,
    method: Literal["counted", "sampled"],
    sums: Sequence[tuple[int, int, int]],
) -> Layer:
    rows, instructions, cycles = (sum(column) for column in zip(*sums, strict=True))
    return Layer(label, name, method, rows, instructions, cycles)
