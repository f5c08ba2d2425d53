"""The study of a paravirtualized memory hierarchy (Youseff and others, HPDC 2008).

Everything here is measured on this machine; this package judges and draws.
"""

from __future__ import annotations

from vtax_studies.atlas.setup import FIGURES
from vtax_studies.model import Study

STUDY = Study(
    name="atlas",
    about="tuning, and scarce memory, natively and in guests; measured here, needs root",
    title="What a tuner finds, and DGEMM where memory is scarce: natively and in guests",
    paper="The Impact of Paravirtualized Memory Hierarchy on Linear Algebra Computational Kernels "
    "and Software",
    module="vtax_studies.atlas.parts",
    figures=FIGURES,
    selects=True,
    traces=True,
    quick="one run of a few sizes, searches of 2 s. It shows that it works, and no more",
)
