"""Showing how far a campaign is: a bar on a terminal, plain lines in a log, or nothing.

Everything goes to standard error; standard output is for results.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vtax.runner.runner import Listener, State

if TYPE_CHECKING:
    from rich.progress import Progress

STATE_TEXT: dict[State, str] = {
    "running": "running",
    "complete": "complete",
    "interrupted": "interrupted: what was finished is kept",
    "budget": "budget used up: no more repetitions",
    "failed": "failed",
}


class Lines(Listener):
    """One line per event, for logs and pipes."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def booting(self, label: str) -> None:
        _say(f"starting {label}")

    def finished(self, label: str, repetition: int, wall_s: float) -> None:
        self._done += 1
        _say(f"[{self._done}/{self._total}] {label} repetition {repetition + 1}: {wall_s:.3g} s")

    def failed(self, label: str, repetition: int, message: str) -> None:
        self._done += 1
        _say(f"[{self._done}/{self._total}] {label} repetition {repetition + 1} failed: {message}")

    def stopped(self, state: State) -> None:
        if state != "complete":
            _say(STATE_TEXT[state])


class Bar(Listener):
    """A bar with what is going on now; failures stay on the screen as lines."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        # Twice a second: redrawing must not take the CPU that is being measured.
        self._progress: Progress = Progress(
            *columns,
            TimeRemainingColumn(),
            console=Console(stderr=True),
            refresh_per_second=2,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=total)
        self._progress.start()

    def booting(self, label: str) -> None:
        self._describe(f"starting {label}")

    def warming(self, label: str) -> None:
        self._describe(f"warming up {label}")

    def running(self, label: str, repetition: int) -> None:
        self._describe(f"{label} repetition {repetition + 1}")

    def finished(self, label: str, repetition: int, wall_s: float) -> None:
        self._progress.advance(self._task)

    def failed(self, label: str, repetition: int, message: str) -> None:
        from rich.markup import escape

        self._progress.advance(self._task)
        text = f"{label} repetition {repetition + 1} failed: {message}"
        self._progress.console.print(f"[yellow]{escape(text)}[/yellow]", soft_wrap=True)

    def stopped(self, state: State) -> None:
        self._progress.stop()
        if state != "complete":
            _say(STATE_TEXT[state])

    def _describe(self, text: str) -> None:
        from rich.markup import escape

        self._progress.update(self._task, description=escape(text))


def listener(total: int, quiet: bool) -> Listener:
    """The way of showing progress that fits standard error."""
    if quiet:
        return Listener()
    return Bar(total) if sys.stderr.isatty() else Lines(total)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
