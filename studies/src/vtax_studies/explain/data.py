"""What the study found, and the numbers that claims, tables and figures share; pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean, median

import numpy as np
import polars as pl

from vtax.core.formats.bill import Bill
from vtax.explain.bill import NS, Used
from vtax.explain.operations import CALLS, PROCESSES
from vtax.prices.analysis import Interval, PriceList
from vtax_studies.explain.programs import NOTHING, Loop, Program, priced
from vtax_studies.explain.setup import FULL, SAME, ExplainPlan
from vtax_studies.model import StudyData

EMULATED = "accel=tcg"


@dataclass(frozen=True, slots=True)
class Run:
    """One program's campaign."""

    bills: Mapping[str, Bill]
    """By environment."""
    native: Mapping[str, Used]
    """What each baseline's repetitions took, by its label."""
    prices: Mapping[str, PriceList]
    """By environment."""


@dataclass(frozen=True, slots=True)
class Row:
    """A program in an environment: what it took, and what was foretold. Times are seconds."""

    program: str
    environment: str
    native_s: float
    measured_s: float
    predicted_s: float
    by_system_time_s: float | None
    by_one_price_s: float | None
    explained: Interval | None
    """The share of the tax; None: there is no tax beyond its interval."""

    @property
    def error(self) -> float:
        return error(self.predicted_s, self.measured_s)


@dataclass(frozen=True, slots=True)
class Compared:
    """What was foretold of a difference, and the difference itself, in seconds."""

    name: str
    environment: str
    foretold: Interval
    measured: Interval

    @property
    def within(self) -> bool:
        """Whether the measured value lies in the foretold interval."""
        return self.foretold.low <= self.measured.value <= self.foretold.high

    @property
    def agrees(self) -> bool:
        """Whether both intervals together, whose deviations add as squares do, cover the gap."""
        gap = joined([self.measured], [self.foretold])
        return gap.low <= 0.0 <= gap.high


def error(predicted_s: float, measured_s: float) -> float:
    """|predicted / measured - 1|."""
    return abs(predicted_s / measured_s - 1.0)


def explained(bill: Bill) -> Interval | None:
    """1 - |residual| / difference, between the shares at the ends of the residual's interval.

    None: the environment was not measured, or its difference's interval reaches zero.
    """
    if None in (bill.difference_s, bill.residual_s) or (bill.difference_low or 0.0) <= 0.0:
        return None
    assert bill.difference_s is not None and bill.residual_s is not None
    low, high = bill.residual_low or 0.0, bill.residual_high or 0.0
    least = 0.0 if low <= 0.0 <= high else min(abs(low), abs(high))
    shares = (1.0 - each / bill.difference_s for each in
              (abs(bill.residual_s), max(abs(low), abs(high)), least))  # fmt: skip
    return Interval(*shares)


def by_system_time(bill: Bill, native: Used, prices: PriceList) -> float | None:
    """A rival: T + S (r - 1) / c, with the native time T, the native system time S, the ratio r of
    the prices of an empty call, and the bill's concurrency c. None: no user time, or no price."""
    ratios = prices.times(("null",))
    if not native.user_s or not ratios:
        return None
    system_s = max(0.0, fmean(native.cpu_s.values()) - fmean(native.user_s.values()))
    return bill.baseline_s + system_s * (median(ratios) - 1.0) / bill.concurrency


def by_one_price(bill: Bill, prices: PriceList) -> float | None:
    """A rival: T + n d / c, with the number n of all calls, and the mean d of the price differences
    of all classes of calls that the program makes. None: none has a price."""
    lines = [line for line in bill.lines if line.group in (CALLS, PROCESSES) and line.count]
    differences = [line.price_delta_ns for line in lines if line.price_delta_ns is not None]
    if not differences:
        return None
    calls = sum(line.count or 0.0 for line in lines)
    return bill.baseline_s + calls * fmean(differences) * NS / bill.concurrency


def joined(plus: Iterable[Interval], minus: Iterable[Interval] = ()) -> Interval:
    """The sum of the first less that of the second; independent deviations add as squares do."""
    mirrored = [Interval(-each.value, -each.high, -each.low) for each in minus]
    terms = [*plus, *mirrored]
    value = sum(each.value for each in terms)
    below = math.sqrt(sum((each.value - each.low) ** 2 for each in terms))
    above = math.sqrt(sum((each.high - each.value) ** 2 for each in terms))
    return Interval(value, value - below, value + above)


def difference(bill: Bill) -> Interval | None:
    """What the environment takes more; None: not measured."""
    if bill.difference_s is None or bill.difference_low is None or bill.difference_high is None:
        return None
    return Interval(bill.difference_s, bill.difference_low, bill.difference_high)


def charged(bill: Bill, names: Sequence[str]) -> Sequence[Interval] | None:
    """The lines of these names, or all. None: one of them is not priced."""
    found = []
    for line in bill.lines:
        if names and line.operation not in names:
            continue
        if line.seconds is None or line.low is None or line.high is None:
            return None
        found.append(Interval(line.seconds, line.low, line.high))
    return found


def removed(loop: Loop, bill: Bill, without: Bill) -> Compared | None:
    """The lines of a loop, and by how much the tax falls without it. None: a line has no price, the
    loop has no line, or nothing was measured."""
    lines, others = charged(bill, loop.lines), charged(without, loop.lines)
    tax, rest = difference(bill), difference(without)
    if not lines or others is None or tax is None or rest is None:
        return None
    measured = joined([tax], [rest])
    return Compared(loop.name, bill.environment, joined(lines, others), measured)


def changed(name: str, before: Bill, after: Bill) -> Compared | None:
    """By how much the tax changes, by counts and prices alone and measured. None: not measured."""
    first, last = difference(before), difference(after)
    if first is None or last is None:
        return None
    foretold = joined([_foretold(after)], [_foretold(before)])
    return Compared(name, after.environment, foretold, joined([last], [first]))


def _foretold(bill: Bill) -> Interval:
    ends = (bill.predicted_s, bill.predicted_low, bill.predicted_high)
    return Interval(*(each - bill.baseline_s for each in ends))


@dataclass(frozen=True, slots=True)
class Errors:
    """The distribution of errors, as shares."""

    n: int
    median: float
    ninetieth: float
    maximum: float


def errors(values: Sequence[float]) -> Errors | None:
    """Quantiles by linear interpolation; None without a value."""
    if not values:
        return None
    middle, ninetieth = np.quantile(values, (0.5, 0.9))
    return Errors(len(values), float(middle), float(ninetieth), max(values))


@dataclass(frozen=True, eq=False)
class Data(StudyData):
    """Every campaign, by the name of its program."""

    runs: Mapping[str, Run]
    plan: ExplainPlan = field(default=FULL)

    @cached_property
    def rows(self) -> Sequence[Row]:
        """Each real program in each environment that was measured."""
        names = [each.name for each in self.plan.programs if each.name in self.runs]
        return [row for name in names for row in _rows(name, self.runs[name])]

    @cached_property
    def loops(self) -> Sequence[Compared]:
        """Each loop in each environment, against the program that does nothing."""
        without = self._bills(NOTHING.program())
        pairs = ((loop, self._bills(loop.program())) for loop in self.plan.loops)
        found = (removed(loop, bill, without[name]) for loop, bills in pairs
                 for name, bill in bills.items() if name in without and name != SAME)  # fmt: skip
        return [each for each in found if each is not None]

    @cached_property
    def changes(self) -> Sequence[Compared]:
        """Each change of counts, then of prices."""
        return [each for each in (*self._counts(), *self._prices()) if each is not None]

    def _counts(self) -> Iterator[Compared | None]:
        for change in self.plan.changes:
            before, after = map(self._bills, change.programs())
            for name in before:
                if name in after and name != SAME:
                    yield changed(change.name, before[name], after[name])

    def _prices(self) -> Iterator[Compared | None]:
        for before, after in self.plan.price_changes:
            bills = self._bills(priced((before, after)))
            if before in bills and after in bills:
                yield changed(f"{before} to {after}", bills[before], bills[after])

    @cached_property
    def same(self) -> Mapping[str, Bill]:
        """The A/A bills by program."""
        return {name: run.bills[SAME] for name, run in self.runs.items() if SAME in run.bills}

    def _bills(self, program: Program) -> Mapping[str, Bill]:
        found = self.runs.get(program.name)
        return {} if found is None else found.bills

    def without_emulation(self) -> Data | None:
        """The data without emulated environments; None where there are none."""
        bills = {name: {spec: bill for spec, bill in run.bills.items() if EMULATED not in spec}
                 for name, run in self.runs.items()}  # fmt: skip
        if all(len(bills[name]) == len(run.bills) for name, run in self.runs.items()):
            return None
        kept = {name: replace(run, bills=bills[name]) for name, run in self.runs.items()}
        return replace(self, runs=kept)

    def frames(self) -> Mapping[str, pl.DataFrame]:
        """A row for each program and environment, each loop, each change, each A/A bill."""
        rows = [{name: getattr(row, name) for name in Row.__slots__} | {"error": row.error}
                for row in self.rows]  # fmt: skip
        for row in rows:
            row["explained"], row["explained_low"], row["explained_high"] = _ends(row["explained"])
        frames = {
            "programs": rows,
            "loops": [_compared(each) for each in self.loops],
            "changes": [_compared(each) for each in self.changes],
            "same": [{"program": name, "residual_s": bill.residual_s, "low": bill.residual_low,
                      "high": bill.residual_high} for name, bill in self.same.items()],
        }  # fmt: skip
        return {
            name: pl.DataFrame(own, infer_schema_length=None) for name, own in frames.items() if own
        }


def _rows(name: str, run: Run) -> Iterator[Row]:
    for spec, bill in run.bills.items():
        if spec == SAME or bill.difference_s is None:
            continue
        yield Row(
            program=name,
            environment=spec,
            native_s=bill.baseline_s,
            measured_s=bill.baseline_s + bill.difference_s,
            predicted_s=bill.predicted_s,
            by_system_time_s=by_system_time(bill, run.native[bill.baseline], run.prices[spec]),
            by_one_price_s=by_one_price(bill, run.prices[spec]),
            explained=explained(bill),
        )


def _compared(each: Compared) -> dict[str, object]:
    told, found = _ends(each.foretold), _ends(each.measured)
    names = ("_s", "_low", "_high")
    return {
        "name": each.name,
        "environment": each.environment,
        **{f"foretold{end}": value for end, value in zip(names, told, strict=True)},
        **{f"measured{end}": value for end, value in zip(names, found, strict=True)},
        "within": each.within,
        "agrees": each.agrees,
    }


def _ends(found: Interval | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if found is None else (found.value, found.low, found.high)
