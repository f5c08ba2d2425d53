"""`vtax correlate`: which events rise and fall together, and what virtualization changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.core.command import options
from vtax.core.command.variadic import VariadicAgainst
from vtax.core.recorder.ways import By, Detrend, Method, Per

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtax.core.recorder.intervals import Recording
    from vtax.record.correlate.analysis import Difference, Matrix

EXAMPLES = """\b
Examples:
  vtax correlate runs/lab
  vtax correlate runs/lab-1 runs/lab-2 --against runs/native-1 runs/native-2
  vtax correlate runs/lab --events 'hw.*,kvm.exits' --method pearson --json

\b
docs/record.md says how it is computed.
"""

SETTINGS: dict[str, Any] = {
    "cls": VariadicAgainst,
    "short_help": "Correlate the events of recordings; compare two kinds.",
    "epilog": EXAMPLES,
}
PAGE = "correlation.html"


def correlate(
    runs: Annotated[
        list[str],
        typer.Argument(help="Folders of vtax record; several are averaged.", metavar="RUN"),
    ],
    against: Annotated[
        list[str] | None,
        typer.Option(help="Folders to compare with, e.g. native runs.", metavar="OTHER..."),
    ] = None,
    method: Annotated[
        str, typer.Option(help="spearman (ranks) or pearson (linear).", metavar="METHOD")
    ] = Method.SPEARMAN.value,
    detrend: Annotated[
        Detrend,
        typer.Option(
            help="none, linear (a line) or difference (steps from row to row).", metavar="TREND"
        ),
    ] = Detrend.NONE,
    events: Annotated[
        str | None, typer.Option(help="Names or globs with commas. Default: all.", metavar="GLOB")
    ] = None,
    by: Annotated[By, typer.Option(help="What makes a series of its own.")] = By.CPU,
    per: Annotated[
        Per | None, typer.Option(help="Unit of rates. Default: ginsn where counted, else s.")
    ] = None,
    merge: Annotated[
        int,
        typer.Option(min=1, max=10_000, metavar="N", help="Take N rows as one (rotated counters)."),
    ] = 1,
    alpha: Annotated[
        float, typer.Option(min=1e-6, max=0.5, metavar="A", help="False discovery rate.")
    ] = 0.05,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for correlation.html. Default: the first RUN.", metavar="DIR"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Correlate the rates of all events over the intervals of recordings, averaged over runs.

    Correlations are those that remain given the intervals' length. A pair counts only after
    correction for the number of pairs and for intervals that resemble their neighbours. With
    --against, the relationships that differ are tested and ranked.
    """
    from vtax.core.page import render_html, render_terminal
    from vtax.core.recorder.intervals import axis_of, load_all
    from vtax.record.correlate import analysis
    from vtax.record.correlate import page as words

    recordings, others = load_all(runs), load_all(against or ())
    unit = axis_of([*recordings, *others], per)
    options = _Options(_method(method), detrend, by, unit, merge, alpha)
    matrix = options.matrix(recordings, events)
    said = [*words.notes(matrix, recordings), *options.rotation(recordings, matrix)]
    compared = None
    if others:
        other = options.matrix(others, events)
        compared = (other, analysis.difference(matrix, other))
        said += words.notes(other, others, " of the runs against")
        said += words.difference_notes(compared[1])
    heading = words.title(matrix, by)
    folder = out or recordings[0].path
    page = words.page(matrix, compared, said, _facts(options, recordings, others), heading)
    render_html.write(page, made_folder(folder) / PAGE)
    if as_json:
        print(json.dumps(_json(matrix, compared, said, recordings, others), indent=1))
        return
    render_terminal.show(page)
    print(f"\nreport: {folder / PAGE}")


class _Options:
    """The options that both matrices are made with."""

    def __init__(
        self, method: Method, detrend: Detrend, by: By, per: Per, merge: int, alpha: float
    ) -> None:
        self.method, self.detrend = method, detrend
        self.by, self.per, self.merge, self.alpha = by, per, merge, alpha

    def matrix(self, recordings: Sequence[Recording], globs: str | None) -> Matrix:
        from vtax.record.correlate.analysis import correlate

        return correlate(
            recordings,
            self._events(recordings, globs),
            method=self.method,
            detrend=self.detrend,
            by=self.by,
            per=self.per,
            merge=self.merge,
            alpha=self.alpha,
        )

    def _events(self, recordings: Sequence[Recording], globs: str | None) -> Any:
        from vtax.core.recorder.intervals import select

        known = {event.name: event for one in recordings for event in one.events}
        return select(list(known.values()), globs)

    def rotation(self, recordings: Sequence[Recording], matrix: Matrix) -> list[str]:
        """What to do when events took turns on the counters and never met in one row."""
        import numpy as np

        from vtax.record.correlate.analysis import never_together

        if not np.isnan(matrix.z).any():
            return []
        names = set(matrix.events)
        shared = [
            never_together(one, [e for e in one.events if e.name in names], self.by)
            for one in recordings
        ]
        wanted = max(shared, default=1)
        if wanted <= self.merge:
            return []
        return [
            "some events were never measured in the same intervals (counters took turns): "
            f"--merge {wanted} merges rows until they meet"
        ]


def _method(name: str) -> Method:
    from vtax.core.specs import unknown

    known = [method.value for method in Method]
    if name not in known:
        raise unknown("method", name, known)
    return Method(name)


def made_folder(folder: Path) -> Path:
    """The folder, which is made (permissions 0700) if it does not exist.

    Raises VtaxError when it cannot be made.
    """
    from vtax.core.errors import VtaxError

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise VtaxError(f"cannot make {folder}: {error.strerror}", "choose another --out") from None
    return folder


def _facts(
    options: _Options, recordings: Sequence[Recording], others: Sequence[Recording]
) -> list[tuple[str, str]]:
    found = [
        ("Runs", ", ".join(one.path.name for one in recordings)),
        ("Method", options.method.value),
        ("Trend removed", options.detrend.value),
        ("Rates", options.per.words),
        ("Series by", options.by.value),
        ("Rows taken as one", str(options.merge)),
        ("False discovery rate", f"{options.alpha:g}"),
    ]
    if others:
        found.insert(1, ("Against", ", ".join(one.path.name for one in others)))
    return found


def _json(
    matrix: Matrix,
    compared: tuple[Matrix, Difference] | None,
    said: list[str],
    recordings: Sequence[Recording],
    others: Sequence[Recording],
) -> dict[str, Any]:
    from vtax.record.correlate.page import difference_json, matrix_json

    found: dict[str, Any] = {
        "runs": [str(one.path) for one in recordings],
        "notes": said,
        "matrix": matrix_json(matrix),
    }
    if compared is not None:
        found["against"] = {
            "runs": [str(one.path) for one in others],
            "matrix": matrix_json(compared[0]),
            "difference": difference_json(compared[1]),
        }
    return found
