"""The record of `vtax paging sweep`: `sweep.json`."""

from __future__ import annotations

from typing import Any, Literal

from vtax.core.formats.model import Count, Kept, Scalar, Strict


class FailedPoint(Strict):
    """A point of a sweep without a result."""

    point: str
    """Its key."""
    label: str
    """Its values, in words."""
    error: str
    """Why."""


class SweepRecord(Kept):
    """The content of `sweep.json` of `vtax paging sweep`."""

    schema_version: Literal[1] = 1
    verb: Literal["paging sweep"] = "paging sweep"
    vtax: str
    """The version of vtax: points of two versions do not belong in one table, and `--resume`
    refuses another one."""
    state: Literal["running", "complete", "interrupted", "failed"]
    """As of `compare`."""
    command_line: tuple[str, ...]
    """As the user typed it."""
    started: str
    """ISO time of the start."""
    written: str
    """ISO time of this file."""
    name: str
    """The design's name."""
    study: str
    """The design, a TOML text."""
    axes: dict[str, tuple[Scalar, ...]]
    """The values of each column."""
    modes: tuple[str, ...]
    """Ways of translation, and policies."""
    seed: Scalar | None
    """None: the simulation's own seed."""
    machines: dict[str, dict[str, Any]]
    """The description of each machine, by name."""
    traces: dict[str, str]
    """The digest of each trace's content, by path."""
    points: Count
    finished: Count
    """The number of points of the design, and of those that are done."""
    failed: tuple[FailedPoint, ...]
    """Each point without a result."""
    scheduler: str | None
    """The address of the Dask cluster; None: local workers."""
    workers: int | None
    """The number of local workers; None: a cluster."""
    versions: dict[str, str]
    """The versions of Python and the libraries."""
    columns: dict[str, str]
    """The meaning of the columns of `sweep.parquet`."""
