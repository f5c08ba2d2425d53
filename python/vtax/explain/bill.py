"""The bill: counts of a program's operations times what each costs more; pure functions.

`seconds = count x price difference / concurrency`. The counts are those of a native run, for a
program makes the same calls everywhere; the differences are those of `vtax prices`. No price is
fitted to a program. An operation that includes others is charged without them: the faults of a
fork are counted as faults, the calls that surround a context switch as calls. What the machines
themselves accounted for (user time of translated code, steal time) replaces prices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from vtax.core.formats.bill import Bill, BillLine
from vtax.core.statistics.statistics import Estimate
from vtax.explain.operations import OPERATIONS, USER_CODE, USUAL_CODE, Operation
from vtax.prices.analysis import Interval, PriceList

NOTHING = Interval(0.0, 0.0, 0.0)
NS = 1e-9
TRANSLATED = 1.25
"""From this ratio of the prices of user code on, an environment does not run the processor's own
instructions, and its user time is taken as its kernel accounted for it."""
UNSTEADY = 0.05
"""Counts that differ more than this between runs are told."""
FEW = 20
"""Below this count a difference between runs means nothing."""


@dataclass(frozen=True, slots=True)
class Used:
    """What the repetitions of one environment took, by their rounds."""

    wall_s: Mapping[int, float]
    user_s: Mapping[int, float]
    """Empty: not known."""
    cpu_s: Mapping[int, float]
    steal_s: Mapping[int, float]
    """Empty: not known."""
    voluntary_switches: float
    """The mean of the repetitions."""
    minor_faults: float
    """The mean of the repetitions; 0: the kernel does not count them."""
    guest_s: Mapping[int, float] = field(default_factory=dict)
    """Time that its virtual CPUs ran the guest's code, by its host's KVM; empty: not known."""
    exits: Mapping[int, float] = field(default_factory=dict)
    """VM exits; empty: not known."""


@dataclass(frozen=True, slots=True)
class Counted:
    """How often a program does each operation, in each counting run."""

    runs: Mapping[str, Sequence[float]]

    def mean(self, name: str) -> float:
        return fmean(self.runs[name]) if self.runs.get(name) else 0.0

    def spread(self, name: str) -> Interval:
        """The mean with the smallest and the largest count."""
        found = self.runs.get(name) or (0.0,)
        return Interval(fmean(found), min(found), max(found))

    def unsteady(self) -> Sequence[str]:
        """The operations whose counts differ between the runs by more than 5 %."""
        return [
            name
            for name, found in self.runs.items()
            if max(found) >= FEW and max(found) - min(found) > UNSTEADY * max(found)
        ]


def bill(
    environment: str,
    baseline: str,
    used: Used | None,
    base: Used,
    counted: Counted,
    prices: PriceList,
) -> Bill:
    """The bill of one environment; `used` None: it was not run, and its time is predicted."""
    concurrency = _concurrency(base)
    foretold = [
        *_operations(None, base, counted, prices, concurrency),
        _user_code(None, base, prices, concurrency),
    ]
    priced = _operations(used, base, counted, prices, concurrency)
    lines = sorted(
        (
            *priced,
            _user_code(used, base, prices, concurrency),
            *_steal(used, base, concurrency),
            *_outside(used, base),
        ),
        key=lambda line: -abs(line.seconds or 0.0),
    )
    base_s = fmean(base.wall_s.values())
    difference = _paired(used.wall_s, base.wall_s) if used else None
    residual = difference - _sum(lines) if difference else None
    predicted = _shifted(_sum(foretold), base_s)
    return Bill(
        environment=environment,
        baseline=baseline,
        baseline_s=base_s,
        difference_s=difference.value if difference else None,
        difference_low=difference.low if difference else None,
        difference_high=difference.high if difference else None,
        predicted_s=predicted.value,
        predicted_low=predicted.low,
        predicted_high=predicted.high,
        concurrency=concurrency,
        lines=tuple(lines),
        residual_s=residual.value if residual else None,
        residual_low=residual.low if residual else None,
        residual_high=residual.high if residual else None,
        warnings=tuple(_warnings(counted, lines, concurrency)),
    )


def _concurrency(base: Used) -> float:
    """CPUs that the program keeps busy; work that several of them do at once is waited for once."""
    wall_s = fmean(base.wall_s.values())
    return max(1.0, fmean(base.cpu_s.values()) / wall_s) if wall_s > 0 else 1.0


def _operations(
    used: Used | None, base: Used, counted: Counted, prices: PriceList, concurrency: float
) -> Iterator[BillLine]:
    for each in OPERATIONS:
        count = _count(each, counted, base)
        if count.high <= 0:
            continue
        more = _price(each, used, base, counted, prices)
        if more is None:
            yield _unpriced(each.name, each.group, count.value)
        else:
            yield _line(each, count, more, prices.structural(each.price), concurrency)


def _count(each: Operation, counted: Counted, base: Used) -> Interval:
    if each.by_switches:
        return Interval(*[base.voluntary_switches] * 3)
    found = _sum_of(each.columns, counted)
    less = sum(counted.mean(column) for column in each.less)
    most = _sum_of(each.at_most, counted).value if each.at_most else math.inf
    return Interval(
        *(min(max(0.0, end - less), most) for end in (found.value, found.low, found.high))
    )


def _sum_of(columns: Sequence[str], counted: Counted) -> Interval:
    found = NOTHING
    for column in columns:
        found += counted.spread(column)
    return found


def _price(
    each: Operation, used: Used | None, base: Used, counted: Counted, prices: PriceList
) -> Interval | None:
    """What one costs more, without what is on other lines."""
    more = prices.more(each.price, _size(each, used, base, counted, prices))
    if more is None:
        return None
    more = more * (1.0 / each.per_price)
    nested = NOTHING
    if each.by_user_time:
        nested += prices.more(each.price, 0.0) or NOTHING
    if each.without_faults and (fault := prices.more("fault_anonymous")) is not None:
        nested += fault * (prices.faults(each.price) / each.per_price)
    if each.own_calls is not None and (call := prices.more("null")) is not None:
        nested += call * max(0.0, prices.calls(each.price) - each.own_calls)
    for name, times in each.without:
        if (other := prices.more(name)) is not None:
            nested += other * times
    # What is nested was measured in the same rounds: its own spread is in the price already.
    return Interval(*(max(0.0, end - nested.value) if end > 0 else end - nested.value
                      for end in (more.value, more.low, more.high)))  # fmt: skip


def _size(
    each: Operation, used: Used | None, base: Used, counted: Counted, prices: PriceList
) -> float | None:
    """The mean size of one operation; None: it has none."""
    count = sum(counted.mean(column) for column in each.columns)
    if count <= 0:
        return None
    if each.by_user_time and base.user_s:
        pause_ns = fmean(base.user_s.values()) / NS / count
        return min(pause_ns, prices.largest(each.price))
    if each.by_faults_there and used is not None and used.minor_faults and base.minor_faults:
        there = 1.0 + (used.minor_faults - base.minor_faults) / count
        return min(max(there, 1.0), prices.largest(each.price))
    return counted.mean(each.bytes_column) / count if each.bytes_column else None


def _line(
    each: Operation,
    count: Interval,
    more: Interval,
    structural: Interval | None,
    concurrency: float,
) -> BillLine:
    scale = NS / concurrency
    corners = [
        n * price * scale for n in (count.low, count.high) for price in (more.low, more.high)
    ]
    seconds = count.value * more.value * scale
    return BillLine(
        operation=each.name,
        group=each.group,
        count=count.value,
        price_delta_ns=more.value,
        seconds=seconds,
        low=min(*corners, seconds),
        high=max(*corners, seconds),
        structural_s=_structural(structural, count, scale, seconds),
        kind="modelled" if each.assumed else "priced",
        note=each.assumed,
    )


def _structural(
    price: Interval | None, count: Interval, scale: float, seconds: float
) -> float | None:
    """What the emptiest call would cost, at most all of the line."""
    if price is None or seconds <= 0:
        return None
    return min(max(price.value, 0.0) * count.value * scale, seconds)


def _unpriced(operation: str, group: str, count: float | None) -> BillLine:
    return BillLine(
        operation=operation, group=group, count=count, price_delta_ns=None, seconds=None,
        low=None, high=None, kind="not priced", note="this operation has no price there",
    )  # fmt: skip


def _user_code(used: Used | None, base: Used, prices: PriceList, concurrency: float) -> BillLine:
    """What the program's own instructions take more."""
    times = sorted(prices.times(USER_CODE))
    if not times:
        return _unpriced("user code", "user code", None)
    middle = median(times)
    translated = middle >= TRANSLATED
    if translated:
        middle = next(iter(prices.times(USUAL_CODE)), middle)
    if translated and used is not None and used.user_s and base.user_s:
        more = _paired(used.user_s, base.user_s) * (1.0 / concurrency)
        kind, note = "measured", "user time as each kernel accounted for it"
    else:
        user_s = fmean((base.user_s or base.cpu_s).values()) / concurrency
        more = Interval(*(user_s * (each - 1.0) for each in (middle, times[0], times[-1])))
        kind, note = "modelled", "native user time by the prices of loops of instructions"
    return BillLine(
        operation="user code", group="user code", count=None, price_delta_ns=None,
        seconds=more.value, low=more.low, high=more.high,
        kind="measured" if kind == "measured" else "modelled", note=note,
    )  # fmt: skip


def _steal(used: Used | None, base: Used, concurrency: float) -> Iterator[BillLine]:
    """Time that the hypervisor below gave to others, where both machines report it."""
    if used is None or not used.steal_s or not base.steal_s:
        return
    more = _paired(used.steal_s, base.steal_s) * (1.0 / concurrency)
    yield BillLine(
        operation="steal time", group="steal", count=None, price_delta_ns=None,
        seconds=more.value, low=more.low, high=more.high, kind="measured",
    )  # fmt: skip


def _outside(used: Used | None, base: Used) -> Iterator[BillLine]:
    """VM exits and halts by KVM's accounting, without what the program waits natively too.

    Steal time is a line of its own. Only for one virtual CPU, whose time is the run's.
    """
    if used is None or not used.guest_s:
        return
    outside = {
        number: used.wall_s[number] - guest_s - used.steal_s.get(number, 0.0)
        for number, guest_s in used.guest_s.items()
    }
    waited = {
        number: max(0.0, wall_s - base.cpu_s[number] - base.steal_s.get(number, 0.0))
        for number, wall_s in base.wall_s.items()
    }
    more = _paired(outside, waited)
    yield BillLine(
        operation="VM exits and halts", group="VM exits", count=fmean(used.exits.values() or [0.0]),
        price_delta_ns=None, seconds=more.value, low=more.low, high=more.high, kind="measured",
        note="KVM's accounting of time outside of the guest, without steal time; exits of priced "
        "operations are in their lines too",
    )  # fmt: skip


def _paired(there: Mapping[int, float], here: Mapping[int, float]) -> Interval:
    """The mean difference of the rounds that both have, with its 95 % interval (paired t).

    Without two rounds in common: the difference of the means, between the extremes.
    """
    pairs = [there[number] - here[number] for number in there if number in here]
    if len(pairs) < 2:
        values, others = list(there.values()), list(here.values())
        return Interval(
            fmean(values) - fmean(others), min(values) - max(others), max(values) - min(others)
        )
    mean = fmean(pairs)
    variance = sum((each - mean) ** 2 for each in pairs) / (len(pairs) - 1)
    half = Estimate(mean, math.sqrt(variance / len(pairs)), len(pairs) - 1).half_width()
    return Interval(mean, mean - half, mean + half)


def _sum(lines: Sequence[BillLine]) -> Interval:
    """The sum of the lines; their deviations are independent, and add as squares do."""
    known = [
        Interval(line.seconds, line.low, line.high)
        for line in lines
        if line.seconds is not None and line.low is not None and line.high is not None
    ]
    value = sum(each.value for each in known)
    below = math.sqrt(sum((each.value - each.low) ** 2 for each in known))
    above = math.sqrt(sum((each.high - each.value) ** 2 for each in known))
    return Interval(value, value - below, value + above)


def _shifted(sum_of_lines: Interval, base_s: float) -> Interval:
    ends = (sum_of_lines.value, sum_of_lines.low, sum_of_lines.high)
    return Interval(*(max(0.0, base_s + end) for end in ends))


def _warnings(counted: Counted, lines: Sequence[BillLine], concurrency: float) -> Iterator[str]:
    if unsteady := counted.unsteady():
        named = ", ".join(unsteady[:5])
        yield f"counts differ between runs of the program by more than 5 %: {named}"
    if unpriced := [line.operation for line in lines if line.seconds is None]:
        yield f"not priced there, and so in what is unexplained: {', '.join(unpriced)}"
    if concurrency > 1.05:
        yield (
            f"the program keeps {concurrency:.1f} CPUs busy: each line is divided by that, as if "
            "operations were spread over them evenly"
        )
