"""Rates of events along the instructions or the time of a run, of several runs on one axis.

A bin of the axis gets from each interval the share of its count that lies in the bin, and the
same share of its length; the rate is the sum of counts over the sum of lengths. So nothing is
lost or counted twice, whatever the intervals' lengths, and an interval in which an event was not
measured gives neither count nor length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vtax.core.errors import MisuseError
from vtax.core.recorder.intervals import Event, Recording, series
from vtax.core.recorder.ways import Axis, By, Per

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Line:
    """One event in the runs of one label; arrays have a value per bin, NaN where not measured."""

    label: str
    event: Event
    values: Floats
    low: Floats
    """Smallest of the single runs' values; equal to `values` with one run."""
    high: Floats
    mean: float
    """The mean over the whole axis; NaN when the event was never measured."""
    coverage: float
    """Share of the recorded length in which the event was measured."""
    runs: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lines over the same bins."""

    axis: Axis
    per: Per
    edges: Floats
    """The edges of the bins, one more than there are bins; instructions or nanoseconds."""
    lines: tuple[Line, ...]

    @property
    def centres(self) -> Floats:
        return np.asarray((self.edges[1:] + self.edges[:-1]) / 2, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums of one run and one event, per bin."""

    counts: Floats
    lengths: Floats

    def rates(self) -> Floats:
        return _ratio(self.counts, self.lengths)


def timeline(
    recordings: Sequence[Recording],
    events: Sequence[Event],
    *,
    per: Per,
    axis: Axis,
    bins: int,
    by: By = By.CPU,
) -> Timeline:
    """A line for each event and label, the runs of a label taken together.

    Raises MisuseError for an axis of instructions when a run counted none.
    """
    spans = [_spans(recording, axis, by) for recording in recordings]
    ends = [float(end.max()) for one in spans for _, _, end in one if end.size]
    if not ends or max(ends) <= 0:
        raise MisuseError("no interval lies on this axis", f"try another --by than {by.value}")
    edges = np.linspace(0.0, max(ends), bins + 1)
    labels = list(dict.fromkeys(recording.label for recording in recordings))
    lines = []
    for event in events:
        for label in labels:
            own = [one for one, run in zip(spans, recordings, strict=True) if run.label == label]
            lines.append(_line(label, event, [_run(one, event, per, edges) for one in own]))
    return Timeline(axis, per, edges, tuple(lines))


def apportioned(start: Floats, end: Floats, values: Floats, edges: Floats) -> Floats:
    """`values` of the intervals [start, end) shared out to bins by overlap.

    The sum over the bins is the sum of the values of intervals within the edges. `values` may have
    several columns. Intervals must not be empty and `edges` evenly spaced from 0.
    """
    bins = edges.size - 1
    width = edges[-1] / bins
    first = np.clip(np.floor(start / width).astype(np.int64), 0, bins - 1)
    last = np.clip(np.ceil(end / width).astype(np.int64) - 1, first, bins - 1)
    pieces = last - first + 1
    row = np.repeat(np.arange(start.size), pieces)
    before = np.cumsum(pieces) - pieces
    bin_ = first[row] + np.arange(row.size) - before[row]
    overlap = np.minimum(end[row], edges[bin_ + 1]) - np.maximum(start[row], edges[bin_])
    share = np.maximum(overlap, 0.0) / (end - start)[row]
    # Correct what rounding of the edges lost or added, so that counts are conserved.
    share /= np.bincount(row, share, start.size)[row]
    table = values.reshape(start.size, -1)
    sums = [np.bincount(bin_, column[row] * share, bins) for column in table.T]
    shaped = np.column_stack(sums).reshape(bins, *values.shape[1:])
    return np.asarray(shaped, dtype=np.float64)


_Span = tuple["pl.DataFrame", Floats, Floats]


def _spans(recording: Recording, axis: Axis, by: By) -> list[_Span]:
    """The rows of each series that have an extent on the axis, with their starts and ends."""
    if axis is Axis.INSTRUCTIONS and not recording.measures(Per.GIGA_INSTRUCTION):
        raise MisuseError(f"{recording.path} counted no instructions", "use --axis time --per s")
    return [_span(rows, axis, _began(recording)) for _, rows in series(recording, by)]


def _began(recording: Recording) -> int:
    frame = recording.frame
    starts = frame["time_ns"].cast(int) - frame["length_ns"].cast(int)
    return int(starts.min())  # type: ignore[arg-type]  # a recording has rows


def _span(rows: pl.DataFrame, axis: Axis, began: int) -> _Span:
    import polars as pl

    if axis is Axis.TIME:
        # Integers first: nanoseconds since boot need more digits than a double has.
        end = (rows["time_ns"].cast(pl.Int64) - began).cast(pl.Float64).to_numpy()
        return rows, end - rows["length_ns"].cast(pl.Float64).to_numpy(), end
    counted = rows.filter(pl.col("length_instructions") > 0)
    end = counted["length_instructions"].cast(pl.Int64).cum_sum().cast(pl.Float64).to_numpy()
    return counted, end - counted["length_instructions"].cast(pl.Float64).to_numpy(), end


def _run(spans: Sequence[_Span], event: Event, per: Per, edges: Floats) -> tuple[_Sums, Floats]:
    """Sums of one run over its series, and the length of all rows, measured or not."""
    bins = edges.size - 1
    counts, lengths, whole = np.zeros(bins), np.zeros(bins), np.zeros(bins)
    weight = event.weight(per)
    for rows, start, end in spans:
        if not rows.height:
            continue
        length = _column(rows, weight) if weight in rows.columns else np.full(rows.height, np.nan)
        value = _column(rows, event.name) if event.name in rows.columns else length * np.nan
        known = np.isfinite(value) & np.isfinite(length) & (length > 0)
        added = value * length if event.is_level else value * 1e9
        table = np.column_stack(
            [np.where(known, added, 0), np.where(known, length, 0), np.nan_to_num(length)]
        )
        shared = apportioned(start, end, table, edges)
        counts, lengths, whole = counts + shared[:, 0], lengths + shared[:, 1], whole + shared[:, 2]
    return _Sums(counts, lengths), whole


def _column(rows: pl.DataFrame, name: str) -> Floats:
    return np.asarray(rows[name].cast(float).fill_null(float("nan")).to_numpy(), dtype=np.float64)


def _line(label: str, event: Event, runs: Sequence[tuple[_Sums, Floats]]) -> Line:
    counts = np.sum([sums.counts for sums, _ in runs], axis=0)
    lengths = np.sum([sums.lengths for sums, _ in runs], axis=0)
    whole = float(np.sum([total for _, total in runs]))
    single = np.stack([sums.rates() for sums, _ in runs])
    empty = np.isnan(single).all(axis=0)
    low = np.where(empty, np.nan, np.where(np.isnan(single), np.inf, single).min(axis=0))
    high = np.where(empty, np.nan, np.where(np.isnan(single), -np.inf, single).max(axis=0))
    mean = float(_ratio(counts.sum(keepdims=True), lengths.sum(keepdims=True))[0])
    coverage = float(lengths.sum()) / whole if whole > 0 else 0.0
    return Line(label, event, _ratio(counts, lengths), low, high, mean, coverage, len(runs))


def _ratio(counts: Floats, lengths: Floats) -> Floats:
    known = lengths > 0
    return np.where(known, counts / np.where(known, lengths, 1.0), np.nan)
