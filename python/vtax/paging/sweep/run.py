"""Running a sweep: every point of a design, each saved as soon as it is finished."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from vtax import __version__
from vtax.core.errors import MisuseError, VtaxError
from vtax.paging.sweep.design import Design
from vtax.paging.sweep.folder import COLUMNS, SweepFolder, tidy
from vtax.paging.sweep.point import Evaluate, Finished, Point
from vtax.paging.sweep.record import FailedPoint, SweepRecord
from vtax.paging.sweep.workers import Workers, running

if TYPE_CHECKING:
    import polars

State = Literal["running", "complete", "interrupted", "failed"]


class Progress(Protocol):
    """Receives the progress of a sweep: see `vtax.core.page.progress`."""

    def begin(self, total: int, done: int = 0, text: str = "") -> None: ...

    def step(self, text: str) -> None: ...

    def failed(self, text: str) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """How to run, apart from the design."""

    folder: Path
    workers: int
    scheduler: str | None = None
    resume: bool = False
    command_line: Sequence[str] = ()


@dataclass(slots=True)
class Outcome:
    """The outcome of a sweep."""

    design: Design
    folder: Path
    state: State
    points: list[tuple[Point, Finished]] = field(default_factory=list)
    """The points that were evaluated, in the order of the design."""

    @property
    def failures(self) -> list[tuple[Point, str]]:
        """Points without a result, and why."""
        return [(point, each.error) for point, each in self.points if each.error is not None]

    def table(self) -> polars.DataFrame:
        """One row per point and mode, in the order of the design."""
        return tidy(self.points, [axis.column for axis in self.design.axes])


def sweep(design: Design, options: SweepOptions, evaluate: Evaluate, progress: Progress) -> Outcome:
    """Evaluate every point that has no result yet, save the results, and write the table.

    Ctrl-C ends the sweep in an orderly way, with the state `interrupted`. Raises VtaxError when the
    folder cannot be written, or the cluster does not answer or is lost; what was finished is then
    kept.
    """
    folder = SweepFolder.open(options.folder, options.resume)
    try:
        return _Sweep(design, options, folder, progress).run(evaluate)
    finally:
        folder.release()


class _Sweep:
    def __init__(
        self, design: Design, options: SweepOptions, folder: SweepFolder, progress: Progress
    ) -> None:
        self._design = design
        self._options = options
        self._folder = folder
        self._progress = progress
        self._started = _now()
        self._outcome = Outcome(design, options.folder, "running")
        self._results: dict[str, Finished] = {}
        """Results by the identity of the point; a failed point is tried again."""

    def run(self, evaluate: Evaluate) -> Outcome:
        outcome = self._outcome
        if self._options.resume:
            self._results = self._earlier()
        try:
            if self._kept() < self._design.size:
                self._evaluate(evaluate)
            outcome.state = "complete"
        except KeyboardInterrupt:
            outcome.state = "interrupted"
        except VtaxError:
            outcome.state = "failed"
            raise
        finally:
            self._progress.stop()
            outcome.points = self._points()
            if outcome.points:
                self._folder.finish(outcome.table())
                self._write_record()
        return outcome

    def _kept(self) -> int:
        return sum(each.error is None for each in self._results.values())

    def _points(self) -> list[tuple[Point, Finished]]:
        results = self._results
        pairs = ((point, point.identity) for point in self._design.points() if results)
        return [(point, results[identity]) for point, identity in pairs if identity in results]

    def _earlier(self) -> dict[str, Finished]:
        """The points of an earlier run."""
        record = self._folder.read_record()
        if record and record.vtax != __version__:
            raise MisuseError(
                f"{self._folder.path} was made by vtax {record.vtax}, this is {__version__}",
                "two models do not belong in one table: choose another --out",
            )
        found = self._folder.finished()
        known = {point.identity for point in self._design.points()} if found else set()
        strangers = len(found.keys() - known)
        if strangers:
            raise MisuseError(
                f"{strangers} finished points in {self._folder.path} are not in this design",
                "choose another --out, or restore the design",
            )
        return found

    def _evaluate(self, evaluate: Evaluate) -> None:
        options, kept, size = self._options, self._kept(), self._design.size
        with running(options.scheduler, options.workers, evaluate) as workers:
            self._write_record()
            earlier = f", {kept} of them from before" if kept else ""
            where = options.scheduler or f"{options.workers} local workers"
            self._progress.begin(size, kept, f"{size} points{earlier}; {where}")
            self._save_all(workers)

    def _save_all(self, workers: Workers) -> None:
        done = {name for name, each in self._results.items() if each.error is None}
        left = (point for point in self._design.points() if point.identity not in done)
        for point, finished in workers.evaluated(left):
            identity = point.identity
            self._results[identity] = finished
            self._folder.append(identity, finished)
            if finished.error is not None:
                self._progress.failed(f"{point.label} failed: {finished.error}")
            else:
                self._progress.step(f"{point.label}: {finished.wall_s:.3g} s")

    def _write_record(self) -> None:
        design, outcome = self._design, self._outcome
        record = SweepRecord(
            vtax=__version__,
            state=outcome.state,
            command_line=tuple(self._options.command_line),
            started=self._started,
            written=_now(),
            name=design.name,
            study=design.text,
            axes={axis.column: tuple(axis.values) for axis in design.axes},
            modes=design.modes,
            seed=design.simulation.get("seed"),
            machines={name: dict(machine) for name, machine in design.machines.items()},
            traces={each.content: each.digest for each in design.workloads if each.kind == "trace"},
            points=design.size,
            finished=len(self._results),
            failed=tuple(
                FailedPoint(point=point.identity, label=point.label, error=error)
                for point, error in outcome.failures
            ),
            scheduler=self._options.scheduler,
            workers=None if self._options.scheduler else self._options.workers,
            versions=_versions(),
            columns=COLUMNS,
        )
        self._folder.write_record(record)


def best(outcome: Outcome) -> list[dict[str, Any]]:
    """For each point: its place, the cheapest way to virtualize it, and every mode's overhead.

    Native execution is what the others are compared with, and the oracle knows the future: neither
    can be chosen.
    """
    rows = []
    for point, finished in outcome.points:
        choices = [row for row in finished.rows if row["mode"] not in {"native", "oracle"}]
        cheapest = min(choices, key=_cycles, default=None)
        rows.append({
            **dict(point.coordinates),
            "workload": point.workload.label,
            "machine": point.machine,
            "best": cheapest["mode"] if cheapest else None,
            "overhead_percent": {
                str(row["mode"]): row.get("overhead_percent") for row in finished.rows
            },
            "error": finished.error,
        })  # fmt: skip
    return rows


def as_json(outcome: Outcome) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "name": outcome.design.name,
        "folder": str(outcome.folder),
        "state": outcome.state,
        "points": outcome.design.size,
        "finished": len(outcome.points),
        "modes": list(outcome.design.modes),
        "best": best(outcome),
        "failed": [
            {"point": point.identity, "label": point.label, "error": error}
            for point, error in outcome.failures
        ],
    }


def _cycles(row: Mapping[str, Any]) -> float:
    return float(row.get("cycles") or 0.0)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("distributed", "polars"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
