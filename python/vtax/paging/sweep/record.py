"""The record of `vtax paging sweep`: `sweep.json`."""

from __future__ import annotations

from typing import Any, Literal

from vtax.core.formats.model import Count, Kept, Scalar, Strict


class FailedPoint(Strict):
    """A point of a sweep without a result."""

    point: str
    label: str
    error: str


class SweepRecord(Kept):
    """The content of `sweep.json` of `vtax paging sweep`."""

    schema_version: Literal[1] = 1
    verb: Literal["paging sweep"] = "paging sweep"
    vtax: str
    """The version of vtax: points of two versions do not belong in one table."""
    state: Literal["running", "complete", "interrupted", "failed"]
    command_line: tuple[str, ...]
    started: str
    written: str
    name: str
    study: str
    """The text of the design."""
    axes: dict[str, tuple[Scalar, ...]]
    """The values of each column."""
    modes: tuple[str, ...]
    seed: Scalar | None
    """None: the simulation's own seed."""
    machines: dict[str, dict[str, Any]]
    traces: dict[str, str]
    """The digest of each trace's content, by path."""
    points: Count
    finished: Count
    failed: tuple[FailedPoint, ...]
    scheduler: str | None
    """The address of the Dask cluster; None: local workers."""
    workers: int | None
    versions: dict[str, str]
    """The versions of Python and the libraries."""
    columns: dict[str, str]
    """The meaning of the columns of `sweep.parquet`."""
