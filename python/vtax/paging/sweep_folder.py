"""The folder of a sweep: finished points are safe at once, whatever happens to the writer.

`points.jsonl` grows by one line per finished point; when the sweep ends it becomes
`sweep.parquet` and goes away. A resumed sweep takes what is in either.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtax.errors import MisuseError, VtaxError
from vtax.formats.files import write_atomic
from vtax.formats.folder import RunFolder
from vtax.paging.sweep_point import Finished, Point

if TYPE_CHECKING:
    import polars

RECORD = "sweep.json"
JOURNAL = "points.jsonl"
TABLE = "sweep.parquet"
SCHEMA_VERSION = 1
SYNC_EVERY_S = 1.0
MAX_RECORD_BYTES = 64 << 20

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
        self._synced = time.monotonic()

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
        """Let others write. A sweep that could not start leaves no folder."""
        self._lock.release()
        if self._made:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Replace `sweep.json` at once."""
        try:
            write_atomic(self.path / RECORD, json.dumps(record, indent=1).encode() + b"\n")
        except OSError as error:
            raise VtaxError(f"cannot write in {self.path}: {error.strerror}") from None

    def read_record(self) -> dict[str, Any] | None:
        """What an earlier run wrote; None when there was none."""
        path = self.path / RECORD
        try:
            with path.open("rb") as file:
                record = json.loads(file.read(MAX_RECORD_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise VtaxError(f"{path} is damaged: {error}") from None
        if not isinstance(record, dict):
            raise VtaxError(f"{path} is damaged: it is no table")
        return record

    def finished(self) -> dict[str, Finished]:
        """Points of an earlier run by identity; a line that a crash cut short is left out."""
        found = self._from_table()
        try:
            with (self.path / JOURNAL).open("rb") as journal:
                for line in journal:
                    entry = _entry(line)
                    if entry is not None:
                        found[entry[0]] = entry[1]
        except FileNotFoundError:
            pass
        return found

    def append(self, point: str, finished: Finished) -> None:
        """Add a point.

        When this returns the point survives the death of vtax; a power cut loses the last second
        at most.
        """
        entry = {"point": point, "rows": finished.rows, "error": finished.error,
                 "wall_s": finished.wall_s}  # fmt: skip
        try:
            with (self.path / JOURNAL).open("ab+") as journal:
                if journal.tell() and _last_byte(journal) != b"\n":
                    journal.write(b"\n")
                journal.write(json.dumps(entry).encode() + b"\n")
                journal.flush()
                if time.monotonic() - self._synced >= SYNC_EVERY_S:
                    os.fsync(journal.fileno())
                    self._synced = time.monotonic()
        except OSError as error:
            raise VtaxError(
                f"cannot save a point in {self.path}: {error.strerror}",
                "free space; what was finished before is kept: continue with --resume",
            ) from None

    def finish(self, table: polars.DataFrame) -> None:
        """Replace the journal by `sweep.parquet`."""
        target = self.path / TABLE
        temporary = target.with_name(f".{TABLE}.{os.getpid()}")
        try:
            table.write_parquet(temporary)
            temporary.replace(target)
            (self.path / JOURNAL).unlink(missing_ok=True)
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
            table = polars.read_parquet(path)
            keys = ("point", "error", "wall_s")
            record = self.read_record() or {}
            left_out = {*COLUMNS, *record.get("axes", ())} - {"mode"}
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
    """One row per point and mode: where it lies, its metrics, and the error if it failed."""
    import polars

    rows: list[dict[str, Any]] = []
    for point, finished in points:
        place = {"point": point.identity, **dict(point.coordinates),
                 "workload": point.workload.label, "machine": point.machine}  # fmt: skip
        end = {"error": finished.error, "wall_s": finished.wall_s}
        results = finished.rows or tuple({"mode": mode} for mode in point.modes)
        rows += [place | row | end for row in results]
    if not rows:
        return polars.DataFrame(schema=dict.fromkeys(COLUMNS, polars.String))
    table = polars.DataFrame(rows, infer_schema_length=None)
    first = ["point", *axes, "workload", "machine", "mode"]
    metrics = [name for name in table.columns if name not in {*first, "error", "wall_s"}]
    error, wall_s = polars.col("error"), polars.col("wall_s")
    last = (error.cast(polars.String), wall_s.cast(polars.Float64))
    return table.select(*first, *metrics, *last)


def _entry(line: bytes) -> tuple[str, Finished] | None:
    try:
        entry = json.loads(line)
        rows = tuple(entry["rows"])
        return entry["point"], Finished(rows, entry["error"], entry["wall_s"])
    except (ValueError, TypeError, KeyError):
        return None


def _last_byte(journal: Any) -> bytes:
    journal.seek(-1, os.SEEK_END)
    byte: bytes = journal.read(1)
    return byte
