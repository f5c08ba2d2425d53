"""The record of `vtax study`: `study.json`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vtax.core.formats.model import Kept, Strict


class SecondRecord(Strict):
    """The same claim on traced programs."""

    ours: str
    """The value found; empty where there is none."""
    verdict: Literal["holds", "does not hold", "cannot be judged"] | None
    """null: what it is about was not run."""
    reason: str
    """The criterion, or why there is no verdict."""
    differs: str
    """Why the verdict is another one; empty where it is not."""


class ClaimRecord(Strict):
    """A claim of a paper, judged."""

    name: str
    section: str
    statement: str
    stated: str = Field(alias="seed")  # the key in the file is older than this name
    ours: str
    """A short, stable name; where the paper says it; what it says; its value; the value that was
    found."""
    verdict: Literal["holds", "holds by a substitute only", "does not hold", "cannot be judged"]
    """The verdict on the claim."""
    reason: str
    """The criterion, and why it is not met or cannot be applied."""
    basis: Literal["result", "told", "emulation", "clock step"]
    """What the verdict rests on. `told`: the profile was made from this statement, or changed until
    it came out; `emulation`, `clock step`: nothing else supports it."""
    second: SecondRecord | None = None
    """What traced programs say about it, with `--traced`."""


class TableRecord(Strict):
    """A table of a study."""

    name: str
    title: str
    caption: str
    """What stands above the table."""
    headings: tuple[str, ...]
    """One for each column."""
    rows: tuple[tuple[str, ...], ...]
    """The cells."""


class FigureRecord(Strict):
    """A figure of a paper; what is drawn is in the report and the Parquet files."""

    number: str
    title: str
    caption: str
    paper: str = Field(alias="seed")
    """The paper's number; what stands above and below; what the paper says about it."""


class StudyRecord(Kept):
    """The content of `study.json` of `vtax study`."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    verb: Literal["study"] = "study"
    study: str
    paper: str
    vtax_version: str
    written_utc: str
    """The study's name, its paper, the version of vtax, and an ISO time."""
    setup: dict[str, str]
    """How it was made."""
    cautions: tuple[str, ...]
    """What a reader must know first."""
    claims: tuple[ClaimRecord, ...]
    """Each claim of the paper."""
    tables: tuple[TableRecord, ...]
    """The report's tables."""
    figures: tuple[FigureRecord, ...]
    """The paper's figures."""
    files: dict[str, str]
    """The Parquet file of each kind of data."""
