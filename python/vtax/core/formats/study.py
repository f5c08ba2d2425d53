"""The record of `vtax study`: `study.json`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vtax.core.formats.model import Kept, Strict


class ClaimRecord(Strict):
    """A claim of a paper, judged."""

    name: str
    section: str
    statement: str
    stated: str = Field(alias="seed")
    """The paper's value. The key in the file is older than this name."""
    ours: str
    verdict: Literal["holds", "does not hold", "cannot be judged"]
    reason: str
    basis: Literal["result", "told", "emulation", "clock step"]


class TableRecord(Strict):
    """A table of a study."""

    name: str
    title: str
    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class FigureRecord(Strict):
    """A figure of a paper; what is drawn is in the report and the Parquet files."""

    number: str
    title: str
    caption: str
    paper: str = Field(alias="seed")
    """What the paper says about the figure."""


class StudyRecord(Kept):
    """The content of `study.json` of `vtax study`."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    verb: Literal["study"] = "study"
    study: str
    paper: str
    vtax_version: str
    written_utc: str
    setup: dict[str, str]
    cautions: tuple[str, ...]
    claims: tuple[ClaimRecord, ...]
    tables: tuple[TableRecord, ...]
    figures: tuple[FigureRecord, ...]
    files: dict[str, str]
    """The Parquet file of each kind of data."""
