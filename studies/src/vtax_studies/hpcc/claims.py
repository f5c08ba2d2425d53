"""What the paper's text claims, each judged from data by a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from vtax.audit.order_drift import Change, Contrast
from vtax.audit.order_drift import Verdict as Drift
from vtax.core.page.format import percent_interval, signed, significant
from vtax.core.statistics.cpu_wall import CpuWall, Share
from vtax.core.statistics.results import Result
from vtax_studies.hpcc import data as m
from vtax_studies.hpcc.data import Data
from vtax_studies.hpcc.setup import (
    BETWEEN,
    GUESTS_APART,
    HPL,
    LARGE_APART,
    LARGE_TABLE,
    LARGEST_LOSS,
    LATENCY,
    LITTLE,
    MANY_FOLD,
    NATIVE,
    PROCESSES,
    RANDOM_ACCESS,
    SMALL_APART,
    SMALLEST_CHANGE,
)
from vtax_studies.model import Basis
from vtax_studies.rule import FACTOR, Judgement, Missing, Rule, all_hold, some


def native_small(data: Data) -> Judgement:
    """Equation 1 natively, for the smallest table."""
    table, found = next(iter(m.clocks(data, NATIVE).items()))
    low, high = SMALL_APART / FACTOR, SMALL_APART * FACTOR
    reason = f"The interval has to be between {significant(low, 2)} and {significant(high, 2)} %."
    return Judgement(f"{words(table)}: {apart(found)}", _between(found, low, high), reason)


def _between(found: CpuWall, low: float, high: float) -> bool | None:
    """Whether an interval lies between two values; None where it reaches beyond one of them."""
    if (within := _within(found)) is None:
        return None
    least, most = within
    if low <= least and most <= high:
        return True
    return False if most < low or least > high else None


def _within(found: CpuWall) -> tuple[float, float] | None:
    """The interval, widened by the clocks' steps: each time may be wrong by them."""
    if found.interval is None:
        return None
    least, most = found.interval
    return max(0.0, least - found.step_percent), most + found.step_percent


def native_large(data: Data) -> Judgement:
    """Equation 1 natively, for tables as large as the paper's large ones."""
    found = {table: each for table, each in m.clocks(data, NATIVE).items() if table >= LARGE_TABLE}
    if not found:
        raise Missing(f"no table has {words(LARGE_TABLE)} or more")
    verdicts = [_between(each, 0.0, LARGE_APART) for each in found.values()]
    half = len(found) / 2
    holds = True if verdicts.count(True) > half else None
    holds = False if verdicts.count(False) >= half else holds
    shown = ", ".join(f"{words(table)}: {apart(each)}" for table, each in found.items())
    reason = f"More than half of the intervals from {words(LARGE_TABLE)} on have to be below 1 %."
    return Judgement(shown, holds, reason)


def guests_small(data: Data) -> Judgement:
    """Equation 1 in guests, for the smallest table."""
    found = {name: next(iter(m.clocks(data, name).values())) for name in data.guests()}
    low, high = GUESTS_APART / FACTOR, GUESTS_APART * FACTOR
    shown = ", ".join(f"{name} {apart(each)}" for name, each in found.items())
    reason = (
        f"Each guest's interval has to be between {significant(low, 2)} and "
        f"{significant(high, 2)} %.{_coarse(found)}"
    )
    return Judgement(shown, all_hold(_between(each, low, high) for each in found.values()), reason)


def _coarse(found: Mapping[str, CpuWall]) -> str:
    """The end of a reason that names clocks too coarse to judge by."""
    names = [name for name, each in found.items() if each.step_percent >= each.percent]
    return f" Within the clocks' steps: {', '.join(names)}." if names else ""


def guests_closer(data: Data) -> Judgement:
    """Whether clocks are closer to each other in guests than natively, for the smallest table."""
    native = next(iter(m.clocks(data, NATIVE).values()))
    found = {name: next(iter(m.clocks(data, name).values())) for name in data.guests()}
    shown = ", ".join(f"{name} {apart(each)}" for name, each in found.items())
    if native.interval is None:
        raise Missing("one native run")
    holds = all_hold(_below(each, native.interval) for each in found.values())
    reason = f"Each guest's interval has to be below native's.{_coarse(found)}"
    return Judgement(f"native {apart(native)}; {shown}", holds, reason)


def _below(found: CpuWall, other: tuple[float, float]) -> bool | None:
    if (within := _within(found)) is None:
        return None
    if within[1] < other[0]:
        return True
    return False if within[0] > other[1] else None


def inversion_likelier(data: Data) -> Judgement:
    """How often CPU time is above wall time, in guests against natively, with intervals."""
    native, _ = m.inversions(data, [NATIVE])
    guests = {name: m.inversions(data, [name])[0] for name in data.guests()}
    verdicts = [_many_fold(each, native) for each in guests.values()]
    shown = ", ".join(f"{name} {share(each)}" for name, each in guests.items())
    holds = True if all(each is True for each in verdicts) else None
    if any(each is False for each in verdicts):
        holds = False
    reason = (
        f"Holds where each guest's interval is above {MANY_FOLD:g} times native's upper end, fails "
        f"where one's is below {MANY_FOLD:g} times native's lower end."
    )
    return Judgement(f"native {share(native)}; {shown}", holds, reason)


def _many_fold(guest: Share, native: Share) -> bool | None:
    low, high = guest.interval
    if low > MANY_FOLD * native.interval[1]:
        return True
    return False if high < MANY_FOLD * native.interval[0] else None


def inversion_largest(data: Data) -> Judgement:
    """How often CPU time is above wall time, at the largest table of each guest."""
    found = {}
    for name in data.guests():
        table, each = list(m.clocks(data, name).items())[-1]
        found[f"{name} ({words(table)})"] = each
    shown = ", ".join(f"{name} {share(each.inverted)}" for name, each in found.items())
    holds = any(each.inverted.count for each in found.values())
    reason, basis = "One run of any guest suffices.", None
    if holds and not any(each.unexplained.count for each in found.values()):
        reason += " All are within the clocks' steps."
        basis = Basis.CLOCK_STEP
    return Judgement(shown, holds, reason, basis)


def inversion_by_steps(data: Data) -> Judgement:
    """Whether the steps of native clocks explain all inversions."""
    inverted, unexplained = m.inversions(data, [NATIVE])
    if not inverted.count:
        raise Missing("no native run had more CPU time than wall time")
    shown = f"{unexplained.count} of {inverted.count} beyond both clocks' steps"
    return Judgement(shown, unexplained.count == 0, "None may be beyond both clocks' steps.")


def inversion_beyond_steps(data: Data) -> Judgement:
    """Whether the steps of their clocks do not explain the guests' inversions."""
    found = {name: m.inversions(data, [name]) for name in data.guests()}
    if not any(inverted.count for inverted, _ in found.values()):
        raise Missing("no guest's run had more CPU time than wall time")
    shown = ", ".join(
        f"{name} {unexplained.count} of {inverted.count}"
        for name, (inverted, unexplained) in found.items()
    )
    beyond = sum(each.count for _, each in found.values())
    holds = beyond > sum(each.count for each, _ in found.values()) / 2
    reason = "More than half of the guests' inversions have to be beyond both clocks' steps."
    return Judgement(shown, holds, reason)


def order_native(data: Data) -> Judgement:
    """Order drift natively."""
    found = m.drift(data, NATIVE)
    holds = {Drift.NONE: True, Drift.NOISY: None}.get(found.verdict, False)
    return Judgement(found.text, holds, "All changes together; the limit is 5 % (docs/audit.md).")


def order_guests(data: Data) -> Judgement:
    """Order drift in guests that is gone after a reboot."""
    found = {name: m.drift(data, name) for name in data.guests()}
    verdicts = {each.verdict for each in found.values()}
    holds = True if Drift.GUEST in verdicts else False if verdicts == {Drift.NONE} else None
    shown = "; ".join(f"{name}: {each.text}" for name, each in found.items())
    reason = (
        "Holds where a drift of any guest is sure and gone after a reboot, fails where each guest "
        "is sure to have none above 5 %."
    )
    return Judgement(shown, holds, reason)


def order_smallest(data: Data) -> Judgement:
    """Equation 2 for the smallest size."""
    changes = {}
    for name in data.guests():
        smallest = data.sizes(name)[0]
        changes[f"{name} N={smallest}"] = m.drift(data, name).sizes[Contrast.DESCENDING][smallest]
    beyond = [_beyond(each, SMALLEST_CHANGE) for each in changes.values()]
    holds = True if True in beyond else None if None in beyond else False
    shown = ", ".join(f"{name} {change(each)}" for name, each in changes.items())
    reason = (
        f"Holds where any guest's interval is beyond {SMALLEST_CHANGE:g} % on either side, fails "
        "where each lies within."
    )
    return Judgement(shown, holds, reason)


def _beyond(found: Change, limit: float) -> bool | None:
    if found.interval is None:
        return None
    low, high = found.interval
    if low > limit or high < -limit:
        return True
    return False if -limit <= low and high <= limit else None


def hpl_little(data: Data) -> Judgement:
    """Equation 3 for HPL at the largest size of each guest."""
    found = {name: m.result(data, name, data.sizes(name)[-1], HPL) for name in data.guests()}
    verdicts = [_above(each, 100.0 - LITTLE) for each in found.values()]
    holds = False if False in verdicts else None if None in verdicts else True
    reason = f"Each guest's interval has to be above {100 - LITTLE:g} %: this study's reading."
    return Judgement(_percentages(data, found), holds, reason)


def _above(found: Result, limit: float) -> bool | None:
    if found.ci_low is None or found.ci_high is None:
        return None
    if found.ci_low > limit:
        return True
    return False if found.ci_high < limit else None


def hpl_with_size(data: Data, *, less: bool) -> Judgement:
    """Whether the overhead of HPL falls (or rises) from the smallest size to the largest."""
    shown, verdicts = [], []
    for name in data.guests():
        sizes = data.sizes(name)
        first, last = (m.result(data, name, each, HPL) for each in (sizes[0], sizes[-1]))
        shown.append(f"{name} {ratio(first)} at N={sizes[0]}, {ratio(last)} at N={sizes[-1]}")
        verdicts.append(_higher(last, first) if less else _higher(first, last))
    holds = False if False in verdicts else None if None in verdicts else True
    word = "above" if less else "below"
    reason = f"In each guest the largest size's interval has to be {word} the smallest's."
    return Judgement("; ".join(shown), holds, reason)


def _higher(ours: Result, theirs: Result) -> bool | None:
    """Whether one interval is above another; None where they overlap or one is absent."""
    if None in (ours.ci_low, ours.ci_high, theirs.ci_low, theirs.ci_high):
        return None
    assert ours.ci_low is not None and ours.ci_high is not None
    assert theirs.ci_low is not None and theirs.ci_high is not None
    if ours.ci_low > theirs.ci_high:
        return True
    return False if ours.ci_high < theirs.ci_low else None


def random_access_loss(data: Data) -> Judgement:
    """The largest loss of MPIRandomAccess."""
    verdicts, shown = [], {}
    for name in data.guests():
        found = [m.result(data, name, each, RANDOM_ACCESS) for each in data.sizes(name)]
        worst = min(found, key=lambda each: each.percent_of_baseline or 100.0)
        shown[name] = worst
        above = _above(worst, 100.0 - LARGEST_LOSS)
        verdicts.append(None if above is None else not above)
    holds = True if True in verdicts else None if None in verdicts else False
    text = ", ".join(f"{name} {ratio(each)}" for name, each in shown.items())
    reason = f"Holds where any guest keeps less than {100 - LARGEST_LOSS:g} %, by its interval."
    return Judgement(f"kept at worst: {text}", holds, reason)


def latency_higher(data: Data, *, between: bool = False) -> Judgement:
    """The latency of messages between two processes, in guests against natively."""
    found = _exchanged(data, LATENCY, between=between)
    verdicts = [_below_native(each) for each in found.values()]
    shown = ", ".join(
        f"{name} {significant(each.median, 3)} us ({ratio(each)} of native's speed)"
        for name, each in found.items()
    )
    reason = "Each guest's interval has to be below native's speed."
    return Judgement(shown, all_hold(verdicts), reason)


def _below_native(found: Result) -> bool | None:
    above = _above(found, 100.0)
    return None if above is None else not above


def messages_loss(data: Data, *, between: bool = False) -> Judgement:
    """The loss of MPIRandomAccess by messages between two processes."""
    found = _exchanged(data, RANDOM_ACCESS, between=between)
    above = [_above(each, 100.0 - LARGEST_LOSS) for each in found.values()]
    holds = True if False in above else None if None in above else False
    shown = ", ".join(f"{name} {ratio(each)}" for name, each in found.items())
    reason = f"Holds where any guest keeps less than {100 - LARGEST_LOSS:g} %, by its interval."
    return Judgement(f"kept: {shown}", holds, reason)


def _exchanged(data: Data, metric: str, *, between: bool) -> Mapping[str, Result]:
    """A metric of the guests that exchange messages, each in itself or `between` two. Raises
    Missing without any."""
    found = {
        name: each
        for (name, own), each in m.exchanged(data).items()
        if own == metric and name != NATIVE and each.percent_of_baseline is not None
        if (name == BETWEEN) is between
    }
    why = data.left_out.get(f"{BETWEEN}, {PROCESSES} processes") if between else None
    return some(found, why or f"no guest has {metric}")


def random_access_dearer(data: Data) -> Judgement:
    """The loss of MPIRandomAccess against that of HPL, at the largest size of each guest."""
    verdicts, shown = [], []
    for name in data.guests():
        largest = data.sizes(name)[-1]
        hpl, random = (m.result(data, name, largest, each) for each in (HPL, RANDOM_ACCESS))
        shown.append(f"{name} HPL {ratio(hpl)}, MPIRandomAccess {ratio(random)}")
        verdicts.append(_higher(hpl, random))
    holds = False if False in verdicts else None if None in verdicts else True
    reason = "In each guest HPL's interval has to be above MPIRandomAccess's, at its largest size."
    return Judgement("; ".join(shown), holds, reason)


def random_access_varies(data: Data) -> Judgement:
    """Standard deviations of both benchmarks in guests, at each guest's largest size."""
    shown, verdicts = [], []
    for name in data.guests():
        largest = data.sizes(name)[-1]
        hpl, random = (
            m.spread(m.result(data, name, largest, each)) for each in (HPL, RANDOM_ACCESS)
        )
        shown.append(f"{name} {significant(random, 2)} against {significant(hpl, 2)}")
        verdicts.append(True if random > FACTOR * hpl else False if random < hpl else None)
    holds = False if False in verdicts else None if None in verdicts else True
    reason = f"Has to be {FACTOR:g} times HPL's in each guest, and fails where one's is smaller."
    return Judgement(f"{'; '.join(shown)} %", holds, reason)


def _percentages(data: Data, found: dict[str, Result]) -> str:
    return ", ".join(
        f"{name} N={data.sizes(name)[-1]} {ratio(each)}" for name, each in found.items()
    )


def words(table: int) -> str:
    """`2^15 words`."""
    return f"2^{table.bit_length() - 1} words"


def share(found: Share) -> str:
    """`12 % [5, 20]`."""
    low, high = found.interval
    return f"{significant(found.percent, 2)} % [{significant(low, 2)}, {significant(high, 2)}]"


def apart(found: CpuWall) -> str:
    """`12 % [5, 20]`; for one run without the interval."""
    shown = f"{significant(found.percent, 2)} %"
    if found.interval is None:
        return shown
    low, high = (significant(each, 2) for each in found.interval)
    return f"{shown} [{low}, {high}]"


def change(found: Change) -> str:
    """`12 % [5, 20]`; `no interval` for fewer than two rounds."""
    if found.percent is None or found.interval is None:
        return "no interval"
    low, high = (signed(each, 2) for each in found.interval)
    return f"{signed(found.percent, 2)} % [{low}, {high}]"


def ratio(found: Result) -> str:
    """`97 % [96-98]`."""
    around = percent_interval(found.ci_low, found.ci_high)
    known = found.ci_low is not None
    return f"{significant(found.percent_of_baseline, 3)} %" + (f" [{around}]" if known else "")


RULES: tuple[Rule[Data], ...] = (
    Rule(
        "cpu-wall-native-small", "4, fig. 1",
        "On bare metal CPU and wall time differ most for small problems", "nearly 50 %",
        native_small,
    ),
    Rule(
        "cpu-wall-native-large", "4, fig. 1",
        "On bare metal the difference becomes small for most problems larger than 2^22",
        "below 1 %", native_large,
    ),
    Rule(
        "cpu-wall-guests-small", "4, fig. 1",
        "In guests both diverge little for small problems", "about 5 %", guests_small,
    ),
    Rule(
        "cpu-wall-guests-closer", "4, fig. 1",
        "For small problems the clocks are closer to each other in guests than on bare metal",
        "5 against 50 %", guests_closer,
    ),
    Rule(
        "inversion-likelier", "4", "CPU time exceeds wall time far more often in guests",
        "many-fold", inversion_likelier,
    ),
    Rule(
        "inversion-largest", "4", "In guests that occurs even for some of the largest sizes",
        "some", inversion_largest,
    ),
    Rule(
        "inversion-native-steps", "4",
        "On bare metal it comes from the accuracy of both timers", "all", inversion_by_steps,
    ),
    Rule(
        "inversion-guests-beyond", "4",
        "In guests it comes from virtualization, not from the timers' resolution", "not all",
        inversion_beyond_steps,
    ),
    Rule(
        "order-native", "5, fig. 2", "On bare metal the order of sizes has no noticeable impact",
        "none", order_native,
    ),
    Rule(
        "order-guests", "5, fig. 2", "In guests it has, by what they have accumulated",
        "15 to over 50 %", order_guests,
    ),
    Rule(
        "order-smallest", "5, fig. 2", "The smallest size changes most, in two of three guests",
        "well over 50 %", order_smallest,
    ),
    Rule(
        "hpl-little", "6, fig. 3", "HPL has very little overhead in guests", "very little",
        hpl_little,
    ),
    Rule(
        "hpl-less", "abstract", "HPL's overhead becomes less significant with larger sizes",
        "less", partial(hpl_with_size, less=True),
    ),
    Rule(
        "hpl-more", "1", "HPL's overhead becomes more significant with larger sizes "
        "(the introduction contradicts the abstract)", "more", partial(hpl_with_size, less=False),
    ),
    Rule(
        "random-access-loss", "6, fig. 4", "MPIRandomAccess could lose this much in guests",
        "70 %", random_access_loss,
    ),
    Rule(
        "random-access-loss-messages", "6, fig. 4", "So it could by messages between processes",
        "70 %", messages_loss,
    ),
    Rule(
        "random-access-loss-between", "6, fig. 4", "So it could by messages between two guests, "
        "where the paper's processes share one", "70 %", partial(messages_loss, between=True),
    ),
    Rule("latency-higher", "1", "Messages have a higher latency in guests", "higher",
         latency_higher),
    Rule(
        "latency-higher-between", "1", "So they have between two guests, where the paper's "
        "processes share one", "higher", partial(latency_higher, between=True),
    ),
    Rule(
        "random-access-dearer", "6", "It loses more than HPL", "drastically different",
        random_access_dearer,
    ),
    Rule(
        "random-access-varies", "6, fig. 4", "Its results vary more than HPL's",
        "large standard deviation", random_access_varies,
    ),
)  # fmt: skip
