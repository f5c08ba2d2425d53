"""The study of asymmetric cores (Kumar and Fedorova 2009): the service domain on slow cores.

Everything here is measured on this machine; this package judges and draws.
"""

from __future__ import annotations

from vtax_studies.asymmetric_cores.setup import FIGURES
from vtax_studies.model import Study

STUDY = Study(
    name="asymmetric-cores",
    about="service threads on slow cores, and Combined Usage; measured, needs root",
    title="What guests lose when the threads that serve them are on slow cores",
    paper="Towards Better Performance Per Watt in Virtual Environments on Asymmetric Single-ISA "
    "Multi-core Systems",
    module="vtax_studies.asymmetric_cores.parts",
    figures=FIGURES,
    selects=True,
    quick="two rounds of 1 s at one slow speed. It shows that it works, and no more",
)
