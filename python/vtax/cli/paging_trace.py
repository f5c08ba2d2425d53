"""`vtax paging trace`: what a command in an emulated guest loads and stores, as a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.cli.declared import ShareOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtax.environments.traced_qemu import Guest
    from vtax.runner.tracing import Traced

EXAMPLES = """\b
Examples:
  vtax paging trace --out gzip.vtrace -- gzip -kc /usr/bin/python3
  vtax paging trace --out py.vtrace --user-only -- python3 -c 'print(sum(range(10**5)))'
  vtax paging trace --out db.vtrace --json -- sqlite3 :memory: 'select 1'
  vtax paging simulate gzip.vtrace --mode native,nested,shadow

\b
The guest is emulated and has one CPU; it sees this machine's files read-only. The trace has what
its kernel loads and stores, too, and each change of its page tables: docs/paging-trace.md.
"""

SETTINGS: dict[str, Any] = {
    "short_help": "Trace what a program in an emulated guest references.",
    "epilog": EXAMPLES,
    "context_settings": {"allow_interspersed_args": False, "ignore_unknown_options": False},
}
INTERRUPTED = 130
SIGNALLED = 128


def trace(
    out: Annotated[Path, typer.Option(help="The trace; it is replaced.", metavar="FILE")],
    workload: Annotated[
        list[str] | None,
        typer.Argument(help="The command and its options, after --.", metavar="WORKLOAD"),
    ] = None,
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
    share: ShareOption = None,
    timeout: Annotated[
        str | None, typer.Option(help="End the command after this time.", metavar="TIME")
    ] = None,
    slowdown: Annotated[
        bool,
        typer.Option("--slowdown/--no-slowdown", help="Run once more without the trace."),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Run a command in an emulated guest and write every load and store of it into a file.

    Needs QEMU 9.2 or newer: this machine's, or the one of Debian's backports, which is fetched
    into the cache and not installed. What the command prints goes to standard error. Ctrl-C ends
    the command and keeps what was traced.
    """
    from vtax.errors import MisuseError
    from vtax.present.terminal.progress import progress
    from vtax.runner.tracing import Wanted
    from vtax.runner.tracing import trace as carry_out
    from vtax.units import parse_duration

    if not workload:
        raise MisuseError("no workload", "name one after --, e.g. -- gzip -kc FILE")
    guest, variables, folder = _prepared(workload, memory, kernel, share or ())
    wanted = Wanted(
        argv=workload,
        variables=variables,
        workdir=folder,
        out=out,
        user_only=user_only,
        compare=slowdown,
        timeout_s=None if timeout is None else parse_duration(timeout),
    )
    with progress(quiet) as told:
        done = carry_out(wanted, guest, told.announce)
    if as_json:
        print(json.dumps(_as_json(done)))
    else:
        print("\n".join(_lines(done)))
    if done.outcome is None:
        raise typer.Exit(INTERRUPTED)
    if done.outcome.signal is not None:
        raise typer.Exit(SIGNALLED + done.outcome.signal)
    raise typer.Exit(done.outcome.exit_code or 0)


def _prepared(
    workload: Sequence[str], memory: str, kernel: Path | None, share: Sequence[Path]
) -> tuple[Guest, dict[str, str], Path | None]:
    """The guest, the command's variables, and the folder that it runs in."""
    from vtax import binaries
    from vtax.environments import sharing, traced_qemu
    from vtax.environments.base import working_folder
    from vtax.environments.hiding import Shown
    from vtax.workloads import programs
    from vtax.workloads.variables import base_environment, require_utf8

    guest = traced_qemu.guest({"mem": memory} | ({"kernel": str(kernel)} if kernel else {}))
    variables = base_environment(os.environ, keep_env=False)
    require_utf8(variables)
    variables["PATH"] = binaries.on_path(variables)
    folder = working_folder(None, {"the guest": guest})
    guest = guest.with_shown(Shown(folder, sharing.shown({"the guest": guest}, share)))
    program = programs.require(
        workload[0], variables["PATH"], folder or Path("/"), "check its name"
    )
    sharing.require_seen({"the guest": guest}, program)
    return guest, variables, folder


def _as_json(done: Traced) -> dict[str, Any]:
    each = done.bytes_per_reference
    return {
        "file": str(done.file),
        "references": done.references,
        "instructions": done.instructions,
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
        f"{done.faults:,} page faults, {done.table_writes:,} writes to page tables, "
        f"{done.cr3_loads:,} loads of CR3, {done.invlpg:,} single pages invalidated",
        f"QEMU {done.qemu}, {slower}",
        f"written: {done.file}",
    ]
