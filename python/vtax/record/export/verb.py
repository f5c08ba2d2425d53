"""`vtax export`: a recording for Perfetto's UI, as CSV, or where its time goes as a flame graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.core.recorder.ways import Per, Scale

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\b
Examples:
  vtax export runs/lab --perfetto lab.pftrace
  vtax export runs/lab --events 'kvm.*' --csv exits.csv
  vtax export native=runs/n1 uml=runs/u1 --flame difference.html
"""

SETTINGS: dict[str, Any] = {
    "short_help": "Write a recording for Perfetto's UI, as CSV, or as a flame graph.",
    "epilog": EXAMPLES,
}
REMEDY = "choose another file"


def export(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="A folder of vtax record; with --flame two, or LABEL=FOLDER.", metavar="RUN"
        ),
    ],
    perfetto: Annotated[
        Path | None, typer.Option(help="Write a trace for ui.perfetto.dev.", metavar="FILE")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the rows as CSV.", metavar="FILE")] = None,
    events: Annotated[
        str | None, typer.Option(help="Names or globs with commas. Default: all.", metavar="GLOB")
    ] = None,
    per: Annotated[Per, typer.Option(help="Unit of the trace's rates.")] = Per.SECOND,
    flame: Annotated[
        Path | None,
        typer.Option(
            help="Write a flame graph of what --stacks recorded (HTML); of two RUNs their "
            "difference, also as folded stacks.",
            metavar="FILE",
        ),
    ] = None,
    scale: Annotated[
        Scale, typer.Option(help="Compare shares of the time, or its seconds for the same work.")
    ] = Scale.SHARE,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written.")] = False,
) -> None:
    """Write a recording for other tools: a Perfetto trace, CSV, a flame graph.

    The trace has a counter track for each event and CPU, slices of what ran, and the stacks that
    --stacks recorded as samples.
    """
    from vtax.core.errors import MisuseError
    from vtax.core.recorder.intervals import labelled

    if perfetto is None and csv is None and flame is None:
        raise MisuseError("nothing to write", "say --perfetto FILE, --csv FILE or --flame FILE")
    named = [labelled(run) for run in runs]
    if len(named) > (1 if flame is None or perfetto or csv else 2):
        raise MisuseError("too many RUNs", "name one, or two with --flame alone")
    written: list[dict[str, Any]] = []
    notes: Sequence[str] = ()
    if perfetto is not None or csv is not None:
        made, notes = _rows(named[0][1], perfetto, csv, events, per)
        written += made
    if flame is not None:
        written += _flame(named, flame, scale)
    if as_json:
        print(json.dumps({"written": written, "notes": list(notes)}, indent=1))
        return
    for note in notes:
        print(f"! {note}")
    for one in written:
        what = next((name for name in ("packets", "rows", "stacks") if name in one), None)
        print(f"wrote {one['file']}" + (f": {one[what]} {what}" if what else ""))


def _rows(
    run: Path, perfetto: Path | None, csv: Path | None, events: str | None, per: Per
) -> tuple[list[dict[str, Any]], Sequence[str]]:
    """Write the rows; return what was written, and what a reader must know."""
    from vtax.core.recorder.intervals import axis_of, load, select

    recording = load(run)
    chosen = select(recording.events, events)
    written: list[dict[str, Any]] = []
    if perfetto is not None:
        from vtax.record.export.perfetto import write_trace

        unit = axis_of([recording], per)
        count = write_trace(recording, chosen, unit, perfetto)
        written.append({"file": str(perfetto), "format": "perfetto", "packets": count})
    if csv is not None:
        from vtax.record.export.csv import write_csv

        rows = write_csv(recording, chosen, csv)
        written.append({"file": str(csv), "format": "csv", "rows": rows})
    return written, recording.notes


def _flame(runs: Sequence[tuple[str, Path]], path: Path, scale: Scale) -> list[dict[str, Any]]:
    """Write a flame graph; of a difference the stacks beside it, too."""
    from vtax.core.formats.files import write_atomic
    from vtax.core.page import render_html
    from vtax.record import flame, stacks

    graph = flame.graph([(label, stacks.load(run)) for label, run in runs], scale)
    render_html.write(flame.page(graph), path, REMEDY)
    written = {"flame": path}
    if graph.differs:
        written["folded"] = path.with_suffix(".folded")
        write_atomic(written["folded"], stacks.folded(graph.pairs).encode(), REMEDY)
    return [
        {"file": str(file), "format": form, "stacks": len(graph.pairs)}
        for form, file in written.items()
    ]
