"""`vtax record`: rows of events of every layer, one for each interval, into a run folder."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.cli import options
from vtax.cli.declared import (
    DeclaredWithSources,
    EnvOption,
    ShareOption,
    complete_events,
    complete_spec,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vtax.record.options import RecordOptions
    from vtax.runner.given import Wishes
    from vtax.runner.recording import Recorded

EXAMPLES = """\b
Examples:
  vtax record --every 50Mi --events default,kvm -- make test
  vtax record --every 1ms --vm all --for 30s
  vtax record --in lab:guests=2 --every 1ms -- gzip-like --seconds 5
  vtax record --list

\b
Then: vtax timeline RUN --event kvm.exits     vtax correlate RUN     docs/record.md
"""


class From(StrEnum):
    """Where the recorder runs."""

    HOST = "host"
    """From outside the machine: its VM exits, and what its processes do on this host."""
    GUEST = "guest"
    """From inside: the guest's kernel, and the counters that the host may not read."""


COUNTED_WHOLE = 0.999
"""If the reference event had a counter for a smaller share of the time, vtax says for how much."""
INTERRUPTED = 130
"""Exit code when Ctrl-C ended the workload of `--in` too."""

SETTINGS: dict[str, Any] = {
    "cls": DeclaredWithSources,
    "short_help": "Record events of every layer, a row for each interval.",
    "epilog": EXAMPLES,
    "context_settings": {"allow_interspersed_args": False, "ignore_unknown_options": False},
}


def record(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Only it and its children are counted.", metavar="[-- COMMAND...]"),
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(
            "--in",
            help="Run COMMAND in this environment.",
            metavar="SPEC",
            autocompletion=complete_spec,
        ),
    ] = None,
    recorder: Annotated[
        From, typer.Option("--from", help="Where the recorder of --in runs.", case_sensitive=False)
    ] = From.HOST,
    every: Annotated[
        str | None,
        typer.Option(help="Interval: instructions (2M to 400M) or 50us to 1s.", metavar="LENGTH"),
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(
            help="Events, layers or default, with commas.",
            metavar="NAMES",
            autocompletion=complete_events,
        ),
    ] = None,
    vm: Annotated[
        str | None, typer.Option(help="Only this virtual machine, or all.", metavar="PID|all")
    ] = None,
    pid: Annotated[
        int | None, typer.Option(help="Only this process and its children.", metavar="PID")
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--for", help="End after this time, e.g. 30s.", metavar="TIME")
    ] = None,
    guest: Annotated[
        Path | None,
        typer.Option(help="Page in which a guest publishes counters.", metavar="PATH"),
    ] = None,
    counters: Annotated[
        int | None,
        typer.Option(help="Use at most N counters at a time; more events take turns.", metavar="N"),
    ] = None,
    overhead: Annotated[
        bool, typer.Option("--overhead", help="Measure what recording costs (costs more).")
    ] = False,
    max_output: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help="With --in: stop COMMAND when it writes more into its folder."
        ),
    ] = "1G",
    out: Annotated[
        Path | None,
        typer.Option(help="The run folder. Default: runs/<UTC>-<name>.", metavar="DIR"),
    ] = None,
    workdir: Annotated[
        Path | None,
        typer.Option(help="With --in: run COMMAND there. Default: here.", metavar="DIR"),
    ] = None,
    share: ShareOption = None,
    env: EnvOption = None,
    list_events: Annotated[
        bool, typer.Option("--list", help="Print all events, and why some are absent.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Record events of hardware, VMM, kernel, guest and application, a row for each interval.

    Recording ends with COMMAND, the process, --for, or Ctrl-C; the files are complete then. The
    exit code is the recorder's; vtax says how COMMAND ended. With --in, COMMAND gets your standard
    input and your variables as in vtax compare.
    """
    from vtax.errors import MisuseError
    from vtax.record.options import RecordOptions, Target
    from vtax.record.recorder import listing

    if list_events:
        raise typer.Exit(listing(as_json))
    options = RecordOptions(every, events, duration, guest, overhead, counters)
    argv = tuple(command or ())
    _require_one(("COMMAND", bool(argv)), ("--pid", pid is not None), ("--vm", vm is not None))
    if environment is None:
        if workdir is not None:
            raise MisuseError("--workdir needs --in", "without it COMMAND runs where vtax does")
        if share:
            raise MisuseError("--share needs --in", "without it COMMAND sees all that you do")
        if env:
            raise MisuseError("--env needs --in", "without it COMMAND has all your variables")
        if recorder is From.GUEST:
            raise MisuseError("--from guest needs a guest", "name one with --in")
        raise typer.Exit(_natively(Target(pid, vm, argv), options, out, as_json))
    if pid is not None or vm is not None:
        raise MisuseError("--in records what it starts", "leave out --pid and --vm")
    from vtax.runner.given import Wishes
    from vtax.units import parse_size

    limit_bytes = parse_size(max_output)
    wishes = Wishes(share or (), named=env or ())
    _inside(environment, argv, options, out, as_json, recorder, workdir, limit_bytes, wishes)


def _require_one(*choices: tuple[str, bool]) -> None:
    from vtax.errors import MisuseError

    given = [name for name, is_given in choices if is_given]
    if len(given) > 1:
        raise MisuseError(f"{' and '.join(given)} exclude each other", "name one of them")


def _natively(target: Any, options: RecordOptions, out: Path | None, as_json: bool) -> int:
    from vtax.record.native import record as record_natively
    from vtax.record.recorder import summary

    path, code = record_natively(target, options, out, as_json)
    if path is not None:
        found = summary(path)
        _show(path, found, _end_of(found), as_json)
    return code


def _inside(
    spec: str,
    argv: Sequence[str],
    options: RecordOptions,
    out: Path | None,
    as_json: bool,
    recorder: From,
    workdir: Path | None,
    max_output_bytes: int,
    wishes: Wishes,
) -> None:
    from vtax import environments
    from vtax.cli import standard_input
    from vtax.record.recorder import summary
    from vtax.runner.recording import record_in

    done = record_in(
        environments.build(spec),
        spec,
        argv,
        options,
        out,
        by_guest=recorder is From.GUEST,
        workdir=workdir,
        max_output_bytes=max_output_bytes,
        wishes=wishes,
        stdin=standard_input.read().content,
        note=lambda said: print(f"note: {said}", file=sys.stderr),
    )
    if not as_json:
        _echo(done)
    ends = [_ended(each.exit_code, each.signal) for each in done.outcomes]
    _show(done.path, summary(done.path), "; ".join(dict.fromkeys(ends)), as_json)
    if done.interrupted:
        raise typer.Exit(INTERRUPTED)


def _echo(done: Recorded) -> None:
    """Print what the workload printed."""
    from vtax.formats.exchange import Exchange

    for folder in done.outputs:
        exchange = Exchange(folder.parent, folder.name)
        for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
            stream.write(exchange.read_text(name))
            stream.flush()


def _show(path: Path, found: Mapping[str, Any] | None, end: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"run": str(path), "command": end or None, "record": found}, indent=1))
        return
    if found is None:
        said = "the recorder did not finish: rows are those up to its last flush"
        print(f"vtax: {said}", file=sys.stderr)
    else:
        for warning in found.get("warnings", ()):
            print(f"vtax: {warning}", file=sys.stderr)
        reference = str(found.get("reference", "?")).replace("_", " ")
        running = found.get("reference_running")
        if isinstance(running, float) and running < COUNTED_WHOLE:
            reference += f" in {100 * running:.1f} % of the time"
        print(f"{found.get('rows')} rows, {found.get('lost')} lost; reference: {reference}")
    if end:
        print(end)
    print(f"run: {path}")


def _end_of(found: Mapping[str, Any] | None) -> str:
    end = (found or {}).get("end", {}).get("command")
    if not isinstance(end, dict):
        return "the command was ended with the recording" if end == "running" else ""
    return _ended(end.get("exit_code"), end.get("signal"))


def _ended(code: int | None, number: int | None) -> str:
    if number is not None:
        return f"the command was ended by signal {number}"
    return f"the command ended with code {code}"
