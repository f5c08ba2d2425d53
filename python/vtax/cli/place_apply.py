"""`vtax place apply` and `watch`: put threads of this host on fast and slow cores.

The work is done by the static program `vtax-place`, because the host that needs it may have no
Python. These commands give it help, completion and a line among the other verbs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from vtax.cli.place_advise import Fast, Pids, PredictorFile, Rate, Run, Runs, Slow

if TYPE_CHECKING:
    from vtax.formats.place import Predictor

APPLY_EXAMPLES = """\b
Examples:
  vtax place advise --fast 0-3 --slow 4-7 --plan plan.toml
  vtax place apply --plan plan.toml
  vtax place apply --undo

\b
Needs root. It is a transaction: all moves are made and read back, or none stays. If vtax is
killed on the way, or afterwards, --undo brings every thread back.
"""

WATCH_EXAMPLES = """\b
Examples:
  vtax place watch --fast 0-3 --slow 4-7
  vtax place watch --fast 0-3 --slow 4-7 --apply --budget 2%
  vtax place watch --apply --for 1h --json

\b
Ctrl-C puts everything back. If it is killed, 'vtax place apply --undo' does. Tried with --apply on
processes that stand in for guests only, never on a host with slow cores: stay beside it.
"""

APPLY_SETTINGS: dict[str, Any] = {
    "name": "apply",
    "short_help": "Put threads where a plan has them, or take it back.",
    "epilog": APPLY_EXAMPLES,
}
WATCH_SETTINGS: dict[str, Any] = {
    "name": "watch",
    "short_help": "Move one thread at a time, and take back what hurts.",
    "epilog": WATCH_EXAMPLES,
}

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
State = Annotated[Path | None, typer.Option("--state", hidden=True, metavar="DIR")]


def apply(
    plan: Annotated[
        Path | None,
        typer.Option(help="A plan, as 'vtax place advise' writes it.", metavar="FILE"),
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Put all back where it was before the plan in force.")
    ] = False,
    as_json: AsJson = False,
    state: State = None,
) -> None:
    """Put threads and interrupts on the CPUs of a plan: all of it, or nothing.

    A plan for another host, a thread that serves no guest, or a CPU that is not on is refused
    before anything is moved. Threads that have ended in the meantime are skipped and named.
    """
    from vtax.errors import MisuseError

    if undo == (plan is not None):
        raise MisuseError(
            "both --plan and --undo are given" if undo else "--plan is missing",
            "give --plan FILE to move threads, or --undo alone to take a plan back",
        )
    options = [] if undo else ["--plan", str(plan)]
    options += ["--state", str(state)] if state else []
    _become("undo" if undo else "apply", [*options, *["--json"] * as_json])


def watch(
    run: Run = None,
    runs: Runs = Path("runs"),
    predictor: PredictorFile = None,
    fast: Fast = None,
    slow: Slow = None,
    slow_speed: Annotated[
        str | None,
        typer.Option(
            help="Speed of slow cores. Default: by the kernel, where it says so.",
            metavar="PERCENT",
        ),
    ] = None,
    rate: Rate = None,
    pid: Pids = None,
    carry_out: Annotated[
        bool, typer.Option("--apply", help="Move threads; without it, only say what would be done.")
    ] = False,
    every: Annotated[
        str | None, typer.Option(help="How often to look. Default: 5s.", metavar="TIME")
    ] = None,
    seconds: Annotated[
        str | None, typer.Option("--for", help="End after this time.", metavar="TIME")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="What a guest may lose. Default: 5 %.", metavar="PERCENT"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each look.")
    ] = False,
    state: State = None,
) -> None:
    """Look again and again at which threads belong on slow cores, and move one at a time.

    It measures what each move does and takes back what hurts a guest. Without --apply it moves
    nothing. Without a run that predicts anything it can only report.
    """
    from vtax.place.predictors import find
    from vtax.present.format import one_line

    found = find(run, predictor, runs)
    if found.why:
        print(f"vtax: {one_line(found.why)}", file=sys.stderr)
    given = {
        "--predictor": _handed_over(found.predictor),
        "--fast": fast,
        "--slow": slow,
        "--slow-speed": slow_speed,
        "--rate": rate,
        "--every": every,
        "--for": seconds,
        "--budget": budget,
        "--state": state,
    }
    options = [word for name, value in given.items() if value for word in (name, str(value))]
    options += [word for each in pid or () for word in ("--pid", str(each))]
    _become("watch", [*options, *["--apply"] * carry_out, *["--json"] * as_json])


def _handed_over(predictor: Predictor | None) -> str | None:
    """The path of a file in memory that the program inherits; the file ends with the program."""
    if predictor is None:
        return None
    descriptor = os.memfd_create("predictor", 0)
    with os.fdopen(os.dup(descriptor), "w") as file:
        file.write(predictor.model_dump_json())
    return f"/proc/self/fd/{descriptor}"


def _become(verb: str, options: list[str]) -> NoReturn:
    """Replace this process: signals, output and exit code are then the program's own."""
    from vtax import binaries

    program = str(binaries.find("vtax-place"))
    os.execv(program, [program, verb, *options])
