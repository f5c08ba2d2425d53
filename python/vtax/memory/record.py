"""The record of `vtax memory`: `run.json` of its runs."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vtax.core.formats.model import Better, Count, Strict, VerbRecord


class MemoryPoint(Strict):
    """The runs of one size in one environment of `vtax memory`."""

    size: Count
    n: Count
    """The number for `{size}`; runs that gave a value."""
    median: float | None
    low: float | None
    high: float | None
    """The median, the smallest and the largest of these values."""
    unit: str
    """The metric's unit."""
    end: Literal["ok", "oom", "failed"]
    """How most runs ended; `oom`: by the kernel's OOM killer."""
    killed: Count
    failed: Count
    """Runs that the OOM killer ended; that ended otherwise without a value."""
    message: str | None = None
    """Why the last failed run failed."""
    swap_bytes: float | None
    swapped_in_bytes: float | None
    swapped_out_bytes: float | None
    max_rss_bytes: float | None
    working_set_bytes: float | None
    """The most that was swapped out at a time; what was read from swap, and written; the largest
    resident set; what the first process used within a second (`--working-set`). These and all that
    follow are of the median run."""
    major_faults: float | None
    minor_faults: float | None
    dtlb_misses: float | None
    itlb_misses: float | None
    stalled_s: float | None
    """Page faults with and without I/O; TLB misses of loads and of fetches, with a PMU; time in
    which some task waited for memory (PSI)."""


class MemoryCliff(Strict):
    """The edge past which performance is lost."""

    size: Count | None
    low: Count | None
    """The largest size before the edge; with 95 % confidence the edge lies above `low` (None: above
    0) and not above `high`."""
    high: Count
    """As `low`."""


class MemoryEnvironment(Strict):
    """What `vtax memory` found in one environment."""

    spec: str
    description: str
    """As typed, and what it is, in words."""
    memory_bytes: Count | None
    """What programs and, in a guest, its kernel may use."""
    kernel_bytes: dict[str, int | None]
    """The kernel's memory while programs ran, by part."""
    others_bytes: Count | None = None
    """The resident sets of all other processes of a guest, the measuring agents; shared pages
    once."""
    absent: dict[str, str] = Field(default_factory=dict)
    """What could not be measured, and why."""
    points: tuple[MemoryPoint, ...]
    """What each size gave."""
    cliff: MemoryCliff | None
    """The edge past which performance is lost."""
    user_bytes: Count | None
    """The program's largest resident set at the last size before the cliff."""
    notes: tuple[str, ...] = ()
    """What a reader must know."""


class MemoryDifference(Strict):
    """Whether the cliffs of two environments differ."""

    a: str
    b: str
    """The environments."""
    size_a: float | None
    size_b: float | None
    p: float | None
    """The means of the middles of the rounds' own edges; p of the permutation test."""
    verdict: Literal["differ", "no difference shown", "not known"]
    """What the test says."""


class MemoryRecord(VerbRecord):
    """The content of `run.json` of `vtax memory`."""

    has_page: ClassVar[bool] = True

    verb: Literal["memory"] = "memory"
    state: Literal["running", "complete", "interrupted", "budget", "failed"] = "running"
    """As of `compare`."""
    argv: tuple[str, ...]
    """The program; `{size}` stands for a size."""
    metric: str
    unit: str
    """What is looked at, and its unit."""
    better: Better
    """The better direction."""
    sizes: tuple[Count, ...]
    """In ascending order."""
    runs: Count
    seed: int
    """Runs of each size in each environment; the seed of order and bootstrap."""
    environments: tuple[MemoryEnvironment, ...] = ()
    """What was found in each."""
    differences: tuple[MemoryDifference, ...] = ()
    """Whether cliffs differ."""
