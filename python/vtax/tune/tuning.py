"""What `vtax-agent probe` and `vtax-agent tune` print (docs/tune.md).

The form of a machine's answer is checked, its content is not trusted: everything is bounded, and
fields that this vtax does not know are left out. Records keep these answers as they are.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=500)]
Name = Annotated[str, Field(max_length=80)]
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e18, le=1e18)]
Rate = Annotated[float, Field(gt=0, le=1e12)]
Count = Annotated[int, Field(ge=0, le=1 << 60)]
Bytes = Annotated[float, Field(ge=0, le=1 << 60)]
Fields = Annotated[dict[Name, bool | int | float | Name], Field(max_length=40)]
"""The values of parameters, by ATLAS's names or vtax's own."""
Notes = Annotated[tuple[Text, ...], Field(max_length=50)]


class Foreign(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class Probe(Foreign):
    """A quantity of the processor or of memory."""

    name: Name
    atlas: Name | None = None
    """ATLAS's name for the quantity."""
    unit: Name
    value: Number | None
    """The median; None: not measured, with the reason."""
    low: Number | None = None
    """95 % interval, with `high`."""
    high: Number | None = None
    claimed: Number | None = None
    """The value that CPUID or the kernel states."""
    agrees: bool | None = None
    runs: Count = 0
    reason: Text | None = None


class CurvePoint(Foreign):
    """The latency of a load from a working set."""

    bytes: Count
    ns: Number
    low: Number | None = None
    high: Number | None = None


class CurveEdge(Foreign):
    """A step of a curve, with its interval."""

    bytes: Bytes
    low: Bytes
    high: Bytes


class Curve(Foreign):
    """Latency against working set."""

    name: Name
    points: Annotated[tuple[CurvePoint, ...], Field(max_length=2000)]
    edges: Annotated[tuple[CurveEdge, ...], Field(max_length=20)] = ()


class Probed(Foreign):
    """What `vtax-agent probe --json` prints."""

    seconds: Number = 0.0
    probes: Annotated[tuple[Probe, ...], Field(max_length=200)]
    curves: Annotated[tuple[Curve, ...], Field(max_length=10)] = ()
    notes: Notes = ()


class Rated(Foreign):
    """A performance, with the 95 % interval of the median where there were enough runs."""

    gflops: Rate
    low: Rate | None = None
    high: Rate | None = None
    runs: Count = 0


class Rival(Rated):
    """A candidate that came close to the winner."""

    fields: Fields


class Rejected(Foreign):
    """A candidate that gave wrong results, or did not run."""

    fields: Fields
    why: Text


class Routine(Rated):
    """A routine with its parameters: the winner of a search, or the given ones."""

    routine: Annotated[str, Field(pattern=r"^[sd](gemm_[nt][nt]|gemv_[nt]|ger)$")]
    fields: Fields
    trials: Count = 0
    rejected: Annotated[tuple[Rejected, ...], Field(max_length=10_000)] = ()
    rivals: Annotated[tuple[Rival, ...], Field(max_length=1000)] = ()


class EdgePoint(Rated):
    """The performance with one CacheEdge."""

    bytes: Count


class CacheEdge(Foreign):
    """The sweep of cache block sizes (figures 3 to 5 of the paper)."""

    size: Count
    l1_only: Rated | None
    """The performance without a block of the second cache."""
    points: Annotated[tuple[EdgePoint, ...], Field(max_length=64)]
    chosen: Annotated[tuple[Count | None, ...], Field(max_length=10_000)]
    """The choice of each run; None: no edge was better than the first cache's blocks alone."""
    l2_bytes: Count | None = None


class Start(Foreign):
    """The caches from whose sizes a search starts; None: no source gives a size."""

    l1_bytes: Count | None
    l2_bytes: Count | None
    from_: Annotated[Literal["probes", "claimed"], Field(alias="from")]


class Tuned(Foreign):
    """What `vtax-agent tune --json` prints."""

    size: Count
    """Rows and columns of what was timed; in a slow machine less than was asked for."""
    start: Start | None = None
    """None: there was no search of GEMM."""
    seconds: Number = 0.0
    complete: bool = True
    """False: the budget ended the search before everything was searched."""
    resumed: Count = 0
    """Trials that were in the log already."""
    routines: Annotated[tuple[Routine, ...], Field(max_length=32)]
    cache_edge: CacheEdge | None = None
    notes: Notes = ()
