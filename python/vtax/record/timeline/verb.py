"""`vtax timeline`: rates of events along the instructions or the time of runs, overlaid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.core.command import options
from vtax.core.recorder.ways import Axis, By, Per

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtax.core.recorder.intervals import Event, Recording
    from vtax.record.flame import Graph
    from vtax.record.timeline.analysis import Timeline
    from vtax.record.timeline.phases import Phase

EXAMPLES = """\b
Examples:
  vtax timeline runs/lab --event kvm.exits --per ginsn
  vtax timeline native=runs/n1 native=runs/n2 lab=runs/lab --event hw.dtlb_load_misses
  vtax timeline runs/lab --event kvm.exits,sched.switches --per s --axis time --bins 200 --json

\b
Runs with the same LABEL= are repetitions: their rates are taken together.
"""

SETTINGS: dict[str, Any] = {
    "short_help": "Show events along the instructions or time of recordings.",
    "epilog": EXAMPLES,
}
PAGE = "timeline.html"


def timeline(
    runs: Annotated[
        list[str], typer.Argument(help="Folders of vtax record, or LABEL=FOLDER.", metavar="RUN")
    ],
    event: Annotated[
        str, typer.Option("--event", help="Names or globs with commas.", metavar="NAME")
    ],
    per: Annotated[
        Per | None, typer.Option(help="Unit of rates. Default: ginsn where counted, else s.")
    ] = None,
    axis: Annotated[
        Axis | None,
        typer.Option(help="What to draw along. Default: instructions where counted, else time."),
    ] = None,
    bins: Annotated[
        int, typer.Option(min=2, max=10_000, metavar="N", help="Parts of the axis.")
    ] = 40,
    by: Annotated[By, typer.Option(help="What has an instructions axis of its own.")] = By.CPU,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for timeline.html. Default: the first RUN.", metavar="DIR"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show rates of events along the instructions or the time of runs, several on one axis.

    Prints the lines, the phases between changes of behaviour, cycles per instruction of each layer
    where cycles and instructions were counted, and the functions in which the time went where
    --stacks recorded them: with two labels, those that differ most.
    """
    from vtax.core.page import render_html, render_terminal
    from vtax.core.recorder.intervals import axis_of, load_all
    from vtax.record.correlate.verb import made_folder
    from vtax.record.timeline import page as result
    from vtax.record.timeline.analysis import timeline as analyse
    from vtax.record.timeline.cpi import cpi_per_layer
    from vtax.record.timeline.phases import phase_bins

    recordings = load_all(runs)
    unit = axis_of(recordings, per)
    along = axis or _axis(recordings)
    chosen = _events(recordings, event)
    made = analyse(recordings, chosen, per=unit, axis=along, bins=bins, by=by)
    # Phases do not depend on how coarsely the lines are drawn.
    fine = analyse(recordings, chosen, per=unit, axis=along, bins=phase_bins(recordings, by), by=by)
    phases = _phases(fine)
    layers = cpi_per_layer(recordings)
    notes = [f"{one.path.name}: {note}" for one in recordings for note in one.notes]
    graphs = _graphs(recordings, notes)
    folder = out or recordings[0].path
    page = result.page(made, phases, layers, graphs, notes, _facts(recordings, made, by))
    render_html.write(page, made_folder(folder) / PAGE)
    if as_json:
        found = result.timeline_json(made, phases, layers)
        print(json.dumps({"runs": [str(one.path) for one in recordings], "notes": notes, **found}))
        return
    render_terminal.show(page)
    print(f"\nreport: {folder / PAGE}")


def _events(recordings: Sequence[Recording], globs: str) -> list[Event]:
    from vtax.core.recorder.intervals import select

    known = {event.name: event for one in recordings for event in one.events}
    return select(list(known.values()), globs)


def _axis(recordings: Sequence[Recording]) -> Axis:
    counted = all(one.measures(Per.GIGA_INSTRUCTION) for one in recordings)
    return Axis.INSTRUCTIONS if counted else Axis.TIME


def _phases(made: Timeline) -> dict[str, tuple[Phase, ...]]:
    """The phases of each label, from all its lines together."""
    from vtax.record.timeline.phases import phases

    labels = dict.fromkeys(line.label for line in made.lines)
    own = {label: [line for line in made.lines if line.label == label] for label in labels}
    return {label: phases(made, lines) for label, lines in own.items()}


def _graphs(recordings: Sequence[Recording], notes: list[str]) -> Sequence[Graph]:
    """The flame graphs of those recordings that have stacks; what cannot be read becomes a note."""
    from vtax.core.errors import VtaxError
    from vtax.core.recorder.intervals import STACKS
    from vtax.record import stacks
    from vtax.record.flame import graphs

    found = []
    for one in recordings:
        if (one.path / STACKS).exists():
            try:
                found.append((one.label, stacks.load(one.path)))
            except VtaxError as error:
                notes.append(str(error))
    return graphs(found)


def _facts(recordings: Sequence[Recording], made: Timeline, by: By) -> list[tuple[str, str]]:
    return [
        ("Runs", ", ".join(f"{one.label} ({one.path.name})" for one in recordings)),
        ("Rates", made.per.words),
        ("Axis", made.axis.value),
        ("Bins", str(made.edges.size - 1)),
        ("Series by", by.value),
    ]
