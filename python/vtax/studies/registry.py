"""Which studies there are: a module with a `STUDY`, and one line here."""

from __future__ import annotations

from importlib import import_module

from vtax.specs import unknown
from vtax.studies.model import Study

MODULES = {
    "dav2m": "vtax.studies.dav2m",
    "vrtprof": "vtax.studies.vrtprof",
}


def find(name: str) -> Study:
    """The study of that name; its module is imported only now.

    Raises MisuseError for an unknown name, with the nearest ones.
    """
    if name not in MODULES:
        raise unknown("study", name, list(MODULES))
    study = import_module(MODULES[name]).STUDY
    assert isinstance(study, Study)
    return study
