"""Runs of one command as a table: when, at which commit, and the median of every metric.

It is the CSV that Apache Otava reads (`CsvImporter` in its otava/importer.py): a row per run with a
time, a commit and numbers. Otava refuses a column with an empty cell; what is absent stays absent
all the same, and `gaps` names such columns.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from vtax.compare.analysis import by_metric
from vtax.compare.history.changes import Measurements
from vtax.compare.history.surroundings import Measured, environments, require_same_command
from vtax.core.errors import MisuseError
from vtax.core.statistics.statistics import median


@dataclass(frozen=True, slots=True)
class Row:
    """One run."""

    time: str
    """ISO time of its start."""
    commit: str
    """Empty: not known."""
    medians: dict[str, float]
    """By column, `ENVIRONMENT/METRIC`."""


@dataclass(frozen=True, slots=True)
class Series:
    """The runs in the order of time."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def gaps(self) -> list[str]:
        """Columns that some run has no value of."""
        return [
            name for name in self.columns if not all(name in each.medians for each in self.rows)
        ]

    def csv(self) -> str:
        """The table with its heading; a value that is not there is empty."""
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerow(("time", "commit", *self.columns))
        for each in self.rows:
            cells = (each.medians.get(name, "") for name in self.columns)
            writer.writerow((each.time, each.commit, *cells))
        return sink.getvalue()


def series(runs: Sequence[Measurements]) -> Series:
    """The table of these runs, of which there is at least one.

    Raises MisuseError where they measured different commands, or a metric in different units.
    """
    ordered = sorted(runs, key=lambda each: each.record.started_utc)
    rows = []
    meanings: dict[str, tuple[str, str]] = {}
    for each in ordered:
        require_same_command(Measured.by(ordered[-1].record), Measured.by(each.record), each.run)
        medians = {}
        for (label, metric), samples in by_metric(each.samples).items():
            if label in environments(each.record):
                name = f"{label}/{metric}"
                meaning = samples[0].unit, samples[0].better
                known = meanings.setdefault(name, meaning)
                if meaning != known:
                    said = [f"{unit}, {better} is better" for unit, better in (meaning, known)]
                    raise MisuseError(
                        f"{name} is in {said[0]}, in {each.run}, and in {said[1]}, before",
                        "name the runs after that change",
                    )
                medians[name] = median([sample.value for sample in samples])
        rows.append(Row(each.record.started_utc, each.record.commit or "", medians))
    return Series(tuple(meanings), tuple(rows))
