"""The run folder of a comparison that was submitted.

It has the spec, `submitted.json` with the jobs, and `parts/JOB/NODE/RUN`: a run folder for each
node of each job, beside `parts/JOB/job.json`, what Slurm's accounting says of the job. What is in
it is whole at any moment, because each part is a run folder.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.files import read_bounded, write_atomic
from vtax.core.formats.folder import RECORD, load
from vtax.core.formats.model import ComparisonRecord, Sample, Strict
from vtax.environments.console import plain_text

SUBMITTED = "submitted.json"
PARTS = "parts"
JOB = "job.json"
MAX_BYTES = 1 << 20
SHOWN_BYTES = 4096
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,250}")


class Submitted(Strict):
    """The content of `submitted.json`."""

    schema_version: Literal[1] = 1
    name: str
    """What runs, in words."""
    repetitions: int
    """Rounds on all nodes together."""
    seed: int
    """Each part adds the number of parts before it."""
    time_s: float | None
    """What each job was asked for; None: the partition's default."""
    jobs: tuple[str, ...]
    """Their numbers, in the order in which they depend on each other."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one node measured in one job."""

    job: str
    node: str
    record: ComparisonRecord
    samples: tuple[Sample, ...]

    @property
    def rounds(self) -> int:
        """Rounds in which every environment that did not fail has its samples."""
        by_round: dict[int, set[str]] = {}
        for each in self.samples:
            own = each.repetition if each.round is None else each.round
            by_round.setdefault(own, set()).add(each.environment)
        for failure in self.record.failures:
            by_round.setdefault(failure.repetition, set()).add(failure.environment)
        labels = {each.label for each in self.record.environments}
        return sum(found >= labels for found in by_round.values())


def write(folder: Path, submitted: Submitted) -> None:
    """Replace `submitted.json`. Raises VtaxError when it cannot be written."""
    write_atomic(folder / SUBMITTED, submitted.model_dump_json(indent=1).encode())


def read(folder: Path) -> Submitted:
    """Read `submitted.json`. Raises MisuseError where there is none, VtaxError for a damaged
    one."""
    try:
        return Submitted.model_validate_json(read_bounded(folder / SUBMITTED, MAX_BYTES))
    except FileNotFoundError:
        raise MisuseError(
            f"{folder} is no folder of vtax submit: it has no {SUBMITTED}", "name one that it made"
        ) from None
    except (OSError, ValidationError) as error:
        said = error.strerror if isinstance(error, OSError) else error.errors()[0]["msg"]
        raise VtaxError(f"{folder / SUBMITTED} is damaged: {said}") from None


def place(folder: Path, job: str, node: str) -> Path:
    """Where a node's part is. Raises VtaxError for a name that no job or no host has."""
    for name in (job, node):
        if not _NAME.fullmatch(name):
            raise VtaxError(f"{name!r} is not the name of a job or a node")
    return folder / PARTS / job / node


def parts(folder: Path) -> Iterator[Part | VtaxError]:
    """What was measured so far, by the time of its start, or why a part cannot be read.

    A part that has no sample yet is left out.
    """
    found: list[Part] = []
    for path in sorted((folder / PARTS).glob(f"*/*/*/{RECORD}")):
        try:
            record, samples = load(path.parent)
        except VtaxError as error:
            # A run that has only begun has its record alone.
            if list(path.parent.glob("samples.*")):
                yield error
            continue
        if samples:
            job, node = path.parts[-4:-2]
            found.append(Part(job, node, record, tuple(samples)))
    yield from sorted(found, key=lambda each: (each.record.started_utc, each.node))


def last_words(folder: Path) -> str | None:
    """The last line that a job printed; None: none printed any."""
    for path in sorted(folder.glob("job-*.txt"), reverse=True):
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - SHOWN_BYTES))
            lines = plain_text(file.read(SHOWN_BYTES)).splitlines()
            if said := [line.strip() for line in lines if line.strip()]:
                return next((each for each in reversed(said) if each.startswith("vtax:")), said[-1])
    return None
