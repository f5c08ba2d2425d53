"""How far a study is, on standard error: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from vtax.studies.model import Progress

LINES = 10
"""How many lines a log gets at most."""


@contextmanager
def shown(quiet: bool) -> Iterator[Progress]:
    """A listener for as long as the study runs."""
    if quiet:
        yield lambda done, total, name: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        with Bar(
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
            transient=True,
        ) as bar:
            task = bar.add_task("starting", total=None)
            yield lambda done, total, name: bar.update(
                task, completed=done, total=total, description=name
            )
    else:
        yield _say


def _say(done: int, total: int, name: str) -> None:
    every = max(1, total // LINES)
    if done == total or done % every == 0:
        print(f"[{done}/{total}] {name}", file=sys.stderr, flush=True)
