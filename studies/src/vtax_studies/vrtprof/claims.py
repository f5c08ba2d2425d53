"""What the paper's text claims, each judged from data by a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from vtax.core.page.format import plural, signed, significant
from vtax.core.recorder.intervals import Recording
from vtax.core.recorder.ways import Axis, Per
from vtax_studies.rule import FACTOR, Judgement, Missing, Rule, below, some
from vtax_studies.vrtprof import claims_emulated as emulated
from vtax_studies.vrtprof import data as m
from vtax_studies.vrtprof.data import Data
from vtax_studies.vrtprof.judgements import apart, each_below, judge_phases
from vtax_studies.vrtprof.setup import (
    CACHE_LINES,
    DOMUS,
    GUESTS,
    JVM,
    LOWEST,
    NATIVE,
    PAIR_COLUMNS,
    PAPER_OVERHEADS,
    PHASE_EVENTS,
    PRACTICAL,
    SETTINGS,
    STENCIL,
    XEN_COLUMNS,
)


def mean_overhead(setting: str, limit: float, data: Data) -> Judgement:
    """The mean overhead over the workloads at one interval."""
    found = m.overheads(data, setting)
    value, noise = m.mean(found), m.noise(found)
    reason = (
        f"By CPU time. Holds below {limit:g} %, fails above, and cannot be judged within the noise "
        f"of it: ±{significant(noise, 2)} points, the mean of half the workloads' quartile ranges."
    )
    return Judgement(f"{signed(value, 3)} %", below(value, noise, limit), reason)


def every_overhead(data: Data) -> Judgement:
    """The overhead of each workload at the paper's interval."""
    limit = max(PAPER_OVERHEADS.values())
    words = f"Each has to be below {limit:g} % by more than half its quartile range."
    return each_below(m.overheads(data, PRACTICAL.every), limit, words)


def circumstances(data: Data) -> Judgement:
    """How far the run times of each workload are apart in the paper's three circumstances."""
    return apart(m.overheads(data, LOWEST.every), m.overheads(data, PRACTICAL.every), "By CPU time")


def short_intervals(data: Data) -> Judgement:
    """What was lost at each interval; no interval is as short as the paper's."""
    frame = data.overheads
    if frame.is_empty():
        raise Missing("overheads were not measured")
    lost = {
        setting.label: int(frame.filter(setting=setting.every)["lost"].fill_null(0).sum())
        for setting in SETTINGS
        if setting is not LOWEST
    }
    shown = ", ".join(f"{label}: {count} rows lost" for label, count in lost.items())
    reason = (
        "vtax takes no rows as short as that: 50 us by a clock, over a hundred thousand cycles, or "
        "2 million instructions at the least. So they could not be tried."
    )
    return Judgement(shown, None, reason)


def correlated(first: str, second: str, where: str, stated: float, data: Data) -> Judgement:
    """A pair of figure 2 or 3, by the nearest columns of this machine."""
    find = XEN_COLUMNS.__getitem__ if where == "domUs" else data.column
    ours, theirs = find(first), find(second)
    for name, paper in ((ours, first), (theirs, second)):
        if name.startswith("hw.") and name in data.absent:
            raise Missing(
                f"{name} for {paper}: {data.absent[name]}{emulated.nor_there(data, name)}"
            )
    recordings = data.native() if where == NATIVE else _most(data, where)
    value, significant_ = m.pair(m.matrix(recordings), ours, theirs)
    holds = significant_ and stated / FACTOR <= value <= min(1.0, stated * FACTOR)
    note = "" if significant_ else ", not significant"
    reason = (
        f"{ours} with {theirs}; holds between {significant(stated / FACTOR, 2)} and "
        f"{significant(min(1.0, stated * FACTOR), 2)} where it is significant."
    )
    return Judgement(f"r = {signed(value, 2)}{note}", holds, reason)


def _most(data: Data, where: str = "guests") -> list[Recording]:
    """Recordings of the environment with the most guests, or domUs."""
    reasons = "; ".join(data.left_out.values()) or "not recorded"
    names = data.domus() if where == "domUs" else data.guests()
    return data.of(some(names, f"no {where}: {reasons}")[-1])


def kernel_cpi(data: Data) -> Judgement:
    """Cycles per instruction of the kernel, which need a counter of cycles."""
    reason = data.absent.get("hw.cycles.kernel")
    if reason:
        if (there := emulated.cpi(data)) is not None:
            return there
        raise Missing(f"the kernel's cycles: {reason}")
    ours = m.matrix(_most(data))
    theirs = m.matrix(data.native())
    both = some(
        [name for name in ours.events if name.startswith("hw.") and name in theirs.events],
        "no hardware event was counted natively and with guests",
    )
    strong = [sum(abs(m.pair(each, _CPI, name)[0]) for name in both) for each in (ours, theirs)]
    shown = f"sum of |r|: virtualized {significant(strong[0], 3)}, native {significant(strong[1])}"
    reason = f"Over {plural(len(both), 'hardware event')} of both; holds where the first is larger."
    return Judgement(shown, strong[0] > strong[1], reason)


_CPI = PAIR_COLUMNS["K_CPI"]


def inverse_to_guests(labels: Mapping[int, str], column: str, data: Data) -> Judgement:
    """The rate of VM exits against the number of guests; `labels` by that number."""
    names = [name for name in labels.values() if name in data.recordings]
    if len(names) < 2:
        raise Missing("fewer than two numbers of guests were recorded")
    numbers = {name: number for number, name in labels.items()}
    workload = data.workload(STENCIL, names)
    found = {}
    for name in names:
        value = m.rate(data.labelled(workload, [name]), column)
        if value is None:
            raise Missing(f"{column} was not counted")
        found[name] = value
    first = found[names[0]] * numbers[names[0]]
    ratios = [found[name] * numbers[name] / first for name in names]
    holds = all(1 / FACTOR <= ratio <= FACTOR for ratio in ratios)
    shown = ", ".join(f"{name} {significant(value, 3)}/s" for name, value in found.items())
    reason = (
        f"Rate on {workload} times the number of guests has to stay within a factor of {FACTOR:g}. "
        "The paper sees it at one peak and not later."
    )
    return Judgement(shown, holds, reason)


def phased(program: str, several: bool, data: Data) -> Judgement:
    """The number of phases that a program has natively, by the events that were counted."""
    workload = data.workload(program, [NATIVE])
    recordings = data.labelled(workload, [NATIVE])
    names = data.measured(recordings, (data.column(CACHE_LINES), *PHASE_EVENTS))
    counts = m.phase_counts(recordings, names, Per.SECOND, Axis.TIME)
    return judge_phases(counts, several, f"Each native run of {workload}", names)


def _pair(name: str, first: str, second: str, where: str, stated: float, words: str) -> Rule[Data]:
    section = "IV-C, fig. 2" if where == NATIVE else "IV-C, fig. 3"
    return Rule(
        name, section, words, f"r = {stated:g}", partial(correlated, first, second, where, stated)
    )


RULES = (
    Rule(
        "overhead-paper-interval",
        "IV-B, table IV",
        "Recording at the practical setting costs this much on average",
        "1.34 % (1.2 % in the abstract)",
        partial(mean_overhead, PRACTICAL.every, 1.34),
    ),
    Rule(
        "overhead-1ms",
        "IV-B, table IV",
        "The same at rows of 1 ms, twenty times finer",
        "1.34 % (vtax's target: 0.5 %)",
        partial(mean_overhead, SETTINGS[2].every, 1.34),
    ),
    Rule(
        "overhead-100us",
        "IV-B, table IV",
        "The same at rows of 100 us, two hundred times finer",
        "1.34 % (vtax's target: 1.2 %)",
        partial(mean_overhead, SETTINGS[3].every, 1.34),
    ),
    Rule(
        "overhead-each",
        "IV-B, table IV",
        "No benchmark is slowed down by more than the slowest",
        "2.59 % (Pseudo JBB)",
        every_overhead,
    ),
    Rule(
        "overhead-circumstances",
        "IV-B",
        "Unloaded, at the lowest rate and at the practical one, a benchmark takes the same time",
        "within 1-2 % of each other",
        circumstances,
    ),
    *emulated.OVERHEADS,
    Rule(
        "granularity",
        "abstract",
        "Intervals may be as small as a few thousand cycles",
        "a few thousand cycles",
        short_intervals,
    ),
    _pair(
        "native-dtlb-branches",
        "K_DTLB_MISSES",
        "K_BR",
        NATIVE,
        0.87,
        "Natively, kernel dTLB misses go with kernel branches",
    ),
    _pair(
        "virtual-dtlb-branches",
        "K_DTLB_MISSES",
        "K_BR",
        "guests",
        0.97,
        "So they do with the most guests",
    ),
    _pair(
        "exits-switches",
        "XEN_VT_EXIT",
        "VT_SCHED_SW",
        "guests",
        0.59,
        "VM exits go with context switches",
    ),
    _pair(
        "exits-interrupts",
        "XEN_VT_EXIT",
        "XEN_IRQ",
        "guests",
        0.16,
        "VM exits go a little with interrupts",
    ),
    _pair(
        "exits-dtlb",
        "XEN_VT_EXIT",
        "U_DTLB_MISSES",
        "guests",
        0.25,
        "VM exits go a little with the guests' dTLB misses",
    ),
    Rule(
        "kernel-cpi",
        "IV-C",
        "The kernel's CPI is more correlated with architectural events when virtualized",
        "higher",
        kernel_cpi,
    ),
    Rule(
        "exits-per-guest",
        "IV-D, fig. 4",
        "At a peak, the rate of VM exits is inversely proportional to the number of guests",
        "inversely proportional",
        partial(inverse_to_guests, GUESTS, PAIR_COLUMNS["XEN_VT_EXIT"]),
    ),
    _pair(
        "xen-exits-switches",
        "XEN_VT_EXIT",
        "VT_SCHED_SW",
        "domUs",
        0.59,
        "Under Xen, VM exits go with its scheduler's switches",
    ),
    _pair(
        "xen-exits-interrupts",
        "XEN_VT_EXIT",
        "XEN_IRQ",
        "domUs",
        0.16,
        "Under Xen, VM exits go a little with interrupts",
    ),
    Rule(
        "xen-exits-per-guest",
        "IV-D, fig. 4",
        "The same under Xen, with domUs that share a CPU",
        "inversely proportional",
        partial(inverse_to_guests, DOMUS, XEN_COLUMNS["XEN_VT_EXIT"]),
    ),
    Rule(
        "phased",
        "IV-D, fig. 5",
        "One benchmark (433.milc; here a stencil or compiler-like) shows phases",
        "clear pseudo-regular pattern",
        partial(phased, STENCIL, True),
    ),
    Rule(
        "flat",
        "IV-D, fig. 6",
        "Another (Pseudo JBB; here transactions of a JVM, or gups) is flat",
        "a single phase",
        partial(phased, JVM, False),
    ),
    *emulated.PHASES,
)
