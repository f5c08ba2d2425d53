"""What every study produces: judged claims, figures, tables and the data behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from vtax.core.errors import MisuseError
from vtax.core.page.page import Figure, HeatMap

if TYPE_CHECKING:
    import polars as pl

    from vtax_studies.roles import Role
    from vtax_studies.rule import Rule


class Verdict(StrEnum):
    """The verdict on a claim."""

    HOLDS = "holds"
    SUBSTITUTE = "holds by a substitute only"
    """It holds, but what it rests on is no evidence for the paper: see `Basis`."""
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
    Basis.EMULATION: "emulation",
    Basis.CLOCK_STEP: "a clock's step",
}
SUBSTITUTES = (Basis.EMULATION, Basis.CLOCK_STEP)
"""What can only stand in for a result."""


@dataclass(frozen=True, slots=True)
class Second:
    """What other data of the same study say about a claim."""

    ours: str
    """The value found in them; empty where there is none."""
    verdict: Verdict | None
    """None: what the claim is about was not run."""
    reason: str
    """The criterion, why there is no verdict, or why nothing was run."""
    differs: str = ""
    """Why the verdict is another one; empty where it is the same, or is none."""


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
    second: Second | None = None
    """None: the study has no second data."""


@dataclass(frozen=True, slots=True)
class StudyFigure:
    """A figure of the paper, drawn again in one or several panels."""

    number: str
    title: str
    caption: str
    paper: str
    """What the paper's text says about the figure; the pictures themselves are not available."""
    panels: Sequence[Figure | HeatMap]
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
    only: Sequence[str] = ()
    """Measure only these, where the study says what it knows; empty: all."""
    traced: bool = False
    """Judge the claims on traced programs, too."""
    folder: Path | None = None
    """The folder of the study's files; a study may keep the run folders of its campaigns below it.
    None: only the outcome is kept."""


Progress = Callable[[int, int, str], None]
"""Called with the steps done, the steps in all and the name of the last step."""


@dataclass(frozen=True, eq=False)
class StudyData:
    """What a study measured or simulated; claims, figures and tables are functions of it."""

    left_out: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """What could not be measured, such as an environment, and why."""

    def frames(self) -> Mapping[str, pl.DataFrame]:
        """The frames to write as Parquet, by the names of their files."""
        return {}

    def without_emulation(self) -> Self | None:
        """The data without what ran on an emulated processor.

        None where nothing was emulated, or where each rule says itself that it was.
        """
        return None

    def second(self) -> Self | None:
        """Other data, on which the same claims are judged for themselves."""
        return None


D = TypeVar("D", bound=StudyData)


@dataclass(frozen=True, slots=True)
class Parts(Generic[D]):
    """What a study is made of; `vtax_studies.driver` puts it together."""

    measure: Callable[[StudyOptions, Progress], D]
    """Measures what the options ask for. Raises VtaxError where nothing can be measured."""
    rules: Sequence[Rule[D]]
    figures: Mapping[str, Callable[[D], StudyFigure]]
    """The maker of each figure. Makers raise Missing where the data lack what they need."""
    tables: Sequence[Callable[[D], StudyTable]]
    setup: Callable[[D, StudyOptions], Iterable[tuple[str, str]]]
    """How the study was made, for the reader."""
    cautions: Callable[[D], Iterable[str]]
    """What a reader must know before believing any of the results."""
    roles: Sequence[Role] = ()
    """What it needs of its machine, and the ways to have it."""
    differs: Mapping[str, Callable[[D], str]] = field(default_factory=dict)
    """By the claim's name: why the second data give another verdict. A maker raises Missing where
    the data do not show it."""


@dataclass(frozen=True, slots=True)
class Study:
    """The declaration that an entry point of the group `vtax.studies` names."""

    name: str
    about: str
    """What `vtax study --help` says about it."""
    title: str
    paper: str
    module: str
    """The module with the study's `PARTS`. It is imported when the study runs: `--help` need not
    wait for it."""
    quick: str
    """What --quick leaves of the study."""
    alone: str = "no other is drawn"
    """What --figure leaves of the study."""
    figures: Sequence[str] = ()
    """The numbers that `--figure` knows."""
    says: str = "The paper says"
    """The heading of the statements that it judges."""
    selects: bool = False
    """Whether it knows `--only`."""
    modelled: bool = False
    """Whether the findings come out of a model; otherwise they were measured."""
    traces: bool = False
    """Whether it knows `--traced`."""
    validation: Study | None = None
    """What `--validate` does instead: it holds the study's model against what is real."""

    @property
    def found(self) -> str:
        """The heading of the values found."""
        return "Found (model)" if self.modelled else "Found (measured)"

    second: ClassVar[str] = "Found (traced programs)"
    """The heading of what the second data say."""

    def parts(self) -> Parts[Any]:
        """The parts of the study."""
        parts: Parts[Any] = import_module(self.module).PARTS
        return parts

    def conduct(
        self,
        folder: Path,
        *,
        quick: bool,
        figure: str | None,
        only: Sequence[str],
        seed: int,
        validate: bool,
        traced: bool,
        as_json: bool,
        quiet: bool,
    ) -> None:
        """Carry the study, or its validation, out; write files in the folder and print the claims.

        Raises MisuseError for a figure, a name of `only`, traces or a validation that the study
        does not have, VtaxError when nothing can be measured or a file cannot be written,
        KeyboardInterrupt after Ctrl-C.
        """
        from vtax_studies.driver import conduct

        if validate and traced:
            raise MisuseError("--validate and --traced exclude each other", "give one of them")
        study = self.validation if validate else self
        if study is None:
            raise MisuseError(f"study '{self.name}' has no model to validate")
        options = StudyOptions(quick, figure, seed, only, traced, folder)
        conduct(study, options, folder, as_json=as_json, quiet=quiet)
