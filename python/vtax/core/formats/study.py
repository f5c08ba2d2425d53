"""The record of `vtax study`: `study.json`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vtax.core.formats.model import Kept, Strict


class ClaimRecord(Strict):
    """A claim of a paper, judged."""

    name: str
    """Short and stable."""
    section: str
    """Where the paper says it."""
    statement: str
    """What the paper says."""
    stated: str = Field(alias="seed")  # the key in the file is older than this name
    """The paper's value, in its words."""
    ours: str
    """The value that was found."""
    verdict: Literal["holds", "does not hold", "cannot be judged"]
    """The verdict on the claim."""
    reason: str
    """The criterion, and why it is not met or cannot be applied."""
    basis: Literal["result", "told", "emulation", "clock step"]
    """What the verdict rests on. `told`: the profile was made from this statement, or changed until
    it came out; `emulation`, `clock step`: nothing else supports it."""


class TableRecord(Strict):
    """A table of a study."""

    name: str
    title: str
    caption: str
    """What stands above the table."""
    headings: tuple[str, ...]
    """One for each column."""
    rows: tuple[tuple[str, ...], ...]
    """The texts of the cells."""


class FigureRecord(Strict):
    """A figure of a paper; what is drawn is in the report and the Parquet files."""

    number: str
    """As in the paper."""
    title: str
    caption: str
    """What stands above and below it."""
    paper: str = Field(alias="seed")
    """What the paper says about the figure."""


class StudyRecord(Kept):
    """The content of `study.json` of `vtax study`."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    verb: Literal["study"] = "study"
    study: str
    """The study's name."""
    paper: str
    """Which paper."""
    vtax_version: str
    """The version of vtax."""
    written_utc: str
    """ISO time."""
    setup: dict[str, str]
    """How it was made."""
    cautions: tuple[str, ...]
    """What a reader must know before believing any of it."""
    claims: tuple[ClaimRecord, ...]
    """Each claim of the paper."""
    tables: tuple[TableRecord, ...]
    """The report's tables."""
    figures: tuple[FigureRecord, ...]
    """The paper's figures."""
    files: dict[str, str]
    """The Parquet file of each kind of data."""
