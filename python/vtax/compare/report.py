"""`vtax report`: build the report of a run again, also of one that was cut short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vtax.compare.history import gate
from vtax.core.command import campaigns
from vtax.core.command.options import Json, Notes, ShownNotes

if TYPE_CHECKING:
    from vtax.compare.history.changes import Changes
    from vtax.core.formats.bill import BillRecord
    from vtax.core.formats.model import Kept, Sample
    from vtax.core.page.page import Page, Section
    from vtax.core.statistics.results import Comparison


def report(
    run: Annotated[Path, typer.Argument(help="A run folder, e.g. runs/20261120T120000Z-hpcc.")],
    against: gate.Against = None,
    fail_over: gate.FailOver = None,
    junit: gate.Junit = None,
    markdown: gate.Markdown = None,
    notes: ShownNotes = Notes.FEW,
    as_json: Json = False,
) -> None:
    """Analyse a run folder again, write its report.html, and print the table.

    A run whose vtax was killed has every sample that was finished; the report says that the run was
    cut short.

    \b
    Examples:
      vtax report runs/20261120T120000Z-hpcc-small
      vtax report runs/NEW --against runs/OLD --fail-over 3% --junit vtax.xml
    """
    from vtax.compare.analysis import compare
    from vtax.core.errors import VtaxError
    from vtax.core.formats.folder import JOURNAL, RunFolder, load, own_report

    files = (junit, markdown)
    asked = gate.opened(against, fail_over, *files, beside=run.parent, as_json=as_json)
    if asked.is_empty and (own := own_report(run)) is not None:
        campaigns.show(_complete(run, own), run, as_json=as_json)
        return
    record, samples = load(run)
    comparison = compare(record, samples, str(run))
    try:
        folder = RunFolder(run)
        # A run that another vtax is still writing is shown as it is, and left to that process.
        if (run / JOURNAL).exists() and folder.claim():
            folder.finish(samples)
            folder.release()
    except OSError as error:
        raise VtaxError(f"cannot write in {run}: {error.strerror}") from None
    changes = show(comparison, samples, run, notes, asked, as_json=as_json)
    asked.end("complete", changes)


def _complete(run: Path, record: Kept) -> Kept:
    """The record with what the journal of a sweep that was cut short has."""
    from vtax.compare.sweep import analysis
    from vtax.compare.sweep.record import ComparisonSweepRecord

    return analysis.again(run, record) if isinstance(record, ComparisonSweepRecord) else record


def show(
    comparison: Comparison,
    samples: Sequence[Sample],
    path: Path,
    notes: Notes,
    asked: gate.Gate,
    *,
    as_json: bool,
) -> Changes | None:
    """Write the report of a comparison, print its result, and what has changed since the run that
    it is held against; return that. Markdown has the changes alone, where there are any.

    Raises MisuseError when the runs cannot be compared, VtaxError when a file cannot be written.
    """
    from vtax.compare.history import page as against
    from vtax.compare.page import to_json

    changes = asked.judge(comparison, samples)
    further = () if changes is None else (against.section(changes),)
    found = write(comparison, samples, path, notes, further)
    answer = to_json(comparison) if as_json else None
    if answer is not None and changes is not None:
        answer |= {"against": against.to_json(changes)}
    if not asked.prints:
        campaigns.show_result(found, path, answer)
    markdown = found if changes is None else against.page(changes)
    asked.write(markdown, changes, comparison.record.started_utc)
    return changes


def write(
    comparison: Comparison,
    samples: Sequence[Sample],
    path: Path,
    notes: Notes = Notes.FEW,
    further: tuple[Section, ...] = (),
) -> Page:
    """Write the report of a comparison, with the bill if the folder has one and the `further`
    sections, and what was found; return the page."""
    from vtax.compare.html import write_report
    from vtax.compare.page import page
    from vtax.compare.saved import save
    from vtax.core.formats.folder import REPORT

    found = page(comparison, samples, all_notes=notes is Notes.ALL, bill=_bill(path))
    found = replace(found, sections=(*found.sections, *further))
    write_report(found, comparison, path / REPORT)
    save(comparison, path)
    return found


def _bill(path: Path) -> BillRecord | None:
    """The bill in a run folder; None: there is none. Raises VtaxError for a damaged one."""
    from vtax.core.formats import records
    from vtax.core.formats.bill import BILL, BillRecord

    if not (path / BILL).is_file():
        return None
    found = records.read(path / BILL)
    return found if isinstance(found, BillRecord) else None
