"""The study of HPC Challenge in virtualized environments (Luszczek and others).

Everything here is measured on this machine; this package judges and draws.
"""

from __future__ import annotations

from vtax_studies.hpcc.setup import FIGURES
from vtax_studies.model import Study

STUDY = Study(
    name="hpcc",
    about="clocks, order drift and percent of native by HPC Challenge; measured here",
    title="HPC Challenge in guests: both clocks, the order of sizes, and what is left of the speed",
    paper="Evaluation of the HPC Challenge Benchmarks in Virtualized Environments",
    module="vtax_studies.hpcc.parts",
    figures=FIGURES,
    quick="one round of small sizes. It shows that it works",
)
