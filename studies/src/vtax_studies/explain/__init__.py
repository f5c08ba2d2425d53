"""The study that validates `vtax explain`: are its predictions and its bills right?

Everything here is measured on this machine; no paper's figure is drawn again.
"""

from __future__ import annotations

from vtax_studies.explain.setup import FIGURES
from vtax_studies.model import Study

STUDY = Study(
    name="explain",
    about="are the bills and predictions of vtax explain right? measured here (root)",
    title="vtax explain: are its bills right?",
    paper="vtax's own targets for vtax explain (docs/explain.md)",
    module="vtax_studies.explain.parts",
    figures=FIGURES,
    quick="three programs, two loops and one change in two environments, three rounds. It shows "
    "that it works",
    says="The target",
    selects=True,
)
