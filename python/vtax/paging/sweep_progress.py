"""Showing on standard error how far a sweep is: a bar on a terminal, lines in a log, or nothing."""

from __future__ import annotations

import sys
import time
from typing import Protocol

LINE_EVERY_S = 1.0


class Listener(Protocol):
    """Told what happens."""

    def started(self, total: int, kept: int, where: str) -> None:
        """`kept` of `total` points are there from an earlier run."""

    def finished(self, label: str, error: str | None, wall_s: float | None) -> None:
        """One more point, on a worker for `wall_s`."""

    def stopped(self) -> None:
        """No more points."""


class Silent:
    """For --quiet."""

    def started(self, total: int, kept: int, where: str) -> None: ...

    def finished(self, label: str, error: str | None, wall_s: float | None) -> None: ...

    def stopped(self) -> None: ...


class Lines:
    """Lines for logs and pipes: each failure, and of the other points one a second."""

    def __init__(self) -> None:
        self._total = self._done = 0
        self._last = 0.0

    def started(self, total: int, kept: int, where: str) -> None:
        self._total, self._done = total, kept
        earlier = f", {kept} of them from before" if kept else ""
        _say(f"{total} points{earlier}; {where}")

    def finished(self, label: str, error: str | None, wall_s: float | None) -> None:
        self._done += 1
        count = f"[{self._done}/{self._total}] {label}"
        if error is not None:
            _say(f"{count} failed: {error}")
            return
        now = time.monotonic()
        if now - self._last >= LINE_EVERY_S or self._done == self._total:
            self._last = now
            _say(count if wall_s is None else f"{count}: {wall_s:.3g} s")

    def stopped(self) -> None: ...


class Bar:
    """A bar; failures stay on the screen as lines."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            refresh_per_second=2,
            transient=True,
        )
        self._task = self._progress.add_task("starting")

    def started(self, total: int, kept: int, where: str) -> None:
        from rich.markup import escape

        self._progress.update(self._task, total=total, completed=kept, description=escape(where))
        self._progress.start()

    def finished(self, label: str, error: str | None, wall_s: float | None) -> None:
        from rich.markup import escape

        self._progress.advance(self._task)
        if error is not None:
            text = escape(f"{label} failed: {error}")
            self._progress.console.print(f"[yellow]{text}[/yellow]", soft_wrap=True)

    def stopped(self) -> None:
        self._progress.stop()


def listener(quiet: bool) -> Listener:
    """The way of showing progress that fits standard error."""
    if quiet:
        return Silent()
    return Bar() if sys.stderr.isatty() else Lines()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
