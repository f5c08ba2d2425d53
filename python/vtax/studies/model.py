"""What every study gives: claims that were judged, figures, tables and the data behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from vtax.present.html.plotting import Figure

if TYPE_CHECKING:
    import polars as pl


class Verdict(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNKNOWN = "cannot be judged"


class Basis(StrEnum):
    """What a verdict rests on. Only results are evidence for or against a paper."""

    RESULT = "result"
    FITTED = "told"
    """A synthetic profile was made from this very statement, or changed until it came out. (Its
    word in ``study.json`` is older than this name.)"""
    EMULATION = "emulation"
    """Without what an emulated processor ran the verdict would be another."""
    CLOCK_STEP = "clock step"
    """What was seen is no more than the step of a clock."""

    @property
    def mark(self) -> str:
        """What stands behind the verdict."""
        return _MARKS[self]


_MARKS = {
    Basis.RESULT: "",
    Basis.FITTED: "fitted",
    Basis.EMULATION: "emulation only",
    Basis.CLOCK_STEP: "a clock's step only",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of the paper beside what was found."""

    name: str
    """Short and stable, for JSON and tests."""
    section: str
    """Where the paper says it."""
    statement: str
    stated: str
    """The paper's value, in its words."""
    ours: str
    """The value found, computed from the data."""
    verdict: Verdict
    reason: str
    """The criterion, and why it is not met or cannot be applied."""
    basis: Basis = Basis.RESULT


@dataclass(frozen=True, slots=True)
class StudyFigure:
    """A figure of the paper, drawn again from one panel or several."""

    number: str
    title: str
    caption: str
    paper: str
    """What the paper's text says of it; the pictures themselves are not available."""
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
    """All that a study found."""

    claims: Sequence[Claim]
    figures: Sequence[StudyFigure]
    tables: Sequence[StudyTable]
    frames: Mapping[str, pl.DataFrame]
    """Written as Parquet under these names."""
    setup: Sequence[tuple[str, str]]
    """How it was made, for the reader: what and value."""
    cautions: Sequence[str] = ()
    """What a reader must know before believing any of it."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user may choose in every study."""

    quick: bool = False
    """Fewer points and shorter samples: shows that it works, proves less."""
    figure: str | None = None
    """Only what this figure needs."""
    seed: int = 1
    folder: Path | None = None
    """Of the study's files; a study may keep the run folders of its campaigns below it. None:
    nothing is kept beside the outcome."""


Progress = Callable[[int, int, str], None]
"""Called with steps done, steps in all and the name of the last one."""


@dataclass(frozen=True, slots=True)
class Study:
    """An entry of the registry."""

    name: str
    title: str
    paper: str
    run: Callable[[Options, Progress], Outcome]
    figures: Sequence[str] = field(default=())
    """The numbers that `--figure` knows."""
    modelled: bool = True
    """Whether what is found comes out of a model; otherwise it was measured."""

    @property
    def found(self) -> str:
        """The heading of the values found."""
        return "Found (model)" if self.modelled else "Found (measured)"
