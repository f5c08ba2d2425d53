"""The study of VrtProf (Mousa, Doshi, Sherwood, Ould-Ahmed-Vall): one row of all layers.

Everything here is measured on this machine by `vtax record`; this package judges and draws.
"""

from __future__ import annotations

from vtax_studies.model import Study
from vtax_studies.vrtprof.setup import FIGURES

STUDY = Study(
    name="vrtprof",
    about="one row of all layers per interval; measured here, needs root",
    title="Events of every layer on one interval axis, natively and virtualized",
    paper=(
        "H. Mousa, K. Doshi, T. Sherwood, E. Ould-Ahmed-Vall: VrtProf: Vertical Profiling for "
        "System Virtualization"
    ),
    module="vtax_studies.vrtprof.parts",
    figures=FIGURES,
    quick="few workloads, one repetition. It shows that it works",
    alone="only what that needs was measured",
)
