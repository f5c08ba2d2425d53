"""The folder of a sweep: finished points are safe at once, whatever happens to the writer.

`points.jsonl` grows by one line per finished point; when the sweep ends it becomes `sweep.parquet`
and goes away. A resumed sweep takes what is in either file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats import records, tables
from vtax.core.formats.folder import RunFolder
from vtax.core.formats.journal import Journal
from vtax.paging.sweep.point import Finished, Point
from vtax.paging.sweep.record import SweepRecord

if TYPE_CHECKING:
    import polars

RECORD = "sweep.json"
JOURNAL = "points.jsonl"
TABLE = "sweep.parquet"

COLUMNS = {
    "point": "identity of the point: a digest of its whole description",
    "workload": "name of the workload, or of its file without suffix",
    "machine": "name of the machine, or of its file without suffix",
    "mode": "way of translation, or the policy that chose it",
    "error": "why the point has no result; null: it has one",
    "wall_s": "seconds that the whole point took, the worker's clock; not modelled",
}


class SweepFolder:
    """The writer's side. One process writes a sweep."""

    def __init__(self, path: Path, made: bool = False) -> None:
        self.path = path
        self._made = made
        self._lock = RunFolder(path)
        self._journal = Journal(path / JOURNAL, "free space; then continue with --resume")

    @classmethod
    def open(cls, path: Path, resume: bool) -> SweepFolder:
        """Make the folder, or take the one of a sweep that is to be resumed.

        Raises MisuseError when `path` holds a sweep and `resume` is false, or another process
        writes it; VtaxError when it cannot be written.
        """
        try:
            made = not path.exists()
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = cls(path, made)
            if not folder._lock.claim():
                raise MisuseError(f"another vtax is running the sweep in {path}")
        except OSError as error:
            raise VtaxError(
                f"cannot make the folder {path}: {error.strerror}", "choose another with --out"
            ) from None
        if not resume and any((path / name).exists() for name in (RECORD, JOURNAL, TABLE)):
            folder.release()
            raise MisuseError(
                f"{path} holds a sweep already",
                "continue it with --resume, or choose another --out",
            )
        return folder

    def release(self) -> None:
        """Let another process become the writer. A sweep that could not start leaves no folder."""
        self._lock.release()
        if self._made:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def write_record(self, record: SweepRecord) -> None:
        """Replace `sweep.json` in one step.

        Raises VtaxError when it cannot be written.
        """
        records.write(self.path / RECORD, record)

    def read_record(self) -> SweepRecord | None:
        """The record that an earlier run wrote; None when there was none.

        Raises MisuseError for a record of another version or verb, VtaxError for a damaged one.
        """
        path = self.path / RECORD
        try:
            record = records.read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise VtaxError(f"cannot read {path}: {error.strerror}") from None
        if not isinstance(record, SweepRecord):
            raise MisuseError(
                f"{path} is a record of 'vtax {record.verb}'", "choose another folder"
            )
        return record

    def finished(self) -> dict[str, Finished]:
        """Points of an earlier run by identity; a line that a crash cut short is left out.

        Raises VtaxError when the table or a whole line is damaged.
        """
        found = self._from_table()
        for entry in self._journal.read():
            try:
                rows = tuple(entry["rows"])
                found[entry["point"]] = Finished(rows, entry["error"], entry["wall_s"])
            except (TypeError, KeyError):
                raise VtaxError(f"{self._journal.path} is damaged: a line is not a point") from None
        return found

    def append(self, point: str, finished: Finished) -> None:
        """Add a point, so that it survives the death of vtax."""
        self._journal.append([{"point": point, **asdict(finished)}])

    def finish(self, table: polars.DataFrame) -> None:
        """Replace the journal by `sweep.parquet`.

        Raises VtaxError when it cannot be written.
        """
        target = self.path / TABLE
        temporary = target.with_name(f".{TABLE}.{os.getpid()}")
        try:
            table.write_parquet(temporary)
            temporary.replace(target)
            self._journal.remove()
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise VtaxError(
                f"cannot write {target}: {error.strerror}",
                f"free space; the points are kept in {self.path / JOURNAL}",
            ) from None

    def _from_table(self) -> dict[str, Finished]:
        import polars

        path = self.path / TABLE
        if not path.is_file():
            return {}
        try:
            table = tables.read(path)
            keys = ("point", "error", "wall_s")
            record = self.read_record()
            left_out = {*COLUMNS, *(record.axes if record else ())} - {"mode"}
            found: dict[str, Finished] = {}
            for (point,), rows in table.group_by("point", maintain_order=True):
                first = rows.row(0, named=True)
                kept = rows.drop([name for name in left_out if name in rows.columns])
                metrics = tuple(kept.iter_rows(named=True)) if first["error"] is None else ()
                found[str(point)] = Finished(metrics, first[keys[1]], first[keys[2]])
        except (polars.exceptions.PolarsError, OSError, KeyError) as error:
            reason = str(error).splitlines()[0]
            raise VtaxError(f"{path} is damaged: {reason}") from None
        return found


def tidy(points: Iterable[tuple[Point, Finished]], axes: Sequence[str]) -> polars.DataFrame:
    """One row per point and mode: its coordinates, its metrics, and the error if it failed."""
    import polars

    rows: list[dict[str, Any]] = []
    for point, finished in points:
        first = {"point": point.identity, **dict(point.coordinates),
                 "workload": point.workload.label, "machine": point.machine}  # fmt: skip
        end = {"error": finished.error, "wall_s": finished.wall_s}
        results = finished.rows or tuple({"mode": mode} for mode in point.modes)
        rows += [first | row | end for row in results]
    if not rows:
        return polars.DataFrame(schema=dict.fromkeys(COLUMNS, polars.String))
    table = polars.DataFrame(rows, infer_schema_length=None)
    named = ["point", *axes, "workload", "machine", "mode"]
    metrics = [name for name in table.columns if name not in {*named, "error", "wall_s"}]
    error, wall_s = polars.col("error"), polars.col("wall_s")
    last = (error.cast(polars.String), wall_s.cast(polars.Float64))
    return table.select(*named, *metrics, *last)
