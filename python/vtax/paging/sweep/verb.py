"""`vtax paging sweep`: machines x modes x parameters, each combination simulated once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.core.command import options

if TYPE_CHECKING:
    from vtax.paging.sweep.run import Outcome

EXAMPLE = """\b
A design:
  workloads = ["swim", "gcc", "my-trace.champsim.xz"]
  machines = ["opteron2350", "my-machine.toml"]
  modes = ["native", "shadow", "nested", "dav2m", "my_policy.py:MyPolicy"]
  [simulation]
  instructions = 1e9
  [axes]
  host_page = ["4K", "2M"]
  costs.exit = { scale = [0.5, 1, 2] }
  dav2m.p_factor = [1.05, 1.1, 1.2]

\b
Examples:
  vtax paging sweep sweep.toml
  vtax paging sweep sweep.toml --resume
  vtax paging sweep sweep.toml --scheduler tcp://head-node:8786 --out results
"""

SETTINGS: dict[str, Any] = {
    "short_help": "Simulate machines x modes x parameters.",
    "epilog": EXAMPLE,
}

INTERRUPTED = 130
PROGRESS_EVERY_S = 1.0
"""Seconds between lines of a log."""


def sweep(
    design: Annotated[Path, typer.Argument(help="The design, a TOML file.", metavar="FILE")],
    scheduler: Annotated[
        str | None,
        typer.Option(help="A Dask scheduler. Default: processes here.", metavar="ADDRESS"),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=1024, metavar="N", help="Processes here. Default: one for each CPU."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the result. Default: runs/sweep-NAME.", metavar="DIR"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an earlier sweep stopped.")
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Simulate every combination of workload, machine and parameters under every mode.

    Each finished point is saved at once. A point that fails is marked with its reason and the
    sweep goes on; the exit code is then 1. All figures are modelled.
    """
    from vtax.core.errors import MisuseError
    from vtax.core.formats.folder import slug
    from vtax.core.page.progress import progress
    from vtax.paging.sweep.design import read_design
    from vtax.paging.sweep.run import SweepOptions
    from vtax.paging.sweep.run import sweep as run
    from vtax.paging.sweep.simulate import catalog, evaluate

    if scheduler is not None and workers is not None:
        raise MisuseError("--workers is for processes here, not for --scheduler", "give only one")
    checked = read_design(design, catalog())
    options = SweepOptions(
        folder=out or Path("runs") / f"sweep-{slug(checked.name)}",
        workers=_workers(workers, checked.size),
        scheduler=scheduler,
        resume=resume,
        command_line=("vtax", *sys.argv[1:]),
    )
    with progress(quiet, every_s=PROGRESS_EVERY_S) as shown:
        outcome = run(checked, options, evaluate, shown)
    show(outcome, as_json)
    raise typer.Exit(_exit_code(outcome))


def _workers(asked: int | None, points: int) -> int:
    from vtax.environments.base import allowed_cpus

    return asked or min(len(allowed_cpus()), points)


def show(outcome: Outcome, as_json: bool) -> None:
    """Print the result on standard output, and every failure on standard error."""
    from vtax.core.page import render_terminal
    from vtax.core.page.tables import UNFOLDED
    from vtax.paging.sweep import page as sweep
    from vtax.paging.sweep import run

    if as_json:
        print(json.dumps(run.as_json(outcome), indent=1))
    else:
        most = sweep.MOST_ROWS if sys.stdout.isatty() else None
        render_terminal.show(sweep.page(outcome, most), UNFOLDED)
    if not as_json:
        print(f"{outcome.state}: {len(outcome.points)} of {outcome.design.size} points; "
              f"{outcome.folder / 'sweep.parquet'}")  # fmt: skip
    if outcome.failures:
        print(f"{len(outcome.failures)} points failed:", file=sys.stderr)
        for point, error in outcome.failures:
            print(f"  {point.label}: {error}", file=sys.stderr)


def _exit_code(outcome: Outcome) -> int:
    if outcome.state == "interrupted":
        return INTERRUPTED
    return 1 if outcome.failures else 0
