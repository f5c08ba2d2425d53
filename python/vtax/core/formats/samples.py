"""`samples.parquet`: its columns, writing it, and reading it without trusting it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars
from pydantic import TypeAdapter, ValidationError

from vtax.core.errors import VtaxError
from vtax.core.formats import tables
from vtax.core.formats.model import ComparisonRecord, Sample

MAX_BYTES = 1 << 30

Fault = Callable[[Sample], str | None]
"""Why a sample cannot be of a run; None: it can."""

_ROWS = TypeAdapter(list[Sample])
_TYPES: Mapping[str, polars.DataType] = {"Finite": polars.Float64(), "Count": polars.Int64()}
_AGENT = "agent (machine)"
_VTAX = "vtax (host)"
_COLUMNS = {
    "environment": ("its label, the key into run.json", _VTAX),
    "workload": ("its name", _VTAX),
    "metric": ("its name", "the workload"),
    "unit": ("unit of value", "the workload"),
    "better": ("the better direction", "the workload"),
    "value": ("the metric's value in unit", "the workload"),
    "repetition": ("from 0 within the environment, without warm-ups", _VTAX),
    "boot": ("start of the machine, from 0", _VTAX),
    "position": ("place in the order of running, from 0", _VTAX),
    "wall_s": (
        "seconds around the command, the machine's CLOCK_MONOTONIC; host_wall_s where it lacks "
        "more than 1 % and 20 ms of that",
        _AGENT,
    ),
    "cpu_s": ("seconds of user and system time, wait4", _AGENT),
    "steal_s": ("seconds, /proc/stat of the CPUs used", _AGENT),
    "host_wall_s": (
        "seconds, the host's CLOCK_MONOTONIC between the agent's messages that the command begins "
        "and has ended",
        _VTAX,
    ),
    "max_rss_bytes": ("largest resident set of a process, wait4", _AGENT),
    "minor_faults": ("page faults without I/O, wait4", _AGENT),
    "major_faults": ("page faults with I/O, wait4", _AGENT),
    "voluntary_switches": ("context switches by waiting, wait4", _AGENT),
    "involuntary_switches": ("context switches by preemption, wait4", _AGENT),
    "tsc_ticks": ("time stamp counter around the command", _AGENT),
    "round": ("round of the campaign, from 0", _VTAX),
    "ran_s": ("seconds that the kernel behind the metric ran", "the workload"),
    "audit": ("worse verdict of the audits before and after", _VTAX),
    "run_id": ("run_id of run.json", _VTAX),
    "told_wall_s": (
        "seconds that the machine said where wall_s is the host's; null: wall_s is what it said",
        _AGENT,
    ),
    "user_s": ("seconds of user time, wait4 in the machine; null: an older vtax made it", _AGENT),
    "node": ("node of the allocation that it ran on; null: the environment is one machine", _VTAX),
    "drawn": ("what the round drew, NAME=VALUE, ...; null: nothing is drawn", _VTAX),
    "cpus": ("the host's CPUs that it was moved to; null: it was not moved", _VTAX),
    "beside_s": (
        "seconds of host_wall_s in which the other one of its round ran too; null: nothing did",
        _VTAX,
    ),
    "later_s": (
        "seconds by which it began later than the other one of its round; null: nothing ran at the "
        "same time",
        _VTAX,
    ),
}


def columns() -> dict[str, dict[str, str]]:
    """The meaning and the source of each column of `samples.parquet`."""
    return {name: {"meaning": what, "source": who} for name, (what, who) in _COLUMNS.items()}


def schema() -> dict[str, polars.DataType]:
    """The type of each column of `samples.parquet`."""
    return {
        field.name: _TYPES.get(str(field.type).split(" ")[0], polars.String())
        for field in dataclasses.fields(Sample)
    }


def frame(samples: Sequence[Sample]) -> polars.DataFrame:
    """One row per sample, one column per field of `Sample`."""
    return polars.DataFrame([sample.row() for sample in samples], schema=schema())


def read_table(path: Path, fault: Fault) -> list[Sample]:
    """The samples of `samples.parquet`; raises VtaxError when they are not of this run."""
    return checked(path, tables.read(path, limit=MAX_BYTES).iter_rows(named=True), fault)


def checked(path: Path, rows: Iterable[Mapping[str, Any]], fault: Fault) -> list[Sample]:
    """The rows of a file as samples; raises VtaxError when they are not of this run."""
    samples = validated(path, rows)
    seen = set()
    for number, sample in enumerate(samples):
        key = (sample.environment, sample.workload, sample.repetition, sample.metric)
        if reason := fault(sample) or ("it is there twice" if key in seen else None):
            raise VtaxError(
                f"{path} is not of this run: row {number} ({sample.metric}, {sample.environment}, "
                f"repetition {sample.repetition}): {reason}"
            )
        seen.add(key)
    return samples


def validated(path: Path, rows: Iterable[Mapping[str, Any]]) -> list[Sample]:
    """The rows of a file as samples of whichever run; raises VtaxError when they are none."""
    try:
        return _ROWS.validate_python(list(rows))
    except ValidationError as error:
        first = error.errors()[0]
        row, *where = first["loc"]
        column = ".".join(map(str, where))
        raise VtaxError(f"{path} is damaged: row {row}: {column}: {first['msg']}") from None


def fault_of(record: ComparisonRecord) -> Fault:
    """Why a sample cannot be of a comparison."""
    labels = [each.label for each in record.environments]

    def fault(sample: Sample) -> str | None:
        if reason := foreign(sample, record.run_id, [record.workload], labels):
            return reason
        planned = record.order[sample.position : sample.position + 1]
        if planned != ((sample.environment, sample.repetition),):
            return f"the run's order has another repetition at position {sample.position}"
        return None

    return fault


def foreign(
    sample: Sample, run_id: str | None, workloads: Collection[str], labels: Collection[str]
) -> str | None:
    """Why a sample cannot be of a run with these workloads and environments."""
    if sample.run_id != run_id:
        return f"its run is {sample.run_id}, that of run.json is {run_id}"
    if sample.workload not in workloads:
        return f"its workload is {sample.workload}, the run's is {', '.join(workloads)}"
    if sample.environment not in labels:
        return "the run has no such environment"
    return None
