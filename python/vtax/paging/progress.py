"""How far a simulation is: a bar on a terminal, nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vtax.paging.run import Progress


@contextmanager
def progress(workload: str, quiet: bool) -> Iterator[Progress | None]:
    """What `execute` tells of its progress; None when nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    amount = TextColumn("{task.fields[amount]} instructions")
    columns = (TextColumn(f"simulating {workload}"), BarColumn(), amount, TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, amount="0")

        def told(done: float, total: float | None) -> None:
            bar.update(task, completed=done, total=total, amount=f"{done / 1e6:,.0f} M")

        yield told
