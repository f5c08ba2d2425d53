"""One campaign and its life in a run folder, for every verb that measures.

A verb (compare, memory, tune, place measure, audit) gives what is its own:

1. a request, a frozen dataclass derived from `Request`: what the user asked for;
2. variants: its machines with their instruments;
3. stages: its points as steps in the order to run; a later stage may use what earlier ones found;
4. what one repetition does: `booted`, `read`, `done` and `failed` of the runner's `Keeper`;
5. `record`: everything that is known by now, in the form of `run.json`.

The rest is here, once. The machines start, and the record is saved as `running`. A repetition's
samples are saved when it has ended, and the record before each further stage and every 10 s: a
vtax that is killed loses the repetition that ran. After the last stage, at the budget's end and
after Ctrl-C every machine ends, the samples become a table, and the record says `complete`,
`budget` or `interrupted`. After an error it says `failed`, and the samples stay in their journal.
"""

from __future__ import annotations

import contextlib
import platform
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Generic, TypedDict, TypeVar

from vtax import __version__
from vtax.core.errors import VtaxError
from vtax.core.formats.folder import RunFolder
from vtax.core.formats.model import Sample, VerbRecord
from vtax.core.runner.plan import Interleaving
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import (
    Keeper,
    Listener,
    Plan,
    Runner,
    Starter,
    State,
    Step,
    Variant,
    boot,
)
from vtax.environments.base import MachineLike
from vtax.workloads.base import Command

SAVE_EVERY_S = 10.0
"""How often the record is saved, which is made of everything that was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What every verb is asked for."""

    variables: Mapping[str, str]
    """The complete environment of the programs."""
    command_line: tuple[str, ...]
    spec: str = ""
    """The spec file that repeats the run; empty: no verb was called."""
    seed: int = 0
    """The seed of the order."""
    budget_s: float | None = None
    """No repetition begins after this time; None: all are run."""
    workdir: Path | None = None
    """The folder in which a user's command line runs; None: in the folder of its results."""


Q = TypeVar("Q", bound=Request)
R = TypeVar("R", bound=VerbRecord)
P = TypeVar("P")


class Head(TypedDict):
    """What the records of all verbs begin with."""

    vtax_version: str
    host: str
    command_line: tuple[str, ...]
    started_utc: str
    finished_utc: str | None


@dataclass(eq=False)
class Campaign(ABC, Generic[Q, R]):
    """The life of a run folder, from its first record to its last."""

    keeps_empty_table: ClassVar[bool] = False
    """Whether the run has a table of samples even if nothing was measured."""

    request: Q
    folder: RunFolder
    listener: Listener
    start: Starter = boot
    clock: Callable[[], float] = time.monotonic
    state: State = field(default="running", init=False)
    samples: list[Sample] = field(default_factory=list, init=False)
    _started: str = field(default_factory=lambda: _now(), init=False)
    _saved: float = field(default_factory=time.monotonic, init=False)
    """When the record was saved last."""

    @property
    @abstractmethod
    def found(self) -> bool:
        """Whether anything was measured."""

    @property
    @abstractmethod
    def first_failure(self) -> str | None:
        """The message of the first failure."""

    @property
    def printed(self) -> Path:
        """The folder with what failed programs printed."""
        return self.folder.path

    @abstractmethod
    def record(self) -> R:
        """The record of what is known by now."""

    @abstractmethod
    def _measure(self) -> State:
        """Measure everything; every machine that was started has ended by the return."""

    def carry_out(self) -> R:
        """Run, and remove the folder when an error left no result.

        Raises VtaxError when nothing was measured, and what `run` raises.
        """
        try:
            record = self.run()
        except BaseException:
            if not self.found:
                shutil.rmtree(self.folder.path, ignore_errors=True)
            raise
        if not self.found and self.state != "interrupted":
            raise VtaxError(
                f"nothing was measured: {self.first_failure or 'no run was made'}",
                f"what it printed is in {self.printed}",
            )
        return record

    def run(self) -> R:
        """Run to the end, the budget's end or an interrupt; what was finished is kept.

        Raises VtaxError when a machine does not come up at the start, the campaign refuses one, or
        samples cannot be saved; every machine that was started has ended by then.
        """
        try:
            if self.request.spec:
                self.folder.write_spec(self.request.spec)
            self.state = self._measure()
        except KeyboardInterrupt:
            self.state = "interrupted"
        except BaseException:
            self.state = "failed"
            # The error says what went wrong, and there may be no room to write anything.
            with contextlib.suppress(VtaxError):
                self._close(with_table=False)
            raise
        return self._close(with_table=bool(self.samples) or self.keeps_empty_table)

    def _close(self, *, with_table: bool) -> R:
        self._ending()
        if with_table:
            self.folder.finish(self.samples)
        else:
            self.folder.clean_raw()
        return self._save()

    def _ending(self) -> None:
        """Called when every machine has ended, before anything is saved for the last time."""

    def _save(self) -> R:
        """Replace `run.json` by what is known now."""
        record = self.record()
        self.folder.write_record(record)
        self._saved = time.monotonic()
        return record

    def _keep(self, rows: Sequence[Sample] = ()) -> None:
        """Save a finished repetition: its samples at once, the record now and then."""
        if rows:
            self.folder.append(rows)
            self.samples += rows
        if time.monotonic() - self._saved >= SAVE_EVERY_S:
            self._save()

    def _head(self) -> Head:
        return Head(
            vtax_version=__version__,
            host=platform.node(),
            command_line=self.request.command_line,
            started_utc=self._started,
            finished_utc=None if self.state == "running" else _now(),
        )


@dataclass(eq=False)
class StagedCampaign(Campaign[Q, R], Keeper, Generic[Q, R, P]):
    """A campaign that measures points, each in a step of its own; P says what a step is for."""

    _order: Interleaving = field(init=False)
    _points: dict[tuple[str, str], P] = field(default_factory=dict, init=False)
    """What each step is for, by its variant and its folder."""

    def __post_init__(self) -> None:
        self._order = Interleaving(self.request.seed)

    @abstractmethod
    def _variants(self) -> Sequence[Variant]: ...

    @abstractmethod
    def _stages(self) -> Iterator[Sequence[Step]]:
        """The steps to run. Each stage is asked for when the one before it has run."""

    def ready(self) -> None:
        self._save()

    def _measure(self) -> State:
        return Runner(self._plan(), self, self.listener, self.start, self.clock).run()

    def _plan(self) -> Plan:
        """What to run. Raises MisuseError for a problem that does not fit."""
        stages = self._stages()
        first = next(stages)
        self.listener.extended(len(first))
        return Plan(
            self._variants(),
            first,
            self.request.variables,
            more=lambda: self._further(stages),
            budget_s=self.request.budget_s,
            workdir=self.request.workdir,
            matched=True,
        )

    def _further(self, stages: Iterator[Sequence[Step]]) -> Sequence[Step]:
        """The next stage that has steps; empty at the end."""
        steps = next((stage for stage in stages if stage), ())
        if steps:
            self.listener.extended(len(steps))
            self._save()
        return steps

    def _step(
        self,
        variant: str,
        number: int,
        command: Command,
        folder: str,
        out: Path,
        point: P,
        *,
        own_round: int = 0,
        cpus: Sequence[int] = (),
    ) -> Step:
        self._points[variant, folder] = point
        return Step(variant, number, command, folder, out, round=own_round, cpus=cpus)

    def _point(self, of: Step | Repetition) -> P:
        """What a step is for, also of the repetition that warms up for it."""
        key = (of.variant, of.folder) if isinstance(of, Step) else (of.label, of.step)
        return self._points[key]


def require_limited(machine: MachineLike) -> None:
    """Raise VtaxError when the machine could not limit its memory, as its environment asks."""
    if reason := machine.hello.get("memory_limit_error"):
        raise VtaxError(f"its memory is not limited: {reason}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
