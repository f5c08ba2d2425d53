"""The study of VrtProf (Mousa, Doshi, Sherwood, Ould-Ahmed-Vall): one row of all layers.

Everything here is measured on this machine by `vtax record`; this package judges and draws.
"""

from __future__ import annotations

from vtax_studies.model import Outcome, Progress, Study, StudyOptions
from vtax_studies.vrtprof.setup import FIGURES


def _run(options: StudyOptions, progress: Progress) -> Outcome:
    from vtax_studies.vrtprof.outcome import run

    return run(options, progress)


STUDY = Study(
    name="vrtprof",
    about="one row of all layers per interval; measured here, needs root",
    title="Events of every layer on one interval axis, natively and virtualized",
    paper=(
        "H. Mousa, K. Doshi, T. Sherwood, E. Ould-Ahmed-Vall: VrtProf: Vertical Profiling for "
        "System Virtualization"
    ),
    run=_run,
    figures=FIGURES,
)
