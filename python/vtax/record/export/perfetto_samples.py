"""The stacks that a recording's rows interrupt, as samples of a Perfetto trace.

Each row is a sample at its end. Perfetto's UI draws a flame graph of the samples of any stretch of
time. What is interned is written once, before the first sample.

Formats: protos/perfetto/trace/profiling in the Perfetto repository (profile_packet: PerfSample;
profile_common: Mapping, Frame, Callstack).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from vtax.core.recorder.intervals import Recording
from vtax.record.stacks import Stack

MODES = {
    "host kernel": 1,
    "vmm kernel": 1,
    "host user": 2,
    "vmm user": 2,
    "guest kernel": 4,
    "guest user": 5,
}
"""Profiling.CpuMode by the mode of a row; of a bare `guest` the level is not known."""
FRAMES_AT = 2
"""A stack begins with its mode and its program, which are no frames."""


def packets(
    recording: Recording, stacks: Sequence[Stack], packet: Callable[[], Any]
) -> Iterator[Any]:
    """The names of processes, what is interned, and a sample for each row that has a stack with
    frames; `stacks`: by the number that rows have."""
    wanted = ("time_ns", "cpu", "pid", "tid", "comm", "mode", "stack")
    rows = recording.frame.drop_nulls("stack").select(wanted).sort("time_ns")
    if rows.is_empty():
        return
    yield _processes(packet(), rows.unique("tid", keep="last", maintain_order=True))
    used = sorted(number for number in rows["stack"].unique() if _has_frames(stacks, number))
    yield _interned(packet(), {number: stacks[number][FRAMES_AT:] for number in used})
    numbers = set(used)
    for time, cpu, pid, tid, _, mode, number in rows.iter_rows():
        if number in numbers:
            yield _sample(packet(), (time, cpu, pid or 0, tid or 0), mode, number)


def _has_frames(stacks: Sequence[Stack], number: int) -> bool:
    return 0 <= number < len(stacks) and len(stacks[number]) > FRAMES_AT


def _processes(packet: Any, rows: Any) -> Any:
    for pid, tid, comm in rows.select("pid", "tid", "comm").iter_rows():
        if pid == tid:
            packet.process_tree.processes.add(pid=pid, cmdline=[comm or ""])
        elif pid is not None and tid is not None:
            packet.process_tree.threads.add(tid=tid, tgid=pid, name=comm or "")
    return packet


def _interned(packet: Any, stacks: dict[int, Stack]) -> Any:
    """A packet with these stacks; the number 0 stands for none, so that all are one higher."""
    data = packet.interned_data
    files: dict[str, int] = {}
    frames: dict[str, int] = {}
    for number, stack in stacks.items():
        for frame in stack:
            if frame in frames:
                continue
            file, name = _parts(frame)
            if file not in files:
                files[file] = len(files) + 1
                data.mapping_paths.add(iid=files[file], str=file.encode())
                data.mappings.add(iid=files[file], path_string_ids=[files[file]])
            frames[frame] = len(frames) + 1
            data.function_names.add(iid=frames[frame], str=name.encode())
            data.frames.add(
                iid=frames[frame], function_name_id=frames[frame], mapping_id=files[file]
            )
        data.callstacks.add(iid=number + 1, frame_ids=[frames[frame] for frame in stack])
    return packet


def _parts(frame: str) -> tuple[str, str]:
    """The file and the function of a frame; a frame without a function is its own name."""
    file, tick, function = frame.partition("`")
    return (file, function) if tick else (frame.partition("+0x")[0], frame)


def _sample(packet: Any, at: tuple[int, int, int, int], mode: str | None, number: int) -> Any:
    packet.timestamp, sample = at[0], packet.perf_sample
    sample.cpu, sample.pid, sample.tid = at[1:]
    sample.cpu_mode = MODES.get(mode or "", 0)
    sample.callstack_iid = number + 1
    packet.sequence_flags = packet.SEQ_NEEDS_INCREMENTAL_STATE
    return packet
