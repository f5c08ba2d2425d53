"""The seed's figures again, each from the study's data; what was not simulated is not drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vtax.studies.dav2m.data import Data
from vtax.studies.dav2m.figures import overheads, rates, switching, workloads
from vtax.studies.dav2m.figures.sensitivity import sensitivity
from vtax.studies.model import StudyFigure
from vtax.studies.rule import Missing

DRAWN: Mapping[str, Callable[[Data], StudyFigure]] = {
    "2": workloads.figure_2,
    "3": workloads.figure_3,
    "4": overheads.figure_4,
    "5": rates.figure_5,
    "6": switching.figure_6,
    "9": rates.figure_9,
    "10": overheads.figure_10,
    "11": switching.figure_11,
    "12": switching.figure_12,
    "sensitivity": sensitivity,
}


def draw(data: Data, only: str | None = None) -> list[StudyFigure]:
    """The figures for which there is data, or the one that was asked for."""
    found = []
    for number, figure in DRAWN.items():
        if only in (None, number):
            try:
                found.append(figure(data))
            except Missing:
                continue
    return found
