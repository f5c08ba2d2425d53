"""`vtax record`: rows of events of every layer, one for each interval, into a run folder.

The recorder declares the options and checks them (`vtax-host asked`); what an environment, a run
folder and the words about the result need is here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from vtax.core.command import forwarded
from vtax.core.command.declared import complete_events, complete_spec
from vtax.core.command.forwarded import PROGRAM, TIMEOUT_S, Complete, Forwarded, become
from vtax.record.correlate import verb as correlate
from vtax.record.export import verb as export
from vtax.record.timeline import verb as timeline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vtax.core.recorder.options import RecordOptions
    from vtax.record.campaign import Recorded

COUNTED_WHOLE = 0.999
"""If the reference event had a counter for a smaller share of the time, vtax says for how much."""
INTERRUPTED = 130
"""Exit code when Ctrl-C ended the workload of `--in` too."""
RECORDER_OPTIONS = ("every", "events", "for", "guest", "counters")
RECORDER_FLAGS = ("call-sites", "stacks", "overhead")
ONLY_INSIDE = {
    "workdir": "without it COMMAND runs where vtax does",
    "share": "without it COMMAND sees all that you do",
    "env": "without it COMMAND has all your variables",
    "max-output": "without it nothing bounds COMMAND",
}
OUTPUT_LIMIT = "1G"


class Record(Forwarded):
    """The verb; it is forwarded whole where it only prints."""

    completions: ClassVar[Mapping[str, Complete]] = {
        "--in": complete_spec,
        "--events": complete_events,
    }

    def carry_out(self, words: list[str]) -> None:
        options = words[: words.index("--")] if "--" in words else words
        if {"--help", "-h", "--list"} & set(options):
            become(words)
        record(asked(words))


def add(app: typer.Typer) -> None:
    """Make it a verb of `app`, and the verbs that read recordings."""
    forwarded.add(app, "record", "Record events of every layer, a row for each interval.", Record)
    app.command(**correlate.SETTINGS)(correlate.correlate)
    app.command(**timeline.SETTINGS)(timeline.timeline)
    app.command(**export.SETTINGS)(export.export)


@dataclass(frozen=True, slots=True)
class Request:
    """A command line of `vtax record`."""

    values: Mapping[str, Sequence[str]]
    flags: frozenset[str]
    command: tuple[str, ...]

    def value(self, name: str) -> str | None:
        """The value of an option that may be given once."""
        return self.values[name][0] if name in self.values else None

    def path(self, name: str) -> Path | None:
        """The same, as a path."""
        return Path(self.values[name][0]) if name in self.values else None

    @property
    def options(self) -> RecordOptions:
        """What the recorder is given."""
        from vtax.core.recorder.options import RecordOptions

        given = {name: self.values[name][0] for name in RECORDER_OPTIONS if name in self.values}
        return RecordOptions(given | {name: "" for name in RECORDER_FLAGS if name in self.flags})


def asked(words: Sequence[str]) -> Request:
    """Read a command line; ends vtax with the recorder's message where it is wrong."""
    from vtax.core import binaries, foreign_json

    line = [str(binaries.find(PROGRAM)), "asked", "--", *words]
    done = subprocess.run(line, stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise typer.Exit(done.returncode)
    found = foreign_json.parse_object(done.stdout)
    return Request(found["values"], frozenset(found["flags"]), tuple(found["words"]))


def record(request: Request) -> None:
    """Record as asked, and end vtax with the exit code."""
    from vtax.core.errors import MisuseError

    if "in" in request.values:
        _inside(request)
    for name, reason in ONLY_INSIDE.items():
        if name in request.values:
            raise MisuseError(f"--{name} needs --in", reason)
    if request.value("from") == "guest":
        raise MisuseError("--from guest needs a guest", "name one with --in")
    raise typer.Exit(_natively(request))


def _natively(request: Request) -> int:
    from vtax.core.recorder.options import Target
    from vtax.core.recorder.recorder import summary
    from vtax.record.native import record as record_natively

    # The recorder has read the list already.
    listed = request.value("pid")
    processes = tuple(map(int, listed.split(","))) if listed else ()
    target = Target(processes, request.value("vm"), request.command)
    as_json = "json" in request.flags
    path, code = record_natively(target, request.options, request.path("out"), as_json)
    if path is not None:
        found = summary(path)
        _show(path, found, _end_of(found), as_json)
    return code


def _inside(request: Request) -> None:
    from vtax import environments
    from vtax.core.command import standard_input
    from vtax.core.recorder.recorder import summary
    from vtax.core.runner.given import Wishes
    from vtax.core.units import parse_size
    from vtax.record.campaign import record_in

    spec, as_json = request.values["in"][0], "json" in request.flags
    shared = tuple(Path(each) for each in request.values.get("share", ()))
    done = record_in(
        environments.build(spec),
        spec,
        request.command,
        request.options,
        request.path("out"),
        by_guest=request.value("from") == "guest",
        workdir=request.path("workdir"),
        max_output_bytes=parse_size(request.value("max-output") or OUTPUT_LIMIT),
        wishes=Wishes(shared, named=tuple(request.values.get("env", ()))),
        stdin=standard_input.read().content,
        note=lambda said: print(f"note: {said}", file=sys.stderr),
    )
    if not as_json:
        _echo(done)
    ends = [_ended(each.exit_code, each.signal) for each in done.outcomes]
    _show(done.path, summary(done.path), "; ".join(dict.fromkeys(ends)), as_json)
    raise typer.Exit(INTERRUPTED if done.interrupted else 0)


def _echo(done: Recorded) -> None:
    """Print what the workload printed."""
    from vtax.core.formats.exchange import Exchange

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
        reference = str(found.get("reference", "?"))
        if "." not in reference:
            reference = reference.replace("_", " ")
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
