"""The bill of a comparison: `bill.json` in its run folder."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from vtax.core.formats.model import Kept, Strict

BILL = "bill.json"

LineKind = Literal["measured", "priced", "modelled", "not priced"]
"""How a line's time is known: by the machine's own accounting, by counts and prices, by a price
that is assumed to hold, or not at all."""


class Site(Strict):
    """A function that makes the calls of a line."""

    module: str
    """The file of the function, without its folder."""
    function: str
    """Its name; `+0x...`, the place in the file, where it has none; empty: not known."""
    count: int
    """How many of the calls it made."""
    share: float
    """Its part of all calls of the line."""


class BillLine(Strict):
    """What one operation adds to the program's time."""

    operation: str
    """The operation: a class of system calls, a kind of page faults, user code, steal time, ..."""
    group: str
    """What kind of operation it is."""
    count: float | None
    """How often the program does it, natively; None: it is no operation that is counted."""
    price_delta_ns: float | None
    """What one costs more than natively; None: not priced, or measured as a whole."""
    seconds: float | None
    """What all of them cost more; None: not priced."""
    low: float | None
    high: float | None
    """Between these the seconds lie, by the spread of prices, contexts and counts."""
    structural_s: float | None = None
    """The part that the emptiest call of its class would cost; None: not known."""
    kind: LineKind
    """How the seconds are known."""
    note: str = ""
    """What a reader must know of the line."""
    sites: tuple[Site, ...] = ()
    """Where in the program most of them are, the most frequent first; empty: not known."""


class Remedy(Strict):
    """What would make a line cheaper."""

    operation: str
    """The line's operation."""
    text: str
    """What to do."""
    gain_s: float
    """What the program would take less, by the prices of the bill."""
    at_most: bool
    """Whether the gain is that of not doing the operation at all."""
    source: str
    """Where it is described."""


class Bill(Strict):
    """Why one environment takes more time than its baseline."""

    environment: str
    """Its label."""
    baseline: str
    """The label of the environment that it is compared with."""
    baseline_s: float
    """The program's time there, the mean of the rounds."""
    difference_s: float | None
    """What the environment takes more; None: it was not run (`--predict`)."""
    difference_low: float | None
    difference_high: float | None
    """The 95 % interval of the difference; None: there are too few rounds."""
    predicted_s: float
    """The program's time there by counts and prices alone, as if it had not been run."""
    predicted_low: float
    predicted_high: float
    """Its bounds, by those of counts and prices."""
    concurrency: float
    """CPUs that the program keeps busy in the baseline, at least 1: lines are divided by it."""
    host_cpu_s: float | None = None
    baseline_host_cpu_s: float | None = None
    """CPU time of this host for one run, in the environment and in its baseline; None: not
    known."""
    lines: tuple[BillLine, ...]
    """The lines, the dearest first."""
    residual_s: float | None
    """What the lines leave unexplained; None: the environment was not run."""
    residual_low: float | None
    residual_high: float | None
    """The bounds of the residual."""
    remedies: tuple[Remedy, ...] = ()
    """What to do about the dearest lines, the largest gain first."""
    warnings: tuple[str, ...] = ()
    """What a reader must know before believing the bill."""


class BillRecord(Kept):
    """The content of `bill.json`."""

    has_page: ClassVar[bool] = False

    schema_version: Literal[1] = 1
    verb: Literal["explain"] = "explain"
    vtax_version: str
    """The version of vtax that wrote the file."""
    name: str
    """What ran, in words."""
    counted_by: str
    """How operations were counted."""
    counting_cost_percent: float | None
    """How much longer the program took while it was counted; None: not known."""
    sites_note: str = ""
    """How call sites are known, or why they are not."""
    counts: dict[str, tuple[float, ...]]
    """Each operation's count in each counting run."""
    bills: tuple[Bill, ...]
    """One for each environment but the baseline."""
    prices: tuple[dict[str, Any], ...] = ()
    """The prices that were used: the environments of a record of `vtax prices`."""
