"""Claims about the benchmarks themselves and about single switches: figures 2, 3, 5 and 6."""

from __future__ import annotations

from functools import partial

from vtax.core.page.format import significant
from vtax_studies.dav2m import data as m
from vtax_studies.dav2m.data import COVERED_PERCENT, Data
from vtax_studies.dav2m.kinds import LEAST_GAIN_PERCENT, sentence
from vtax_studies.dav2m.setup import (
    MACHINE,
    THRESHOLD_TMISS,
    THRESHOLD_VEXIT,
)
from vtax_studies.model import Basis
from vtax_studies.rule import Judgement, Rule, each, size, wrong

LIKE_WORST_POINTS = 20.0
"""Percentage points from the scan within which swim's locality counts as “very random”."""
RARELY = 0.1
CORRELATED = 0.8
LONGEST_SWITCH_MS = 100.0
HUNGRY = ("swim", "apsi", "zeusmp", "gcc", "gzip")
MODEST = ("fma3d", "crafty")
WORSE_LARGE = ("mcf", "cactusADM")
INSENSITIVE = ("swim", "apsi", "zeusmp")


def large_pages_help(data: Data) -> Judgement:
    """Whether many benchmarks are 10 to 20 % faster with large pages."""
    found = [(name, m.large_page_gain(data, name)) for name in data.surveyed]
    many = [name for name, gain in found if gain >= LEAST_GAIN_PERCENT]
    reason = (
        f"“Many” is read as at least half of the {len(found)} gaining "
        f"{LEAST_GAIN_PERCENT:g} % or more; {len(many)} do."
    )
    return Judgement(each(found), 2 * len(many) >= len(found), reason)


def large_pages_hurt(data: Data) -> Judgement:
    """Whether mcf and cactusADM are slower with large pages."""
    m.present(data, *WORSE_LARGE)
    found = [(name, m.large_page_gain(data, name)) for name in WORSE_LARGE]
    others = [name for name, gain in found if gain >= 0]
    reason = f"Holds where the gain is negative.{wrong(others)}"
    if others:
        reason += (
            " A model of translation alone has nothing by which fewer, shorter walks could cost "
            f"time.{sentence(data, others)}"
        )
    return Judgement(f"gain: {each(found)}", not others, reason)


def insensitive(data: Data) -> Judgement:
    """Whether swim, apsi and zeusmp hardly depend on the page size."""
    m.present(data, *INSENSITIVE)
    found = [(name, m.large_page_gain(data, name)) for name in INSENSITIVE]
    others = [name for name, gain in found if abs(gain) >= LEAST_GAIN_PERCENT]
    reason = f"Holds where the gain is below {LEAST_GAIN_PERCENT:g} %.{wrong(others)}"
    reason += sentence(data, others)
    return Judgement(f"gain: {each(found)}", not others, reason)


def swim_misses(data: Data) -> Judgement:
    """Whether swim misses often even with large pages."""
    rate = m.native_miss_rate(data, "swim", "2M")
    small = m.native_miss_rate(data, "swim", "4K")
    ours = f"{rate:,.0f} per 1e9 instructions (4K: {small:,.0f})"
    reason = (
        f"“Frequent” is read as above DAV2M's starting threshold, {THRESHOLD_TMISS:,.0f} per "
        "1e9 instructions."
    )
    return Judgement(ours, rate > THRESHOLD_TMISS, reason)


def few_regions_serve_most(benchmark: str, page: str, data: Data) -> Judgement:
    """Whether about 20 % of the page table covers over 80 % of the accesses."""
    share = m.top_share(m.regions(data, benchmark, page))
    reason = f"Holds above {COVERED_PERCENT:g} %."
    ours = f"{significant(share, 3)} % of accesses"
    return Judgement(ours, share > COVERED_PERCENT, reason)


def more_locality(data: Data) -> Judgement:
    """Whether two benchmarks have more locality than the worst case, and swim has little."""
    points = (("mcf", "4K"), ("vpr", "2M"), ("swim", "4K"), ("scan", "4K"))
    m.present(data, "mcf", "vpr", "swim")
    found = [(name, m.top_share(m.regions(data, name, page))) for name, page in points]
    mcf, vpr, swim, scan = (share for _, share in found)
    holds = min(mcf, vpr) > scan and swim - scan <= LIKE_WORST_POINTS
    reason = (
        "The busiest 20 % of regions have to cover more for mcf and vpr than for the scan, and "
        f"for swim at most {LIKE_WORST_POINTS:g} points more than for the scan."
    )
    return Judgement(each(found), holds, reason)


def entries_local(data: Data) -> Judgement:
    """Whether 20 % of the page-table entries cover most misses and reads of walks."""
    found = {
        what: {name: m.covering_entries(data, name, "4K", what)[1] for name in data.focus}
        for what in ("misses", "reads")
    }
    total = len(data.focus)
    few = sum(max(found["misses"][name], found["reads"][name]) <= 20 for name in data.focus)
    reason = (
        "The paper's statement, read for what misses the TLB: 20 % of the entries have to cover "
        f"{COVERED_PERCENT:g} % of both in at least half of the {total}; they do in {few}."
    )
    parts = (f"{what} {each(shares.items())}" for what, shares in found.items())
    return Judgement(f"entries for 80 %: {'; '.join(parts)}", 2 * few >= total, reason)


def modest(data: Data) -> Judgement:
    """Whether fma3d and crafty miss the TLB less than the other five."""
    m.present(data, *HUNGRY, *MODEST)
    found = {
        name: 1e3
        * m.number(data, MACHINE, name, "native", "l2_tlb_misses")
        / m.number(data, MACHINE, name, "native", "instructions")
        for name in (*HUNGRY, *MODEST)
    }
    least = min(found[name] for name in HUNGRY)
    others = [name for name in MODEST if found[name] >= least]
    reason = f"Each has to miss less often than every one of the other five.{wrong(others)}"
    ours = f"{each(found.items(), 'per 1000 instructions', 2)}"
    return Judgement(ours, not others, reason)


def gzip_bursts(data: Data) -> Judgement:
    """Whether there are four bursts of exits."""
    count = m.bursts(m.windows(data, "gzip", "shadow")["exit_rate"].to_list())
    return Judgement(f"{count} bursts", count == 4, "A burst lies above the middle of the range.")


def gzip_cpi(data: Data) -> Judgement:
    """Whether the bursts of exits show in the CPI."""
    rows = m.windows(data, "gzip", "shadow")
    r = m.correlation(rows["exit_rate"].to_list(), rows["cpi"].to_list())
    reason = (
        f"Read as a correlation of at least {CORRELATED:g} between exit rate and CPI under "
        "shadow paging; the text's “low CPI” is taken as a slip for high."
    )
    return Judgement(f"r = {significant(r, 2)}", r >= CORRELATED, reason)


def swim_nested(data: Data) -> Judgement:
    """Whether swim's TLB misses explain why nested paging does badly."""
    rows = m.windows(data, "swim", "nested")
    rate = float(str(rows["miss_rate"].median()))
    dearer = m.overhead(data, MACHINE, "swim", "nested") - m.overhead(
        data, MACHINE, "swim", "shadow"
    )
    rate_text = f"{rate:,.0f} per 1e9 instructions"
    ours = f"{rate_text}, nested {significant(dearer, 2)} points dearer"
    reason = f"The rate has to exceed {THRESHOLD_TMISS:,.0f} and nested paging to be dearer."
    return Judgement(ours, rate > THRESHOLD_TMISS and dearer > 0, reason)


def _shares(data: Data, benchmark: str) -> tuple[float, float]:
    """Shares of windows above the starting thresholds: exits under shadow, misses under nested."""
    exits = m.windows(data, benchmark, "shadow")["exit_rate"]
    misses = m.windows(data, benchmark, "nested")["miss_rate"]
    return (
        100 * float((exits > THRESHOLD_VEXIT).sum()) / len(exits),
        100 * float((misses > THRESHOLD_TMISS).sum()) / len(misses),
    )


def _above(exits: float, misses: float) -> str:
    return f"above: exits in {exits:.0f} %, misses in {misses:.0f} % of windows"


def swim_thresholds(data: Data) -> Judgement:
    """Whether fixed thresholds would keep swim under shadow paging."""
    exits, misses = _shares(data, "swim")
    ours = _above(exits, misses)
    holds = exits <= 100 * RARELY and misses >= 100 * (1 - RARELY)
    return Judgement(ours, holds, "Exits have to stay below, misses above, in 90 % of windows.")


def zeusmp_thresholds(data: Data) -> Judgement:
    """Whether fixed thresholds would keep zeusmp under nested paging."""
    exits, misses = _shares(data, "zeusmp")
    ours = _above(exits, misses)
    reason = "Misses have to stay below the threshold in 90 % of windows, so nested is kept."
    return Judgement(ours, misses <= 100 * RARELY, reason)


def gcc_thresholds(data: Data) -> Judgement:
    """Whether fixed thresholds would switch gcc all the time."""
    naive = m.number(data, MACHINE, "gcc", "naive", "switches")
    ours = m.number(data, MACHINE, "gcc", "dav2m", "switches")
    reason = (
        "Read as a policy with fixed thresholds switching at least five times as often as DAV2M."
    )
    shown = f"{naive:,.0f} switches with fixed thresholds, {ours:,.0f} under DAV2M"
    return Judgement(shown, naive >= 5 * max(ours, 1), reason)


def half_the_time(data: Data) -> Judgement:
    """Whether a switch to nested paging takes half as long as the reverse."""
    to_nested, to_shadow = (m.transition_cost(data, "gcc", way) for way in ("s2n", "n2s"))
    if to_nested <= 0:
        return Judgement("s2n has no cost", False, "The ratio of n2s to s2n has to be near 2.")
    note = f"s2n {significant(to_nested, 3)} ms, n2s {significant(to_shadow, 3)} ms"
    return size(to_shadow / to_nested, 2, "times", note)


def longest_switch(data: Data) -> Judgement:
    """The most expensive switch of gcc, with its transients."""
    value = max(m.transition_cost(data, "gcc", way) for way in ("s2n", "n2s"))
    reason = f"Holds at or below {LONGEST_SWITCH_MS:g} ms."
    return Judgement(f"{significant(value, 3)} ms", value <= LONGEST_SWITCH_MS, reason)


def gcc_among_highest(data: Data) -> Judgement:
    """Whether gcc's switches are among the most expensive."""
    found = {
        name: max(m.transition_cost(data, name, way) for way in ("s2n", "n2s"))
        for name in data.focus
    }
    rank = sorted(found.values(), reverse=True).index(found["gcc"]) + 1
    ours = f"rank {rank}: {each(found.items(), 'ms')}"
    reason = f"“Among the highest” is read as first or second of {len(found)}."
    return Judgement(ours, rank <= 2, reason)


RULES = (
    Rule(
        "large-pages-help",
        "3, fig. 2",
        "Many benchmarks perform better with large pages",
        "10-20 %",
        large_pages_help,
    ),
    Rule(
        "large-pages-hurt",
        "3, fig. 2",
        "mcf and cactusADM perform worse with large pages",
        "worse",
        large_pages_hurt,
    ),
    Rule(
        "large-pages-insensitive",
        "4",
        "swim, apsi and zeusmp are relatively insensitive to the page size",
        "insensitive",
        insensitive,
    ),
    Rule(
        "swim-misses",
        "3",
        "swim misses the TLB frequently even with large pages",
        "frequent",
        swim_misses,
    ),
    Rule(
        "mcf-locality",
        "3, fig. 3",
        "20 % of the page table covers this much of mcf's accesses (4K pages)",
        "over 80 %",
        partial(few_regions_serve_most, "mcf", "4K"),
        Basis.FITTED,
    ),
    Rule(
        "vpr-locality",
        "3, fig. 3",
        "20 % of the page table covers this much of vpr's accesses (large pages)",
        "over 80 %",
        partial(few_regions_serve_most, "vpr", "2M"),
        Basis.FITTED,
    ),
    Rule(
        "more-locality",
        "3, fig. 3",
        "Two benchmarks have more locality than a worst-case scan; swim is very random",
        "mcf and vpr more, swim little",
        more_locality,
    ),
    Rule(
        "entries-local",
        "3, fig. 3",
        "About 20 % of the page table covers most of what TLB misses read",
        "over 80 %, of accesses",
        entries_local,
    ),
    Rule(
        "modest-tlb",
        "4",
        "fma3d and crafty are much less TLB-intensive than the other five",
        "much less",
        modest,
        Basis.FITTED,
    ),
    Rule(
        "gzip-bursts",
        "4, fig. 5",
        "gzip has bursts of paging exits",
        "4 bursts",
        gzip_bursts,
        Basis.FITTED,
    ),
    Rule("gzip-cpi", "4, fig. 5", "gzip's bursts of exits explain its CPI", "explained", gzip_cpi),
    Rule(
        "swim-nested",
        "4, fig. 5",
        "swim's high TLB miss rate explains its cost under nested paging",
        "high miss rate",
        swim_nested,
    ),
    Rule(
        "swim-thresholds",
        "6",
        "Fixed thresholds would serve swim well",
        "shadow kept",
        swim_thresholds,
    ),
    Rule(
        "zeusmp-thresholds",
        "6",
        "Fixed thresholds would select nested paging for zeusmp all the time",
        "nested kept",
        zeusmp_thresholds,
    ),
    Rule(
        "gcc-thresholds",
        "6",
        "Fixed thresholds would make gcc switch continuously",
        "continuous switching",
        gcc_thresholds,
    ),
    Rule(
        "switch-half",
        "5, fig. 6",
        "A switch to shadow paging takes about twice as long as the reverse on gcc",
        "2 times",
        half_the_time,
    ),
    Rule(
        "switch-longest",
        "5, fig. 6",
        "The dearest switch of gcc, transients included",
        "at most 100 ms",
        longest_switch,
    ),
    Rule(
        "switch-gcc",
        "5",
        "Switches are among the dearest on gcc",
        "among the highest",
        gcc_among_highest,
    ),
)
