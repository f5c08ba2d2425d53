"""Finding the run folders of many hosts, and reading what each has; what is unreadable is said."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from vtax.compare.sweep.record import ComparisonSweepRecord
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats import records
from vtax.core.formats.folder import RECORD
from vtax.core.formats.model import ComparisonRecord, EnvironmentRecord, VerbRecord
from vtax.fleet import bucket

MOST_DEEP = 6
"""Folders between a named folder and a run folder in it."""
RUNS = "runs"


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder, wherever it was."""

    name: str
    """Its path, or its URL."""
    path: Path
    """Where its files are."""
    record: VerbRecord

    @property
    def host(self) -> str:
        """The machine on which vtax ran; of a run that does not say, the folder that has it, or has
        the folder `runs` with it."""
        if self.record.host:
            return self.record.host
        parts = PurePosixPath(self.name).parts[:-1]
        return next((part for part in reversed(parts) if part not in (RUNS, "/", ".")), "unknown")

    def said(self, error: VtaxError) -> str:
        """What was wrong with the run, by the name that its reader knows."""
        return str(error).replace(str(self.path), self.name)

    @property
    def environments(self) -> Sequence[EnvironmentRecord]:
        """Every environment; none where the verb compares nothing."""
        if isinstance(self.record, ComparisonRecord | ComparisonSweepRecord):
            return self.record.environments
        return ()


@dataclass(slots=True)
class Found:
    """The runs that could be read, and a line about each other one."""

    runs: list[Run] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def find(named: Sequence[str], scratch: Path, *, with_samples: bool) -> Found:
    """The runs in folders and in buckets, each once.

    What is in a bucket is copied to `scratch`. Raises MisuseError where there is no run at all,
    VtaxError when a bucket cannot be listed.
    """
    found, ids = Found(), set()
    for number, name in enumerate(named):
        for shown, path in _folders(name, scratch / str(number), with_samples):
            if isinstance(path, VtaxError):
                found.unreadable.append(str(path))
                continue
            try:
                record = _record(path)
            except VtaxError as error:
                found.unreadable.append(str(error).replace(str(path), shown))
                continue
            own = getattr(record, "run_id", None) or str(path.resolve())
            if own not in ids:
                ids.add(own)
                found.runs.append(Run(shown, path, record))
    if not found.runs and not found.unreadable:
        raise MisuseError(
            f"there is no run folder in {', '.join(named)}",
            "name run folders, folders with run folders in them, or s3://BUCKET/PREFIX",
        )
    return found


def _folders(
    name: str, scratch: Path, with_samples: bool
) -> Iterator[tuple[str, Path | VtaxError]]:
    if name.startswith(bucket.SCHEME):
        scratch.mkdir()
        yield from bucket.copied(name, scratch, with_samples=with_samples)
        return
    for folder, below, files in os.walk(name):
        below.sort()
        if RECORD in files or len(Path(folder).parts) - len(Path(name).parts) >= MOST_DEEP:
            below.clear()
        if RECORD in files:
            yield folder, Path(folder)


def _record(path: Path) -> VerbRecord:
    try:
        record = records.read(path / RECORD)
    except OSError as error:
        raise VtaxError(f"cannot read {path / RECORD}: {error.strerror}") from None
    if not isinstance(record, VerbRecord):
        raise VtaxError(f"{path / RECORD} is a record of 'vtax {record.verb}', which is no run")
    return record
