"""The one way in which every study is carried out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from vtax.core.errors import MisuseError
from vtax.core.page.progress import progress
from vtax.core.page.tables import show
from vtax_studies import table
from vtax_studies.files import to_json, write
from vtax_studies.measuring import machine
from vtax_studies.model import Outcome, Progress, Study, StudyData, StudyOptions
from vtax_studies.roles import here, said
from vtax_studies.rule import judge, possible

PROGRESS_EVERY_S = 10.0
"""Seconds between lines of a log."""


def conduct(
    study: Study, options: StudyOptions, folder: Path, *, as_json: bool, quiet: bool
) -> None:
    """Carry out the study, write its files in the folder, and print what it found.

    Raises MisuseError for a figure or a selection that the study does not have, VtaxError when
    nothing can be measured or a file cannot be written, KeyboardInterrupt after Ctrl-C.
    """
    if options.figure is not None and options.figure not in study.figures:
        raise MisuseError(
            f"study '{study.name}' has no figure {options.figure!r}",
            f"choose of {', '.join(study.figures)}" if study.figures else "leave --figure out",
        )
    if options.only and not study.selects:
        raise MisuseError(f"study '{study.name}' is measured whole", "leave --only out")
    if options.traced and not study.traces:
        raise MisuseError(f"study '{study.name}' traces no programs", "leave --traced out")
    with progress(quiet, every_s=PROGRESS_EVERY_S) as shown:
        outcome = measured(study, options, shown.reach)
    write(study, outcome, folder)
    if as_json:
        print(to_json(study, outcome))
        return
    show(*table.parts(study, outcome))
    print(f"report: {folder / 'report.html'}")


def measured(study: Study, options: StudyOptions, progress: Progress) -> Outcome:
    """Measure what the options ask for, judge it and draw it.

    Raises VtaxError when nothing can be measured.
    """
    parts = study.parts()
    where = [] if study.modelled else [*machine(), *said(parts.roles, here())]
    return made(study, parts.measure(options, progress), options, where)


def made(
    study: Study, data: StudyData, options: StudyOptions, where: Iterable[tuple[str, str]] = ()
) -> Outcome:
    """The outcome of the study's data; `where` describes the machine."""
    parts, only = study.parts(), options.figure
    makers = [maker for number, maker in parts.figures.items() if only in (None, number)]
    setup = [*where, *parts.setup(data, options)]
    if not study.modelled:
        setup.append(("Random seed", str(options.seed)))
    return Outcome(
        claims=judge(
            parts.rules, data, only, data.without_emulation(), data.second(), parts.differs
        ),
        figures=possible(makers, data),
        tables=possible(parts.tables, data),
        frames=data.frames(),
        setup=setup,
        cautions=list(dict.fromkeys(_cautions(study, data, options))),
    )


def _cautions(study: Study, data: StudyData, options: StudyOptions) -> Iterator[str]:
    if options.quick:
        yield f"Made with --quick: {study.quick}."
    if options.figure is not None:
        yield f"Made with --figure {options.figure}: {study.alone}."
    if options.only:
        yield f"Made with --only {','.join(options.only)}: nothing else was measured."
    for name, reason in data.left_out.items():
        yield f"{name} is left out: {reason}"
    yield from study.parts().cautions(data)
