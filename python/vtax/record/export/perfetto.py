"""A recording as a Perfetto trace: tracks of counters, slices of `mode` and of tasks, per CPU, and
samples of stacks where there are any.

The clock is CLOCK_MONOTONIC, which the recorder's times are in; it is declared as the trace's own,
because hardware events cannot use Perfetto's default (BOOTTIME). The value of a counter is the rate
over the interval, from the interval's start on; where an event was not measured, the value is NaN,
which Perfetto's UI leaves blank, and never the previous value.

Formats: protos/perfetto/trace in the Perfetto repository (trace_packet, track_descriptor,
counter_descriptor, track_event, clock_snapshot).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from vtax.core.formats.files import replacing
from vtax.core.recorder.intervals import Event, Recording, rates, series
from vtax.core.recorder.ways import By, Per
from vtax.record.export import perfetto_samples
from vtax.record.stacks import by_line

if TYPE_CHECKING:
    import polars as pl

MONOTONIC = 3
"""BUILTIN_CLOCK_MONOTONIC (protos/perfetto/common/builtin_clock.proto)."""
SEQUENCE = 1
"""The sequence of all packets; one writer has one sequence."""
_SLICES = ("mode", "comm")
_TITLES = {"mode": "mode at the interval's end", "comm": "task at the interval's end"}


def write_trace(recording: Recording, events: Sequence[Event], per: Per, path: Path) -> int:
    """Write the trace and return its number of packets.

    An existing file is replaced when the trace is whole, and left alone on failure.
    """
    with (
        replacing(path, "choose another file") as unfinished,
        unfinished.open("wb") as file,
    ):
        count = _write(file, recording, events, per)
    return count


def _write(file: IO[bytes], recording: Recording, events: Sequence[Event], per: Per) -> int:
    from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

    builder = StreamingTraceProtoBuilder(file)
    count = 0
    for packet in _packets(recording, events, per):
        builder.write_packet(packet)
        count += 1
    return count


def _packets(recording: Recording, events: Sequence[Event], per: Per) -> Iterator[Any]:
    yield _clock(recording)
    if recording.frame["stack"].count():
        stacks = [stack for stack, _ in by_line(recording.path)]
        yield from perfetto_samples.packets(recording, stacks, _packet)
    numbers = iter(range(1, 1 << 40))
    for name, rows in series(recording, By.CPU):
        parent = next(numbers)
        yield _track(parent, name)
        for column in _SLICES:
            if rows[column].count():
                track = next(numbers)
                yield _track(track, f"{name}: {_TITLES[column]}", parent)
                yield from _slices(rows, column, track)
        table = rates(rows, events, per)
        starts = _starts(rows)
        for event in events:
            if table[event.name].count():
                track = next(numbers)
                yield _counter_track(track, parent, f"{event.name} {name}", event, per)
                yield from _counter(track, starts, rows["time_ns"][-1], table[event.name])


def _packet() -> Any:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

    packet = TracePacket()
    packet.trusted_packet_sequence_id = SEQUENCE
    return packet


def _clock(recording: Recording) -> Any:
    """The first packet: all times are of the monotonic clock, and so is the trace's own."""
    packet = _packet()
    packet.sequence_flags = packet.SEQ_INCREMENTAL_STATE_CLEARED
    packet.trace_packet_defaults.timestamp_clock_id = MONOTONIC
    first = int(recording.frame["time_ns"].min())  # type: ignore[arg-type]  # there are rows
    packet.clock_snapshot.primary_trace_clock = MONOTONIC
    packet.clock_snapshot.clocks.add(clock_id=MONOTONIC, timestamp=first)
    return packet


def _track(uuid: int, name: str, parent: int | None = None) -> Any:
    packet = _packet()
    packet.track_descriptor.uuid = uuid
    packet.track_descriptor.name = name
    if parent is not None:
        packet.track_descriptor.parent_uuid = parent
    return packet


def _counter_track(uuid: int, parent: int, name: str, event: Event, per: Per) -> Any:
    packet = _track(uuid, name, parent)
    unit = event.unit if event.is_level else f"{event.unit or 'count'}/{per.value}"
    packet.track_descriptor.counter.unit_name = unit
    return packet


def _starts(rows: pl.DataFrame) -> list[int]:
    """When each interval began: at the end of the row before, or later after a gap."""
    times, lengths = rows["time_ns"].to_list(), rows["length_ns"].to_list()
    before = [0, *times]
    return [
        max(int(time) - int(length), int(last))
        for time, length, last in zip(times, lengths, before, strict=False)
    ]


def _counter(track: int, starts: Sequence[int], end: int, values: Iterable[Any]) -> Iterator[Any]:
    """The value of each interval at its start; a value is written again only when it changes."""
    shown: float | None = None
    for start, value in zip(starts, values, strict=True):
        number = math.nan if value is None or not math.isfinite(value) else float(value)
        if number == shown or (shown is not None and math.isnan(number) and math.isnan(shown)):
            continue
        shown = number
        yield _value(track, start, number)
    yield _value(track, int(end), math.nan)


def _value(track: int, time: int, value: float) -> Any:
    packet = _packet()
    packet.timestamp = time
    packet.track_event.type = packet.track_event.TYPE_COUNTER
    packet.track_event.track_uuid = track
    packet.track_event.double_counter_value = value
    return packet


def _slices(rows: pl.DataFrame, column: str, track: int) -> Iterator[Any]:
    """Neighbouring intervals with the same text as one slice, as long as no gap parts them."""
    open_text: str | None = None
    open_end = 0
    texts, times = rows[column].to_list(), rows["time_ns"].to_list()
    for text, start, end in zip(texts, _starts(rows), times, strict=True):
        if text == open_text and start == open_end:
            open_end = int(end)
            continue
        if open_text is not None:
            yield _edge(track, open_end, None)
        if text is not None:
            yield _edge(track, start, str(text))
        open_text, open_end = text, int(end)
    if open_text is not None:
        yield _edge(track, open_end, None)


def _edge(track: int, time: int, name: str | None) -> Any:
    """The beginning of a slice of that name, or the end of the open one."""
    packet = _packet()
    packet.timestamp = time
    event = packet.track_event
    event.track_uuid = track
    event.type = event.TYPE_SLICE_END if name is None else event.TYPE_SLICE_BEGIN
    if name is not None:
        event.name = name
    return packet
