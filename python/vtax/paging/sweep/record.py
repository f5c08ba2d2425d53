"""The record of `vtax paging sweep`: `sweep.json`."""

from __future__ import annotations

from typing import Any, Literal

from vtax.core.formats.model import Count, Kept, Scalar, Strict


class FailedPoint(Strict):
    """A point of a sweep without a result."""

    point: str
    label: str
    error: str
    """Its key; its values, in words; why."""


class SweepRecord(Kept):
    """The content of `sweep.json` of `vtax paging sweep`."""

    schema_version: Literal[1] = 1
    verb: Literal["paging sweep"] = "paging sweep"
    vtax: str
    """The version of vtax; `--resume` refuses another."""
    state: Literal["running", "complete", "interrupted", "failed"]
    """As of `compare`."""
    command_line: tuple[str, ...]
    """As typed."""
    started: str
    written: str
    name: str
    study: str
    """ISO times of the start and of this file; the design's name; the design in TOML."""
    axes: dict[str, tuple[Scalar, ...]]
    """The values of each column."""
    modes: tuple[str, ...]
    """Ways of translation, and policies."""
    seed: Scalar | None
    """None: the simulation's own seed."""
    machines: dict[str, dict[str, Any]]
    """Each machine's description, by name."""
    traces: dict[str, str]
    """The digest of each trace's content, by path."""
    points: Count
    finished: Count
    """Points of the design, and those that are done."""
    failed: tuple[FailedPoint, ...]
    """Each point without a result."""
    scheduler: str | None
    """The address of the Dask cluster."""
    workers: int | None
    """The number of local workers."""
    versions: dict[str, str]
    columns: dict[str, str]
    """The versions of Python and libraries; the meaning of the columns of `sweep.parquet`."""
