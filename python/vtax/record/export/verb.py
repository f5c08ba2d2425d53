"""`vtax export`: a recording for Perfetto's UI, or as CSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from vtax.core.recorder.ways import Per

EXAMPLES = """\b
Examples:
  vtax export runs/lab --perfetto lab.pftrace
  vtax export runs/lab --events 'kvm.*' --csv exits.csv
"""

SETTINGS: dict[str, Any] = {
    "short_help": "Write a recording for Perfetto's UI, or as CSV.",
    "epilog": EXAMPLES,
}


def export(
    run: Annotated[Path, typer.Argument(help="A folder of vtax record.")],
    perfetto: Annotated[
        Path | None, typer.Option(help="Write a trace for ui.perfetto.dev.", metavar="FILE")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the rows as CSV.", metavar="FILE")] = None,
    events: Annotated[
        str | None, typer.Option(help="Names or globs with commas. Default: all.", metavar="GLOB")
    ] = None,
    per: Annotated[Per, typer.Option(help="Unit of the trace's rates.")] = Per.SECOND,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written.")] = False,
) -> None:
    """Write a recording for other tools: a Perfetto trace, CSV, or both.

    The trace has a counter track for each event and CPU, and slices of what ran.
    """
    from vtax.core.errors import MisuseError
    from vtax.core.recorder.intervals import axis_of, load, select

    if perfetto is None and csv is None:
        raise MisuseError("nothing to write", "say --perfetto FILE or --csv FILE")
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
    if as_json:
        print(json.dumps({"written": written, "notes": list(recording.notes)}, indent=1))
        return
    for note in recording.notes:
        print(f"! {note}")
    for one in written:
        what = "packets" if "packets" in one else "rows"
        print(f"wrote {one['file']}: {one[what]} {what}")
