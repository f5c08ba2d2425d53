"""The study of DAV2M (Bae, Lange, Dinda, ICAC 2011): which paging mode, and when to switch.

Everything here is modelled: `vtax.paging` simulates, this package judges and draws.
"""

from __future__ import annotations

from vtax_studies.dav2m.setup import FIGURES
from vtax_studies.model import Study

STUDY = Study(
    name="dav2m",
    about="shadow and nested paging, and switching between them; modelled",
    title="Shadow paging, nested paging and switching between them: a model of the DAV2M paper",
    paper=(
        "C. S. Bae, J. R. Lange, P. A. Dinda: Enhancing Virtualized Application Performance "
        "Through Dynamic Adaptive Paging Mode Selection. ICAC 2011"
    ),
    module="vtax_studies.dav2m.parts",
    figures=FIGURES,
    quick="fewer points and shorter runs than the study's",
    alone="claims that need other data are not listed",
    modelled=True,
    traces=True,
    validation=Study(
        name="dav2m",
        about="the model's counts beside those of KVM",
        title="The model of paging beside stock KVM: exits predicted from traces, and counted",
        paper="vtax's own model, docs/paging.md",
        module="vtax_studies.dav2m.validation.parts",
        quick="two programs, two repetitions",
        says="The model says",
        selects=True,
    ),
)
