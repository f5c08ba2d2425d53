"""The registry of studies. A new study is a module with a `STUDY`, and one line here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from vtax.specs import unknown

if TYPE_CHECKING:
    from vtax.studies.model import Study

STUDIES = {
    "asymmetric-cores": "service threads on slow cores, and Combined Usage; measured, needs root",
    "atlas": "tuning, and scarce memory, natively and in guests; measured here, needs root",
    "dav2m": "shadow and nested paging, and switching between them; modelled",
    "hpcc": "clocks, order drift and percent of native by HPC Challenge; measured here",
    "vrtprof": "one row of all layers per interval; measured here, needs root",
}
"""The name of each study, and what `vtax study --help` says about it. Its module below
`vtax.studies` has the same name with `_` for `-`."""


def find(name: str) -> Study:
    """The study of that name; its module is imported on this call.

    Raises MisuseError for an unknown name, with the nearest ones.
    """
    if name not in STUDIES:
        raise unknown("study", name, list(STUDIES))
    study: Study = import_module(f"vtax.studies.{name.replace('-', '_')}").STUDY
    return study


def listed() -> str:
    """One line for each study, for the help."""
    width = max(map(len, STUDIES))
    return "\n".join(f"  {name:{width}}  {what}" for name, what in STUDIES.items())
