"""`samples.parquet`: its columns, writing it, and reading it without trusting it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars
from pydantic import TypeAdapter, ValidationError

from vtax.core.errors import VtaxError
from vtax.core.formats import tables
from vtax.core.formats.model import ComparisonRecord, Sample

MAX_BYTES = 1 << 30

_ROWS = TypeAdapter(list[Sample])
_TYPES = {"Finite": polars.Float64, "Count": polars.Int64}
_AGENT = "vtax-agent in the machine"
_VTAX = "vtax on the host"
_COLUMNS = {
    "environment": ("label of the environment, the key into run.json", _VTAX),
    "workload": ("name of the workload", _VTAX),
    "metric": ("name of the metric", "the workload"),
    "unit": ("unit of value", "the workload"),
    "better": ("which direction is better: higher or lower", "the workload"),
    "value": ("the metric's value in unit", "the workload"),
    "repetition": ("number within the environment, from 0; warm-ups are not here", _VTAX),
    "boot": ("which start of the machine, from 0", _VTAX),
    "position": ("position in the order in which repetitions ran, from 0", _VTAX),
    "wall_s": (
        "seconds, the machine's CLOCK_MONOTONIC around the command; host_wall_s where it lacks "
        "more than 1 % and 20 ms of that (told_wall_s)",
        _AGENT,
    ),
    "cpu_s": ("seconds of user and system time, wait4 in the machine", _AGENT),
    "steal_s": ("seconds, /proc/stat of the CPUs used; null: no steal clock", _AGENT),
    "host_wall_s": (
        "seconds, the host's CLOCK_MONOTONIC from where the agent says that the command begins to "
        "where it says that it has ended",
        _VTAX,
    ),
    "max_rss_bytes": ("largest resident set of one process, wait4", _AGENT),
    "minor_faults": ("page faults without I/O, wait4", _AGENT),
    "major_faults": ("page faults with I/O, wait4", _AGENT),
    "voluntary_switches": ("context switches by waiting, wait4", _AGENT),
    "involuntary_switches": ("context switches by preemption, wait4", _AGENT),
    "tsc_ticks": ("ticks of the time stamp counter around the command; null: none", _AGENT),
    "round": ("round of the campaign, from 0; null: an older vtax made it", _VTAX),
    "ran_s": ("seconds that the kernel behind the metric ran; null: not known", "the workload"),
    "audit": ("worse verdict of the audits before and after; null: not audited", _VTAX),
    "run_id": ("run_id of run.json, the same in every row; null: an older vtax made it", _VTAX),
    "told_wall_s": (
        "seconds that the machine said where wall_s is the host's; null: wall_s is what it said",
        _AGENT,
    ),
}


def columns() -> dict[str, dict[str, str]]:
    """The meaning and the source of each column of `samples.parquet`."""
    return {name: {"meaning": what, "source": who} for name, (what, who) in _COLUMNS.items()}


def frame(samples: Sequence[Sample]) -> polars.DataFrame:
    """One row per sample, one column per field of `Sample`."""
    schema = {
        field.name: _TYPES.get(str(field.type).split(" ")[0], polars.String)
        for field in dataclasses.fields(Sample)
    }
    return polars.DataFrame([sample.row() for sample in samples], schema=schema)


def read_table(path: Path, record: ComparisonRecord) -> list[Sample]:
    """The samples of `samples.parquet`; raises VtaxError when they are not of this run."""
    return checked(path, tables.read(path, limit=MAX_BYTES).iter_rows(named=True), record)


def checked(
    path: Path, rows: Iterable[Mapping[str, Any]], record: ComparisonRecord
) -> list[Sample]:
    """The rows of a file as samples; raises VtaxError when they are not of this run."""
    try:
        samples = _ROWS.validate_python(list(rows))
    except ValidationError as error:
        first = error.errors()[0]
        row, *where = first["loc"]
        column = ".".join(map(str, where))
        raise VtaxError(f"{path} is damaged: row {row}: {column}: {first['msg']}") from None
    seen = set()
    for number, sample in enumerate(samples):
        key = (sample.environment, sample.repetition, sample.metric)
        if reason := _not_of(record, sample) or ("it is there twice" if key in seen else None):
            raise VtaxError(
                f"{path} is not of this run: row {number} ({sample.metric}, {sample.environment}, "
                f"repetition {sample.repetition}): {reason}"
            )
        seen.add(key)
    return samples


def _not_of(record: ComparisonRecord, sample: Sample) -> str | None:
    """Why a sample cannot be of this run."""
    if sample.run_id != record.run_id:
        return f"its run is {sample.run_id}, that of run.json is {record.run_id}"
    if sample.workload != record.workload:
        return f"its workload is {sample.workload}, the run's is {record.workload}"
    if all(sample.environment != each.label for each in record.environments):
        return "the run has no such environment"
    planned = record.order[sample.position : sample.position + 1]
    if planned != ((sample.environment, sample.repetition),):
        return f"the run's order has another repetition at position {sample.position}"
    return None
