"""Runs with a known change at a known noise, in memory and as run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from comparison_data import environment, record, sample
from vtax.compare.history.changes import Change, Changes, Measurements, changes
from vtax.core.formats.folder import RunFolder
from vtax.core.formats.model import Better, Sample

Values = Mapping[tuple[str, str], Sequence[float]]
"""By environment and metric."""
BETTER: Mapping[str, Better] = {"wall_s": "lower", "rate": "higher"}
UNITS = {"wall_s": "s", "rate": "MB/s"}
ARGV = {"argv": ["./prog", "--size", "10"], "metrics": []}


def measured(values: Values, run: str = "runs/x", **fields: Any) -> Measurements:
    """A run with these values; the first environment is the baseline."""
    first, *others = dict.fromkeys(label for label, _ in values)
    own = (environment(first, "baseline"), *(environment(each, baseline=first) for each in others))
    most = max(map(len, values.values()), default=0)
    order = tuple((each.label, number) for number in range(most) for each in own)
    known = {"order": order, "run_id": run, "workload_parameters": ARGV, "environments": own}
    samples = [
        _placed(label, metric, number, value, order, run)
        for (label, metric), found in values.items()
        for number, value in enumerate(found)
    ]
    return Measurements(run, record(**(known | fields)), samples)


def _placed(
    label: str, metric: str, number: int, value: float, order: Sequence[tuple[str, int]], run: str
) -> Sample:
    better, unit = BETTER.get(metric, "lower"), UNITS.get(metric, "s")
    place = order.index((label, number))
    found = sample(label, number, value, metric=metric, better=better, unit=unit)
    return replace(found, position=place, boot=0, round=number, run_id=run)


def changed(then: Values, now: Values, margin: float = 3.0, **fields: Any) -> Changes:
    """The changes of two runs; `fields` are those of the later record."""
    return changes(measured(now, "runs/new", **fields), measured(then, "runs/old"), margin)


def only(found: Changes) -> Change:
    (change,) = found.changes
    return change


def saved(parent: Path, name: str, values: Values, **fields: Any) -> Path:
    """A finished run folder with these values."""
    made = measured(values, f"{parent}/{name}", **fields)
    path = parent / name
    path.mkdir(parents=True)
    (path / "raw").mkdir()
    folder = RunFolder(path)
    folder.write_record(made.record)
    folder.finish(made.samples)
    return path
