"""What every study produces: judged claims, figures, tables and the data behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from vtax.present.figures.plotting import Figure

if TYPE_CHECKING:
    import polars as pl


class Verdict(StrEnum):
    """The verdict on a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNKNOWN = "cannot be judged"


class Basis(StrEnum):
    """What a verdict is based on. Only results are evidence for or against a paper."""

    RESULT = "result"
    FITTED = "told"
    """A synthetic profile was made from this very statement, or changed until the statement held.
    (The word in ``study.json`` is older than this name.)"""
    EMULATION = "emulation"
    """The verdict would be another without the runs on an emulated processor."""
    CLOCK_STEP = "clock step"
    """The observed difference is no more than the step of a clock."""

    @property
    def mark(self) -> str:
        """The mark behind the verdict."""
        return _MARKS[self]


_MARKS = {
    Basis.RESULT: "",
    Basis.FITTED: "fitted",
    Basis.EMULATION: "emulation only",
    Basis.CLOCK_STEP: "a clock's step only",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of the paper, beside what was found."""

    name: str
    """Short and stable, for JSON and tests."""
    section: str
    """The section in which the paper says it."""
    statement: str
    stated: str
    """The paper's value, in its words."""
    ours: str
    """The value found, computed from the data."""
    verdict: Verdict
    reason: str
    """The criterion, and why the claim does not meet it or it cannot be applied."""
    basis: Basis = Basis.RESULT


@dataclass(frozen=True, slots=True)
class StudyFigure:
    """A figure of the paper, drawn again in one or several panels."""

    number: str
    title: str
    caption: str
    paper: str
    """What the paper's text says about the figure; the pictures themselves are not available."""
    panels: Sequence[Figure]
    columns: int = 1
    """Panels beside each other where the page is wide enough."""


@dataclass(frozen=True, slots=True)
class StudyTable:
    """A table of the page."""

    name: str
    title: str
    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that a study found."""

    claims: Sequence[Claim]
    figures: Sequence[StudyFigure]
    tables: Sequence[StudyTable]
    frames: Mapping[str, pl.DataFrame]
    """Frames to write as Parquet under these names."""
    setup: Sequence[tuple[str, str]]
    """How the study was made, for the reader: pairs of name and value."""
    cautions: Sequence[str] = ()
    """What a reader must know before believing any of the results."""


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """What the user may choose in every study."""

    quick: bool = False
    """Fewer points and shorter samples: this shows that the study works, and proves less."""
    figure: str | None = None
    """Do only what this figure needs."""
    seed: int = 1
    folder: Path | None = None
    """The folder of the study's files; a study may keep the run folders of its campaigns below it.
    None: only the outcome is kept."""


Progress = Callable[[int, int, str], None]
"""Called with the steps done, the steps in all and the name of the last step."""


@dataclass(frozen=True, slots=True)
class Study:
    """An entry of the registry."""

    name: str
    title: str
    paper: str
    run: Callable[[StudyOptions, Progress], Outcome]
    figures: Sequence[str] = field(default=())
    """The numbers that `--figure` knows."""
    modelled: bool = True
    """Whether the findings come out of a model; otherwise they were measured."""

    @property
    def found(self) -> str:
        """The heading of the values found."""
        return "Found (model)" if self.modelled else "Found (measured)"
