"""The run folder: made once, written as the run goes, readable whatever happened to the writer.

`samples.jsonl` grows by one line per sample, flushed to the disk after each repetition; when the
run ends it becomes `samples.parquet` and goes away. A reader takes whichever is there.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats import records
from vtax.core.formats.files import write_atomic, write_table
from vtax.core.formats.journal import Journal
from vtax.core.formats.model import ComparisonRecord, Kept, RecordingRecord, Sample, VerbRecord

RECORD = "run.json"
SPEC = "spec.yaml"
JOURNAL = "samples.jsonl"
SAMPLES = "samples.parquet"
EVENTS = "events.json"
REPORT = "report.html"
RAW = "raw"
INSTRUMENTS = "instruments"


class RunFolder:
    """The writer's side. One process writes a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._names: dict[str, str] = {}
        """The name that each folder was made for: two names may have one slug."""
        remedy = f"free space; what was finished before is kept: vtax report {path}"
        self._journal = Journal(path / JOURNAL, remedy)

    def claim(self) -> bool:
        """Become the writer; False when another process, still alive, is the writer.

        It is a lock on the folder itself: it needs no cleaning up, and ends with its holder.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._lock = descriptor
        return True

    def release(self) -> None:
        """Let another process become the writer."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @classmethod
    def create(cls, parent: Path, name: str, now: datetime | None = None) -> RunFolder:
        """Make ``parent/<UTC time>-<name>`` (permissions 0700), a new one even in the same second.

        Raises VtaxError when the parent cannot be written.
        """
        stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
        base = f"{stamp}-{slug(name)}"
        try:
            parent.mkdir(parents=True, exist_ok=True)
            for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
                path = parent / (base + suffix)
                try:
                    path.mkdir(mode=0o700)
                except FileExistsError:
                    continue
                (path / RAW).mkdir(mode=0o700)
                folder = cls(path)
                folder.claim()
                return folder
        except OSError as error:
            raise VtaxError(
                f"cannot make a run folder in {parent}: {error.strerror}",
                "choose another folder with --out",
            ) from None
        raise VtaxError(f"cannot make a run folder in {parent}: too many of this second")

    def raw(self, name: str) -> Path:
        """The writable folder of one machine, ``raw/NAME``, as an absolute path.

        Raises VtaxError when it cannot be made.
        """
        path = (self.path / RAW / self._own(name)).absolute()
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise VtaxError(f"cannot make {path}: {error.strerror}", "free space there") from None
        return path

    def instruments(self, name: str) -> Path:
        """The folder for instruments' files of one environment; no machine may write there."""
        return (self.path / INSTRUMENTS / self._own(name)).absolute()

    def _own(self, name: str) -> str:
        base, number = slug(name), 1
        while (
            self._names.setdefault(own := f"{base}-{number}" if number > 1 else base, name) != name
        ):
            number += 1
        return own

    def clean_raw(self) -> None:
        """Remove what is neither a file nor a folder: guests make links, pipes and devices.

        Call this only when no machine runs. `find` follows no link and copes with folders of any
        depth; it first opens folders that were closed to their owner. No program keeps the rights
        of a guest's root, whose files are root's here in a container.
        """
        raw = str((self.path / RAW).absolute())
        opened = ["-type", "d", "!", "-perm", "-u=rwx", "-exec", "chmod", "u+rwx", "{}", ";"]
        rights = ["-type", "f", "-perm", "/ug=s", "-exec", "chmod", "ug-s", "{}", "+"]
        kept = ["!", "-type", "f", "!", "-type", "d"]
        for what in (opened, rights, [*kept, "-delete"]):
            line = ["find", "-P", raw, *what]
            subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    def write_record(self, record: VerbRecord) -> None:
        """Replace `run.json` in one step."""
        records.write(self.path / RECORD, record)

    def write_spec(self, text: str) -> None:
        """Keep the spec file that repeats the run. Raises VtaxError when it cannot be written."""
        write_atomic(self.path / SPEC, text.encode())

    def append(self, samples: Iterable[Sample]) -> None:
        """Save the samples of a finished repetition; see `Journal.append`."""
        self._journal.append(sample.row() for sample in samples)

    def finish(self, samples: Sequence[Sample]) -> None:
        """Turn the journal into `samples.parquet`, and describe its columns in `events.json`.

        No machine may run any more. Raises VtaxError when the files cannot be written.
        """
        from vtax.core.formats.samples import columns, frame

        self.clean_raw()
        remedy = f"free space; the samples are kept in {self._journal.path}"
        write_table(self.path / SAMPLES, frame(samples), remedy)
        write_atomic(self.path / EVENTS, json.dumps(columns(), indent=1).encode())
        self._journal.remove()


def read_record(path: Path) -> ComparisonRecord | RecordingRecord:
    """The `run.json` of a run, finished or cut short.

    Raises MisuseError when `path` is not a run folder, or the run is of another schema version or
    verb; VtaxError when the file is damaged.
    """
    try:
        record = records.read(path / RECORD)
    except OSError as error:
        raise MisuseError(
            f"{path} is not a run folder: {RECORD}: {error.strerror}",
            "name a folder that vtax compare or vtax record has made",
        ) from None
    if not isinstance(record, ComparisonRecord | RecordingRecord):
        raise MisuseError(
            f"{path / RECORD} is a record of 'vtax {record.verb}'",
            "name a folder that vtax compare or vtax record has made",
        )
    return record


def own_report(path: Path) -> Kept | None:
    """The `run.json` of a verb whose report needs nothing else; None when it is of another verb or
    cannot be read: `read_record` says why."""
    try:
        record = records.read(path / RECORD)
    except (OSError, VtaxError):
        return None
    return record if record.has_page else None


def read_samples(path: Path, fault: Callable[[Sample], str | None]) -> list[Sample]:
    """The samples of a run, from whichever file holds them; `fault` says why one cannot be its.

    Raises VtaxError when both files are missing, or the one there is damaged or of another run.
    """
    from vtax.core.formats.samples import checked, read_table

    if (path / SAMPLES).is_file():
        return read_table(path / SAMPLES, fault)
    if not (path / JOURNAL).is_file():
        raise VtaxError(
            f"{path} has no samples: neither {SAMPLES} nor {JOURNAL} is there",
            "no repetition was finished, or the file was moved away",
        )
    return checked(path / JOURNAL, Journal(path / JOURNAL).read(), fault)


def load(path: Path) -> tuple[ComparisonRecord, list[Sample]]:
    """Read a comparison, finished or cut short.

    Raises MisuseError when `path` holds no comparison, VtaxError as `read_record` and
    `read_samples` do.
    """
    from vtax.core.formats.samples import fault_of

    record = read_record(path)
    if not isinstance(record, ComparisonRecord):
        raise MisuseError(
            f"{path} is a recording: it has rows of events and no samples",
            f"vtax timeline {path} --event NAME, or vtax correlate {path}",
        )
    return record, read_samples(path, fault_of(record))


def slug(text: str) -> str:
    """The text with letters, digits, dot and dash only: safe as a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:60] or "run"
