"""The one way in which every study is carried out."""

from __future__ import annotations

from pathlib import Path

from vtax.errors import MisuseError
from vtax.present.terminal.progress import progress
from vtax.present.terminal.tables import show
from vtax_studies import table
from vtax_studies.files import to_json, write
from vtax_studies.model import Study, StudyOptions

PROGRESS_EVERY_S = 10.0
"""Seconds between lines of a log."""


def conduct(
    study: Study, options: StudyOptions, folder: Path, *, as_json: bool, quiet: bool
) -> None:
    """Carry out the study, write its files in the folder, and print what it found.

    Raises MisuseError for a figure that the study does not have, VtaxError when nothing can be
    measured or a file cannot be written, KeyboardInterrupt after Ctrl-C.
    """
    if options.figure is not None and options.figure not in study.figures:
        raise MisuseError(
            f"study '{study.name}' has no figure {options.figure!r}",
            f"choose of {', '.join(study.figures)}",
        )
    with progress(quiet, every_s=PROGRESS_EVERY_S) as shown:
        outcome = study.run(options, shown.reach)
    write(study, outcome, folder)
    if as_json:
        print(to_json(study, outcome))
        return
    show(*table.parts(study, outcome))
    print(f"report: {folder / 'report.html'}")
