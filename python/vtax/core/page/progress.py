"""Progress of some work: a bar on a terminal, plain lines in a log, or nothing.

Everything goes to standard error; standard output is for results.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from vtax.core.runner.runner import Listener, State


class Progress:
    """Shows nothing, for --quiet. The two subclasses show what their methods are told."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def begin(self, total: int, done: int = 0, text: str = "") -> None:
        """`done` of `total` pieces are finished already; `text` says what they are and where."""

    def now(self, text: str) -> None:
        """`text` says what is going on; only a bar shows it."""

    def announce(self, text: str) -> None:
        """`text` says what is going on and takes so long that a log shows it too."""

    def step(self, text: str) -> None:
        """One more piece is done."""

    def failed(self, text: str) -> None:
        """One more piece is done, without success: the line stays."""

    def reach(self, done: int, total: int, text: str) -> None:
        """`done` pieces are finished, of which `text` is the last."""

    def flow(self, done: float, total: float | None, text: str, amount: str) -> None:
        """`done` of an amount without pieces is finished; `total` None: unknown."""

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def stop(self) -> None:
        """End the progress: nothing more comes."""


class Lines(Progress):
    """For logs and pipes: shows every failure, and the last success once each `every_s`."""

    def __init__(self, every_s: float = 0.0) -> None:
        self._every_s = every_s
        self._total = self._done = 0
        self._last: float | None = None

    def begin(self, total: int, done: int = 0, text: str = "") -> None:
        self._total, self._done = total, done
        if text:
            self.say(text)

    def announce(self, text: str) -> None:
        self.say(text)

    def step(self, text: str) -> None:
        self.reach(self._done + 1, self._total, text)

    def failed(self, text: str) -> None:
        self._done += 1
        self.say(f"[{self._done}/{self._total}] {text}")

    def reach(self, done: int, total: int, text: str) -> None:
        self._done, self._total = done, total
        if self._last is None or self._due() or done == total:
            self._last = time.monotonic()
            self.say(f"[{done}/{total}] {text}")

    def flow(self, done: float, total: float | None, text: str, amount: str) -> None:
        if self._last is None or self._due():
            if self._last is not None:
                self.say(f"{text}: {amount}")
            self._last = time.monotonic()

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _due(self) -> bool:
        return self._last is not None and time.monotonic() - self._last >= self._every_s


class Bar(Progress):
    """A bar with what is going on now; failures stay on the screen as lines."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Shown

        # Twice a second: redrawing must not take the CPU that is being measured.
        self._shown = Shown(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(stderr=True),
            refresh_per_second=2,
            transient=True,
        )
        self._task = self._shown.add_task("starting", total=None, amount="")
        self._shown.start()

    def begin(self, total: int, done: int = 0, text: str = "") -> None:
        self.reach(done, total, text or "starting")

    def now(self, text: str) -> None:
        self._shown.update(self._task, description=text)

    def announce(self, text: str) -> None:
        self.now(text)

    def step(self, text: str) -> None:
        task = self._shown.tasks[0]
        self.reach(int(task.completed) + 1, int(task.total or 0), task.description)

    def failed(self, text: str) -> None:
        self.step(text)
        self._shown.console.print(
            text, style="yellow", markup=False, highlight=False, soft_wrap=True
        )

    def reach(self, done: int, total: int, text: str) -> None:
        self.flow(done, total, text, f"{done}/{total}")

    def flow(self, done: float, total: float | None, text: str, amount: str) -> None:
        self._shown.update(self._task, completed=done, total=total, description=text, amount=amount)

    def say(self, text: str) -> None:
        self._shown.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        self._shown.stop()


def progress(quiet: bool, every_s: float = 0.0) -> Progress:
    """The kind of progress that fits standard error."""
    if quiet:
        return Progress()
    return Bar() if sys.stderr.isatty() else Lines(every_s)


STATE_TEXT: dict[State, str] = {
    "running": "running",
    "complete": "complete",
    "interrupted": "interrupted: what was finished is kept",
    "budget": "budget used up: no more repetitions",
    "failed": "failed",
}


class CampaignProgress(Listener):
    """A campaign's listener that shows its repetitions."""

    def __init__(self, shown: Progress, total: int) -> None:
        self._shown = shown
        self._total = total
        shown.begin(total)

    def booting(self, label: str) -> None:
        self._shown.announce(f"starting {label}")

    def warming(self, label: str) -> None:
        self._shown.announce(f"warming up {label}")

    def running(self, label: str, repetition: int) -> None:
        self._shown.now(f"{label} repetition {repetition + 1}")

    def finished(self, label: str, repetition: int, wall_s: float) -> None:
        self._shown.step(f"{label} repetition {repetition + 1}: {wall_s:.3g} s")

    def failed(self, label: str, repetition: int, message: str) -> None:
        self._shown.failed(f"{label} repetition {repetition + 1} failed: {message}")

    def extended(self, steps: int) -> None:
        self._total += steps
        self._shown.begin(self._total, self._total - steps)

    def stopped(self, state: State) -> None:
        self._shown.stop()
        if state != "complete":
            self._shown.say(STATE_TEXT[state])


def listener(quiet: bool, total: int = 0) -> CampaignProgress:
    """A campaign's listener that fits standard error; `total`: the steps of which it is not told by
    `extended`."""
    return CampaignProgress(progress(quiet), total)
