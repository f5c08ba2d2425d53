"""The record of `vtax memory`: `run.json` of its runs."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vtax.core.formats.model import Better, Count, Strict, VerbRecord


class MemoryPoint(Strict):
    """The runs of one size in one environment of `vtax memory`."""

    size: Count
    """The number that stood for `{size}`."""
    n: Count
    """The number of runs that gave a value."""
    median: float | None
    """The median of these runs; None: there is none."""
    low: float | None
    high: float | None
    """The smallest and the largest value of these runs."""
    unit: str
    """The metric's unit."""
    end: Literal["ok", "oom", "failed"]
    """How most runs ended: with a value, by the kernel's OOM killer, otherwise."""
    killed: Count
    """The number of runs that the OOM killer ended."""
    failed: Count
    """The number of runs that ended otherwise without a value."""
    message: str | None = None
    """Why the last of the failed runs failed."""
    swap_bytes: float | None
    """The most that was swapped out at a time. This and all that follow are of the median run;
    None: not known."""
    swapped_in_bytes: float | None
    swapped_out_bytes: float | None
    """What was read from swap, and what was written."""
    max_rss_bytes: float | None
    """The program's largest resident set."""
    working_set_bytes: float | None
    """What the program's first process used within a second, with `--working-set`."""
    major_faults: float | None
    minor_faults: float | None
    """Page faults with and without I/O."""
    dtlb_misses: float | None
    itlb_misses: float | None
    """Misses of loads in the data TLB and of fetches in the instruction TLB; None also where there
    is no PMU."""
    stalled_s: float | None
    """Time in which some task of the machine waited for memory (PSI)."""


class MemoryCliff(Strict):
    """The edge past which performance is lost."""

    size: Count | None
    """The largest size before the edge; None: performance has fallen at the smallest size."""
    low: Count | None
    """The edge lies above this size (None: above 0) and not above `high`, with 95 % confidence."""
    high: Count
    """The upper end of this interval."""


class MemoryEnvironment(Strict):
    """What `vtax memory` found in one environment."""

    spec: str
    """As on the command line."""
    description: str
    """What it really is, in words."""
    memory_bytes: Count | None
    """The memory that programs and, in a guest, its kernel may use."""
    kernel_bytes: dict[str, int | None]
    """Bytes of the kernel's memory while programs ran, by part; None: the machine does not say."""
    absent: dict[str, str] = Field(default_factory=dict)
    """What could not be measured, with the reason."""
    points: tuple[MemoryPoint, ...]
    """What each size gave."""
    cliff: MemoryCliff | None
    """The edge past which performance is lost; None: performance does not fall."""
    user_bytes: Count | None
    """The largest resident set of the program at the last size before the cliff; None: no cliff,
    or no size before it."""
    notes: tuple[str, ...] = ()
    """What a reader must know."""


class MemoryDifference(Strict):
    """Whether the cliffs of two environments differ."""

    a: str
    b: str
    """The environments, as on the command line."""
    size_a: float | None
    size_b: float | None
    """The mean of the middles of the rounds' own edges; None: not every round has an edge."""
    p: float | None
    """p of the permutation test; None: too few rounds."""
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
    """The metric that is looked at, and its unit."""
    better: Better
    """The metric's better direction."""
    sizes: tuple[Count, ...]
    """In ascending order."""
    runs: Count
    """Runs of each size in each environment."""
    seed: int
    """The seed of the order and of the bootstrap."""
    environments: tuple[MemoryEnvironment, ...] = ()
    """What was found in each."""
    differences: tuple[MemoryDifference, ...] = ()
    """Whether cliffs differ."""
