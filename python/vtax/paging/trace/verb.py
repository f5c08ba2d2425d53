"""`vtax paging trace`: what a command in an emulated guest loads and stores, as a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.core.command import options
from vtax.core.command.options import Env, Share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtax.core.runner.given import Given, Wishes
    from vtax.environments.traced_qemu import Guest, Sampling
    from vtax.paging.result import SimulationResult
    from vtax.paging.trace.campaign import Traced

EXAMPLES = """\b
Examples:
  vtax paging trace --out gzip.vtrace -- gzip -kc /usr/bin/python3
  vtax paging trace --out py.vtrace --user-only -- python3 -c 'print(sum(range(10**5)))'
  vtax paging trace --out db.vtrace --json -- sqlite3 :memory: 'select 1'
  vtax paging trace --online --mode nested,shadow,dav2m --out windows -- python3 long.py
  vtax paging trace --sample 10M --every 1G --out long.vtrace -- python3 long.py
  vtax paging simulate gzip.vtrace --mode native,nested,shadow

\b
The guest is emulated and has one CPU; it sees this machine's files read-only. The trace has what
its kernel loads and stores, too, and each change of its page tables: docs/trace-format.md.
"""

SETTINGS: dict[str, Any] = {
    "short_help": "Trace what a program in an emulated guest references.",
    "epilog": EXAMPLES,
    "context_settings": {"allow_interspersed_args": False, "ignore_unknown_options": False},
}
INTERRUPTED = 130
SIGNALLED = 128
SHORTEST_SAMPLE = 100_000
LONGEST_DISTANCE = 10**12


def trace(
    workload: Annotated[
        list[str] | None,
        typer.Argument(help="The command and its options, after --.", metavar="WORKLOAD"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The trace; it is replaced. With --online a folder for windows, exits and "
            "switches as Parquet.",
            metavar="FILE|DIR",
        ),
    ] = None,
    online: Annotated[
        bool,
        typer.Option("--online", help="Keep no trace: simulate while the program runs."),
    ] = False,
    machine: Annotated[
        str,
        typer.Option(help="With --online: what to model (vtax paging machines).", metavar="NAME"),
    ] = "opteron2350",
    mode: Annotated[
        str,
        typer.Option(help="With --online: modes, separated by commas.", metavar="MODES"),
    ] = "native,shadow,nested",
    window: Annotated[
        str,
        typer.Option(help="With --online: length of a window in instructions.", metavar="COUNT"),
    ] = "1M",
    sample: Annotated[
        str | None,
        typer.Option(
            help="For programs of minutes: record the references of samples of N instructions "
            "(10M), whose first half is for warm-up, and only count between.",
            metavar="COUNT",
        ),
    ] = None,
    every: Annotated[
        str,
        typer.Option(help="With --sample: one sample in each N instructions.", metavar="COUNT"),
    ] = "1G",
    user_only: Annotated[
        bool,
        typer.Option(
            "--user-only",
            help="Leave out what the kernel loads and stores; its instructions count.",
        ),
    ] = False,
    memory: Annotated[
        str, typer.Option("--mem", help="The guest's memory, at most 2G.", metavar="SIZE")
    ] = "1G",
    kernel: Annotated[
        Path | None,
        typer.Option(help="A vmlinuz-RELEASE. Default: found or fetched.", metavar="FILE"),
    ] = None,
    share: Share = None,
    env: Env = None,
    timeout: options.Timeout = None,
    warm_up: Annotated[
        bool,
        typer.Option("--warm-up", help="Trace the command twice: its second run is phase 1."),
    ] = False,
    slowdown: Annotated[
        bool,
        typer.Option("--slowdown/--no-slowdown", help="Run once more without the trace."),
    ] = True,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a command in an emulated guest and write every load and store of it into a file.

    Needs QEMU 9.2 or newer: this machine's, or the one of Debian's backports, which is fetched
    into the cache and not installed. What the command prints goes to standard error. Ctrl-C ends
    the command and keeps what was traced. The command gets your standard input and your variables
    as in vtax compare.
    """
    from vtax.core.command import standard_input
    from vtax.core.errors import MisuseError
    from vtax.core.page.progress import progress
    from vtax.core.runner.given import Wishes
    from vtax.core.units import parse_duration
    from vtax.paging.trace.campaign import Wanted
    from vtax.paging.trace.campaign import trace as carry_out

    if not workload:
        raise MisuseError("no workload", "name one after --, e.g. -- gzip -kc FILE")
    if out is None and not online:
        raise MisuseError("no file for the trace", "use --out FILE, or --online to keep none")
    simulated = _Simulated(machine, mode, window, out) if online else None
    wishes = Wishes(share or (), named=env or ())
    guest, gets = _prepared(workload, memory, kernel, wishes)
    for said in () if quiet else gets.said:
        print(f"note: {said}", file=sys.stderr)
    wanted = Wanted(
        argv=workload,
        variables=gets.environment,
        workdir=gets.shown.working,
        stdin=standard_input.read().content,
        out=None if online else out,
        consume=simulated,
        user_only=user_only,
        compare=slowdown,
        warm_up=warm_up,
        sampling=None if sample is None else _sampling(sample, every),
        timeout_s=None if timeout is None else parse_duration(timeout),
    )
    with progress(quiet) as told:
        done = carry_out(wanted, guest, told.announce)
    found = simulated.found() if simulated else None
    if as_json:
        print(json.dumps(_as_json(done) | ({"simulation": found} if found else {})))
    else:
        print("\n".join(_lines(done)))
        if simulated:
            simulated.show()
    if done.outcome is None:
        raise typer.Exit(INTERRUPTED)
    if done.outcome.signal is not None:
        raise typer.Exit(SIGNALLED + done.outcome.signal)
    raise typer.Exit(done.outcome.exit_code or 0)


def _sampling(sample: str, every: str) -> Sampling:
    """Which intervals are recorded."""
    from vtax.core.errors import MisuseError
    from vtax.environments.traced_qemu import Sampling
    from vtax.paging.arguments import count

    sample_length, distance = count("--sample", sample), count("--every", every)
    if not SHORTEST_SAMPLE <= sample_length <= distance <= LONGEST_DISTANCE:
        raise MisuseError(
            f"--sample {sample} --every {every} does not fit",
            "a sample is 100K instructions or more, and --every no less, at most 1T",
        )
    return Sampling(sample_length // 2, 2 * distance // sample_length)


class _Simulated:
    """The simulation at the end of the pipe."""

    def __init__(self, machine: str, mode: str, window: str, out: Path | None) -> None:
        from vtax.paging import files
        from vtax.paging.inputs import find_machine
        from vtax.paging.mode import choose
        from vtax.paging.settings import checked

        self._machine = find_machine(machine)
        self._modes = choose([name.strip() for name in mode.split(",")], {})
        self._settings = checked({"window": window})
        self._out = out
        self._result: SimulationResult | None = None
        if out is not None:
            files.prepare(out)

    def __call__(self, pipe: Path) -> None:
        from vtax.paging import files
        from vtax.paging.inputs import find_workload
        from vtax.paging.run import execute

        subject = find_workload(pipe)
        self._result = execute(subject, self._machine, self._modes, self._settings)
        if self._out is not None:
            files.write(self._result, self._out)

    def found(self) -> dict[str, Any] | None:
        """The result as `vtax paging simulate --json` prints it."""
        from vtax.paging import files

        return files.to_json(self._result) if self._result else None

    def show(self) -> None:
        """Show the result as `vtax paging simulate` does."""
        from vtax.core.page.render_terminal import show
        from vtax.core.page.tables import UNFOLDED
        from vtax.paging import page as simulation

        if self._result:
            show(simulation.page(self._result), UNFOLDED)


def _prepared(
    workload: Sequence[str], memory: str, kernel: Path | None, wishes: Wishes
) -> tuple[Guest, Given]:
    """The guest, and what the command gets."""
    from vtax.core.runner.given import given
    from vtax.environments import sharing, traced_qemu
    from vtax.environments.base import working_folder
    from vtax.workloads import programs

    guest = traced_qemu.guest({"mem": memory} | ({"kernel": str(kernel)} if kernel else {}))
    machine = {"the guest": guest}
    gets = given(machine, workload[:1], working_folder(None, machine), wishes)
    guest = guest.with_shown(gets.shown)
    folder = gets.shown.working or Path("/")
    program = programs.require(workload[0], gets.environment["PATH"], folder, "check its name")
    sharing.require_seen({"the guest": guest}, program)
    return guest, gets


def _as_json(done: Traced) -> dict[str, Any]:
    each = done.bytes_per_reference
    return {
        "file": None if done.file is None else str(done.file),
        "references": done.references,
        "instructions": done.instructions,
        "intervals": done.intervals or None,
        "recorded_intervals": done.recorded_intervals if done.intervals else None,
        "bytes_per_reference": None if each is None else round(each, 4),
        "slowdown": None if done.slowdown is None else round(done.slowdown, 2),
        "slowdown_reason": done.slowdown_reason,
        "qemu": done.qemu,
        "page_faults": done.faults,
        "table_writes": done.table_writes,
        "cr3_loads": done.cr3_loads,
        "invlpg": done.invlpg,
    }


def _lines(done: Traced) -> list[str]:
    each = done.bytes_per_reference
    slower = (
        f"{done.slowdown:.1f} times the time without the trace"
        if done.slowdown is not None
        else f"slowdown not measured: {done.slowdown_reason}"
    )
    size = "" if each is None else f", {each:.2f} bytes each"
    return [
        f"{done.references:,} references{size}, {done.instructions:,} instructions",
        *(
            [f"recorded: {done.recorded_intervals:,} of {done.intervals:,} intervals"]
            if done.intervals
            else []
        ),
        f"{done.faults:,} page faults, {done.table_writes:,} writes to page tables, "
        f"{done.cr3_loads:,} loads of CR3, {done.invlpg:,} single pages invalidated",
        f"QEMU {done.qemu}, {slower}",
        *([f"written: {done.file}"] if done.file else []),
    ]
