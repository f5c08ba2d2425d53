"""The run folder: made once, written as the run goes, readable whatever happened to the writer.

`samples.jsonl` grows by one line per sample, flushed to the disk after each repetition; when the
run ends it becomes `samples.parquet` and goes away. A reader takes whichever is there.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from vtax import cache
from vtax.errors import MisuseError, VtaxError
from vtax.formats.model import RunRecord, Sample

if TYPE_CHECKING:
    import polars

RECORD = "run.json"
JOURNAL = "samples.jsonl"
SAMPLES = "samples.parquet"
EVENTS = "events.json"
REPORT = "report.html"
RAW = "raw"
INSTRUMENTS = "instruments"
SYNC_EVERY_S = 1.0
MAX_RECORD_BYTES = 64 << 20
MAX_SAMPLES_BYTES = 1 << 30

_FIELDS = {field.name for field in dataclasses.fields(Sample)}


class RunFolder:
    """The writer's side. One process writes a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._names: dict[str, str] = {}
        """Folder to the name it was made for: two names may have one slug."""
        self._synced = time.monotonic()

    def claim(self) -> bool:
        """Become the writer; False when another process, still alive, is it.

        A lock on the folder itself: nothing to clean up, and gone with its holder.
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
        """Let others write."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @classmethod
    def create(cls, parent: Path, name: str, now: datetime | None = None) -> RunFolder:
        """Make ``parent/<UTC time>-<name>`` (mode 0700), a new one even in the same second.

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
                "choose another place with --out",
            ) from None
        raise VtaxError(f"cannot make a run folder in {parent}: too many of this second")

    def raw(self, name: str) -> Path:
        """The writable folder of one machine, ``raw/NAME``, as an absolute path."""
        path = (self.path / RAW / self._own(name)).absolute()
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def instruments(self, name: str) -> Path:
        """Where instruments put files of one environment; no machine may write there."""
        return (self.path / INSTRUMENTS / self._own(name)).absolute()

    def _own(self, name: str) -> str:
        base, number = slug(name), 1
        while (
            self._names.setdefault(own := f"{base}-{number}" if number > 1 else base, name) != name
        ):
            number += 1
        return own

    def write_record(self, record: RunRecord) -> None:
        """Replace `run.json` at once."""
        text = record.model_dump_json(indent=1)
        cache.write_atomic(self.path / RECORD, text.encode() + b"\n")

    def append(self, samples: Iterable[Sample]) -> None:
        """Add the samples of a finished repetition.

        When this returns they survive the death of vtax; a power cut loses the last second at
        most (waiting for the disk after each of many short repetitions would cost more than they
        do).
        """
        lines = "".join(json.dumps(dataclasses.asdict(sample)) + "\n" for sample in samples)
        try:
            with (self.path / JOURNAL).open("a") as journal:
                journal.write(lines)
                journal.flush()
                if time.monotonic() - self._synced >= SYNC_EVERY_S:
                    os.fsync(journal.fileno())
                    self._synced = time.monotonic()
        except OSError as error:
            raise VtaxError(
                f"cannot save samples in {self.path}: {error.strerror}",
                f"free space; what was finished before is kept: vtax report {self.path}",
            ) from None

    def finish(self, samples: Sequence[Sample]) -> None:
        """Turn the journal into `samples.parquet`, and describe its columns in `events.json`."""
        target = self.path / SAMPLES
        temporary = target.with_name(f".{SAMPLES}.{os.getpid()}")
        try:
            frame(samples).write_parquet(temporary)
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise VtaxError(
                f"cannot write {target}: {error.strerror}",
                f"free space; the samples are kept in {self.path / JOURNAL}",
            ) from None
        cache.write_atomic(self.path / EVENTS, json.dumps(columns(), indent=1).encode())
        (self.path / JOURNAL).unlink(missing_ok=True)


def frame(samples: Sequence[Sample]) -> polars.DataFrame:
    """One row per sample, one column per field of `Sample`."""
    import polars

    kinds = {"str": polars.String, "float": polars.Float64, "int": polars.Int64}
    schema = {
        field.name: kinds.get(str(field.type).split(" ")[0], polars.String)
        for field in dataclasses.fields(Sample)
    }
    return polars.DataFrame([dataclasses.asdict(sample) for sample in samples], schema=schema)


def columns() -> dict[str, dict[str, str]]:
    """What each column of `samples.parquet` means and where it comes from."""
    agent = "vtax-agent in the machine"
    vtax = "vtax on the host"
    text = {
        "environment": ("label of the environment, the key into run.json", vtax),
        "workload": ("name of the workload", vtax),
        "metric": ("name of the metric", "the workload"),
        "unit": ("unit of value", "the workload"),
        "better": ("which direction is better: higher or lower", "the workload"),
        "value": ("the metric's value in unit", "the workload"),
        "repetition": ("number within the environment, from 0; warm-ups are not here", vtax),
        "boot": ("which start of the machine, from 0", vtax),
        "position": ("place in the order in which repetitions ran, from 0", vtax),
        "wall_s": ("seconds, the machine's CLOCK_MONOTONIC around the command", agent),
        "cpu_s": ("seconds of user and system time, wait4 in the machine", agent),
        "steal_s": ("seconds, /proc/stat of the CPUs used; null: no steal clock", agent),
        "host_wall_s": ("seconds, the host's CLOCK_MONOTONIC around the request", vtax),
        "max_rss_bytes": ("largest resident set of one process, wait4", agent),
        "minor_faults": ("page faults without I/O, wait4", agent),
        "major_faults": ("page faults with I/O, wait4", agent),
        "voluntary_switches": ("context switches by waiting, wait4", agent),
        "involuntary_switches": ("context switches by preemption, wait4", agent),
    }
    return {name: {"meaning": what, "source": source} for name, (what, source) in text.items()}


def load(path: Path) -> tuple[RunRecord, list[Sample]]:
    """Read a run, finished or cut short.

    Raises MisuseError when `path` is no run folder, VtaxError when a file in it is damaged.
    """
    from pydantic import ValidationError

    try:
        text = _bounded(path / RECORD, MAX_RECORD_BYTES)
    except FileNotFoundError:
        raise MisuseError(f"{path} is no run folder: it has no {RECORD}") from None
    try:
        record = RunRecord.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise VtaxError(f"{path / RECORD} is damaged: {where}: {first['msg']}") from None
    return record, _load_samples(path)


def _load_samples(path: Path) -> list[Sample]:
    if (path / SAMPLES).is_file():
        return _parquet(path / SAMPLES)
    try:
        lines = _bounded(path / JOURNAL, MAX_SAMPLES_BYTES).splitlines()
    except FileNotFoundError:
        return []
    return [sample for line in lines if (sample := _sample(line)) is not None]


def _sample(line: bytes) -> Sample | None:
    """One line of the journal; None for a line that a crash cut short."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    if not isinstance(fields, dict) or fields.keys() != _FIELDS:
        return None
    return Sample(**fields)


def _parquet(path: Path) -> list[Sample]:
    import polars

    if path.stat().st_size > MAX_SAMPLES_BYTES:
        raise VtaxError(f"{path} is larger than 1 GiB: refused")
    try:
        table = polars.read_parquet(path)
        return [Sample(**row) for row in table.iter_rows(named=True)]
    except (polars.exceptions.PolarsError, OSError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise VtaxError(f"{path} is damaged: {reason}") from None


def _bounded(path: Path, limit_bytes: int) -> bytes:
    with path.open("rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise VtaxError(f"{path} is larger than {limit_bytes} bytes: refused")
    return content


def slug(text: str) -> str:
    """Letters, digits, dot and dash only: safe as a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:60] or "run"
