"""The run folder of a recording: made before the recording, described in run.json."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from vtax import __version__
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.folder import RECORD as RUN
from vtax.core.formats.folder import RunFolder
from vtax.core.formats.model import MachineRecord, RecordingRecord
from vtax.core.recorder.intervals import RECORD, ROWS, STREAM

RUNS = Path("runs")
WHOLE_MACHINE = "machine"
"""Name of a recording without a command."""
State = Literal["running", "complete", "interrupted", "failed"]


@dataclass(slots=True)
class RecordedMachine:
    """The machine of a recording; filled in while it comes up."""

    spec: str
    description: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    boot_s: float | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    notes: Sequence[str] = ()


@contextlib.contextmanager
def opened(
    out: Path | None,
    name: str,
    argv: Sequence[str],
    asked: Mapping[str, Any],
    recorded: RecordedMachine,
) -> Iterator[RunFolder]:
    """A new run folder, `out` or ``runs/<UTC>-<name>``, whose run.json says how the recording went.

    If the recording fails before its first row, a folder that was made for it is removed.
    """
    begun = datetime.now(UTC).isoformat(timespec="seconds")

    def write(state: State) -> None:
        folder.write_record(_record(begun, state, name, argv, asked, recorded))

    ours = out is None or not out.exists()
    folder = RunFolder.create(RUNS, name) if out is None else _at(out)
    state: State = "failed"
    try:
        write("running")
        yield folder
        state = "complete"
    except KeyboardInterrupt:
        state = "interrupted"
        raise
    finally:
        folder.clean_raw()
        if any((folder.path / file).exists() for file in (RECORD, ROWS, STREAM)):
            write(state)
        elif ours:
            shutil.rmtree(folder.path, ignore_errors=True)
        else:
            (folder.path / RUN).unlink(missing_ok=True)
        folder.release()


def _at(path: Path) -> RunFolder:
    if (path / RUN).exists() or (path / STREAM).exists() or (path / ROWS).exists():
        raise MisuseError(f"{path} holds a run already", "name another folder with --out")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = RunFolder(path)
        folder.claim()
    except OSError as error:
        raise VtaxError(f"cannot make {path}: {error.strerror}", "choose another --out") from None
    return folder


def _record(
    begun: str,
    state: State,
    name: str,
    argv: Sequence[str],
    asked: Mapping[str, Any],
    recorded: RecordedMachine,
) -> RecordingRecord:
    done = None if state == "running" else datetime.now(UTC).isoformat(timespec="seconds")
    machine = MachineRecord(
        spec=recorded.spec,
        description=recorded.description,
        cpus=recorded.cpus,
        memory_bytes=recorded.memory_bytes,
        facts=dict(recorded.facts),
        boot_s=() if recorded.boot_s is None else (recorded.boot_s,),
        notes=tuple(recorded.notes),
    )
    return RecordingRecord(
        vtax_version=__version__,
        command_line=("vtax", *sys.argv[1:]),
        name=name,
        started_utc=begun,
        finished_utc=done,
        state=state,
        argv=tuple(argv),
        recording=dict(asked),
        machine=machine,
    )
