"""A campaign in one run folder that keeps what was finished, whatever ends it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Generic, TypeVar

from vtax.formats.folder import OwnRecord, RunFolder
from vtax.formats.model import Sample
from vtax.runner.runner import Keeper, Listener, Plan, Runner, Starter, State, boot

R = TypeVar("R", bound=OwnRecord)


class Campaign(Keeper, ABC, Generic[R]):
    """A campaign of a verb whose result is a record: `memory`, `tune`, `place`."""

    def __init__(self, folder: RunFolder, listener: Listener, start: Starter = boot) -> None:
        self._folder = folder
        self._listener = listener
        self._start = start
        self._samples: list[Sample] = []
        self._started = _now()

    @property
    @abstractmethod
    def found(self) -> bool:
        """Whether anything was measured."""

    @property
    @abstractmethod
    def first_failure(self) -> str | None:
        """The message of the first failure."""

    @abstractmethod
    def record(self, state: State) -> R:
        """The record of what is known by now."""

    @abstractmethod
    def _plan(self) -> Plan: ...

    def run(self) -> R:
        """Run everything; what was finished is kept after an interrupt, and after an error.

        Raises VtaxError when a machine does not come up, or the campaign refuses one.
        """
        state: State = "failed"
        try:
            state = Runner(self._plan(), self, self._listener, self._start).run()
        except KeyboardInterrupt:
            state = "interrupted"
        finally:
            self._ending()
            if self._samples:
                self._folder.finish(self._samples)
            record = self.record(state)
            self._folder.write_record(record)
        return record

    def ready(self) -> None:
        self._save()

    def _ending(self) -> None:
        """Called when every machine has ended."""

    def _save(self) -> None:
        self._folder.write_record(self.record("running"))

    def _keep(self, rows: Sequence[Sample]) -> None:
        """Save samples at once."""
        self._folder.append(rows)
        self._samples += rows

    def _finished(self, state: State) -> str | None:
        """The time at which the campaign ended; None: it still runs."""
        return None if state == "running" else _now()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
