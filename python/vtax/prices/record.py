"""The record of `vtax prices`: `run.json` of its runs, and what the cache keeps."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from vtax.core.formats.model import Count, Strict, VerbRecord


class PricedOperation(Strict):
    """One operation in one context, in one environment."""

    name: str
    """The operation, as `vtax-agent prices --list` names it."""
    context: str
    """In which circumstances, in words."""
    structural: bool = False
    """Whether it is the emptiest call of its class: what any such call costs."""
    size: float | None = None
    """Bytes, nanoseconds of other work, or pages of one operation; None: it has no size."""
    calls: float = 1.0
    """The system calls that one operation makes."""
    faults: float = 0.0
    """Page faults without I/O of one operation."""
    switches: float = 0.0
    """Context switches by waiting of one operation."""
    ns: tuple[float, ...]
    """Nanoseconds of one operation, a value for each round in which it ran."""


class AbsentOperation(Strict):
    """An operation that could not be measured."""

    name: str
    """The operation."""
    context: str = ""
    """In which circumstances; empty: in none."""
    reason: str
    """Why, in the words of the agent."""


class PricedEnvironment(Strict):
    """What operations cost in one environment."""

    label: str
    """The environment's name in the run."""
    spec: str
    """As on the command line; for a matched baseline, as vtax made it."""
    baseline: str | None
    """The label of the environment that it was measured beside; None for a baseline."""
    description: str
    """What the machine is, in words."""
    facts: dict[str, Any]
    """Facts as `vtax-agent facts` prints them."""
    operations: tuple[PricedOperation, ...]
    """The operations that could be measured."""
    absent: tuple[AbsentOperation, ...]
    """The others."""


class PricesRecord(VerbRecord):
    """The content of `run.json` of `vtax prices`."""

    has_page: ClassVar[bool] = True

    verb: Literal["prices"] = "prices"
    state: Literal["running", "complete", "interrupted", "budget", "failed"] = "running"
    """As of `compare`."""
    rounds: Count
    """How often each environment was measured, in turn with the others."""
    seconds: float
    """How long one measurement takes."""
    seed: Count
    """The seed of the order."""
    environments: tuple[PricedEnvironment, ...]
    """The environments, each baseline before those that refer to it."""
