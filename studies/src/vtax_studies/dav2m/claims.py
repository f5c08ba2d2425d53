"""All claims, and those about costs and DAV2M's decisions: figures 4 and 9 to 12."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from vtax.core.page.format import significant
from vtax_studies.dav2m import claims_workloads
from vtax_studies.dav2m import data as m
from vtax_studies.dav2m.data import Data, need
from vtax_studies.dav2m.setup import (
    CLOSE_PERCENT,
    GROUPS,
    INDIFFERENT_PERCENT,
    MACHINE,
    MACHINE_TITLES,
    PHASED,
    SECOND_MACHINE,
)
from vtax_studies.model import Basis
from vtax_studies.rule import Absent, Judgement, Missing, Rule, each, size, some, wrong

NEAR_NATIVE_PERCENT = 8.0


@dataclass(frozen=True, slots=True)
class Limited:
    """A value that has to stay at or below a limit, and how far off it may be."""

    name: str
    value: float
    error: float


def all_below(found: Sequence[Limited], limit: float) -> tuple[bool | None, str]:
    """Whether all values are below, and which are not; `None` when sampling alone may decide."""
    unsure = [one.name for one in found if abs(one.value - limit) <= one.error]
    above = [one.name for one in found if one.value > limit and one.name not in unsure]
    if above:
        return False, wrong(above)
    if unsure:
        return None, f" Within the sampling error of the limit: {', '.join(unsure)}."
    return True, ""


def difference_up_to(data: Data) -> Judgement:
    """The largest difference between the two modes, in percentage points of native time."""
    found = {
        name: abs(
            m.overhead(data, MACHINE, name, "shadow") - m.overhead(data, MACHINE, name, "nested")
        )
        for name in data.focus
    }
    largest = max(found, key=lambda name: found[name])
    return size(found[largest], 105, "points", largest)


def neither_superior(data: Data) -> Judgement:
    """Whether each mode wins somewhere by more than the margin."""
    winners = {name: m.preference(m.cycles(data, MACHINE, name)) for name in data.focus}
    parts = [
        f"{mode}: {', '.join(n for n, w in winners.items() if w == mode) or 'none'}"
        for mode in m.STATIC
    ]
    holds = all(mode in winners.values() for mode in m.STATIC)
    reason = f"Each mode has to be better by over {INDIFFERENT_PERCENT:g} % somewhere."
    return Judgement("; ".join(parts), holds, reason)


def group(best: str, data: Data) -> Judgement:
    """Whether the benchmarks of a group prefer the mode that the paper says."""
    names = GROUPS[best]
    m.present(data, *names)
    found = {name: m.cycles(data, MACHINE, name) for name in names}
    others = [name for name in names if m.preference(found[name]) != best]
    shown = [(name, 100 * (found[name]["nested"] / found[name]["shadow"] - 1)) for name in names]
    meaning = (
        f"both modes are within {INDIFFERENT_PERCENT:g} %"
        if best == "indifferent"
        else f"the other mode is over {INDIFFERENT_PERCENT:g} % dearer"
    )
    ours = f"nested over shadow: {each(shown)}"
    return Judgement(ours, not others, f"Holds where {meaning}.{wrong(others)}")


def zeusmp_nested(data: Data) -> Judgement:
    """The increase of zeusmp's execution time under nested paging."""
    found = m.cycles(data, MACHINE, "zeusmp")
    m.preference(found)
    return size(100 * (found["nested"] / found["shadow"] - 1), 8, "%")


def near_native(data: Data) -> Judgement:
    """How many benchmarks DAV2M brings within 8 % of native."""
    found = [(name, m.overhead(data, MACHINE, name, "dav2m")) for name in data.focus]
    near = [name for name, value in found if value <= NEAR_NATIVE_PERCENT]
    far = [name for name in data.focus if name not in near]
    reason = (
        f"“A range of benchmarks” is read as most of the {len(data.focus)} at or below "
        f"{NEAR_NATIVE_PERCENT:g} %.{wrong(far)}"
    )
    return Judgement(each(found), len(near) > len(found) / 2, reason)


def close_to_best(names: Callable[[Data], Sequence[str]], machine: str, data: Data) -> Judgement:
    """How close DAV2M comes to the better static mode on the benchmarks that `names` gives."""
    chosen = some(names(data), "no program has a single best mode")
    found = [_distance(data, machine, name) for name in chosen]
    holds, exceptions = all_below(found, CLOSE_PERCENT)
    reason = (
        f"Holds at or below {CLOSE_PERCENT:g} % over the better static mode; negative is "
        f"better than both.{exceptions}"
    )
    return Judgement(each((one.name, one.value) for one in found), holds, reason)


def _distance(data: Data, machine: str, name: str) -> Limited:
    value = m.over_best_static(data, machine, name, "dav2m")
    found = m.cycles(data, machine, name)
    best = min(m.STATIC, key=lambda mode: found[mode])
    # Both are computed from the same batches: while they are in the same mode, errors cancel.
    apart = 1 - m.time_share(data, name, best, machine) / 100
    return Limited(name, value, apart * m.sampling_error(data, machine, name, (best, "dav2m")))


def overhead_cut(data: Data) -> Judgement:
    """The largest ratio of a static mode's overhead to DAV2M's."""
    found = {}
    for name in data.focus:
        worst = max(m.overhead(data, MACHINE, name, mode) for mode in m.STATIC)
        found[name] = worst / max(m.overhead(data, MACHINE, name, "dav2m"), 1e-9)
    largest = max(found, key=lambda name: found[name])
    return size(found[largest], 4, "times", largest)


def walk_references(data: Data) -> Judgement:
    """The references of a four-by-four walk that no cache shortens."""
    if data.programs is not None:
        raise Absent("it is about no program")
    rows = need(data.walks, "walks without caches").filter(guest_levels=4, host_levels=4)
    if rows.is_empty():
        raise Missing("not simulated: walks of four by four levels")
    value = float(rows["references_per_walk"][0])
    holds = abs(value - 24) < 0.01
    return Judgement(f"{significant(value, 4)} references", holds, "Holds at 24 exactly.")


def cpi_follows(_: Data) -> Judgement:
    """CPI follows exits and misses by construction in this model."""
    return Judgement(
        "the same cycles",
        None,
        "In a model the CPI and the execution time come from the same cycles, so it cannot fail.",
    )


def with_best_mode(data: Data) -> Sequence[str]:
    """The benchmarks for which one mode is best."""
    found = m.groups(data)
    return (*found["shadow"], *found["nested"])


def every(data: Data) -> Sequence[str]:
    """All benchmarks that every mode is compared on."""
    return data.focus


COSTS = (
    Rule(
        "difference-up-to",
        "1, 4",
        "The two modes differ by up to this much of native performance",
        "up to 105 %",
        difference_up_to,
        Basis.FITTED,
    ),
    Rule(
        "neither-superior",
        "4, fig. 4",
        "Neither mode is consistently superior",
        "each wins some",
        neither_superior,
        Basis.FITTED,
    ),
    *(
        Rule(
            f"best-{best}",
            "7",
            f"{' and '.join(GROUPS[best])} are best under {best} paging"
            if best != "indifferent"
            else f"{', '.join(GROUPS[best])} perform alike under both",
            best,
            partial(group, best),
            Basis.FITTED,
        )
        for best in GROUPS
    ),
    Rule(
        "zeusmp-nested",
        "6",
        "Nested paging costs zeusmp this much against shadow paging",
        "+8 %",
        zeusmp_nested,
        Basis.FITTED,
    ),
    Rule(
        "near-native",
        "abstract",
        "DAV2M is within 5-8 % of native for a range of benchmarks",
        "5-8 %",
        near_native,
    ),
    Rule(
        "overhead-cut",
        "abstract",
        "DAV2M reduces overheads by as much as a factor of four",
        "up to 4 times",
        overhead_cut,
    ),
    Rule(
        "gcc-as-good",
        "7",
        "Despite its switches gcc does as well as under the best static mode",
        "as well",
        partial(close_to_best, lambda _: ("gcc",), MACHINE),
        Basis.FITTED,
    ),
    Rule(
        "single-best",
        "1",
        "With a single best mode, DAV2M is nearly as fast as that mode",
        "at most 1 %",
        partial(close_to_best, with_best_mode, MACHINE),
        Basis.FITTED,
    ),
    *(
        Rule(
            f"best-static-{machine}",
            "7, fig. 10",
            f"DAV2M is virtually identical to the best static mode on every benchmark "
            f"({MACHINE_TITLES[machine]})",
            "virtually identical",
            partial(close_to_best, every, machine),
            Basis.FITTED,
        )
        for machine in (MACHINE, SECOND_MACHINE)
    ),
    Rule(
        "walk-references",
        "2",
        "A TLB miss costs at worst this many references with four levels in guest and VMM",
        "24 references",
        walk_references,
    ),
    Rule(
        "cpi-follows",
        "4, fig. 5",
        "The CPI metric captures the difference in execution time",
        "it does",
        cpi_follows,
    ),
)


FEW_SWITCHES = 3
MOSTLY_PERCENT = 90.0
MONITORING_PERCENT = 1.0


def _switches(data: Data, benchmark: str) -> float:
    return m.number(data, MACHINE, benchmark, "dav2m", "switches")


def gcc_switches(data: Data) -> Judgement:
    """The number of transitions of gcc."""
    return size(_switches(data, "gcc"), 13, "switches")


def few_elsewhere(data: Data) -> Judgement:
    """Whether all other benchmarks switch rarely."""
    found = [(name, _switches(data, name)) for name in data.focus if name != "gcc"]
    others = [name for name, count in found if count > FEW_SWITCHES]
    reason = f"“Very little” is read as at most {FEW_SWITCHES} switches.{wrong(others)}"
    return Judgement(each(found, "switches"), not others, reason)


def _alike(data: Data) -> Sequence[str]:
    return some(m.groups(data)["indifferent"], "no program performs alike under both modes")


def third_group(data: Data) -> Judgement:
    """Whether DAV2M switches at most once where the mode does not matter."""
    found = [(name, _switches(data, name)) for name in _alike(data)]
    others = [name for name, count in found if count > 1]
    return Judgement(
        each(found, "switches"), not others, f"Holds at one switch or none.{wrong(others)}"
    )


def right_mode(data: Data) -> Judgement:
    """Whether the first two groups spend nearly all time in their mode."""
    found, others = [], []
    some(with_best_mode(data), "no program has a single best mode")
    for best in ("shadow", "nested"):
        for name in m.groups(data)[best]:
            share = m.time_share(data, name, best)
            found.append((f"{name} {best}", share))
            if share < 50 or (name != "gcc" and share < MOSTLY_PERCENT):
                others.append(name)
    reason = (
        f"Each has to spend {MOSTLY_PERCENT:g} % of its time in its group's mode; gcc, which the "
        f"paper shows changing, half.{wrong(others)}"
    )
    return Judgement(each(found, digits=3), not others, reason)


def keeps_one_mode(data: Data) -> Judgement:
    """Whether DAV2M keeps one mode where the mode does not matter."""
    found = [(name, m.time_share(data, name, "shadow")) for name in _alike(data)]
    others = [n for n, share in found if 100 - MOSTLY_PERCENT < share < MOSTLY_PERCENT]
    reason = f"One mode has to have {MOSTLY_PERCENT:g} % of the time.{wrong(others)}"
    return Judgement(f"in shadow: {each(found, digits=3)}", not others, reason)


def opposite(data: Data) -> Judgement:
    """Whether DAV2M decided both ways within the third group."""
    found = [(name, m.time_share(data, name, "shadow")) for name in _alike(data)]
    holds = any(share > 50 for _, share in found) and any(share <= 50 for _, share in found)
    reason = (
        "Both modes have to be chosen within the third group; the text names swim and zeusmp, "
        "which are not in it."
    )
    return Judgement(f"in shadow: {each(found, digits=3)}", holds, reason)


def _variant(data: Data, benchmark: str, parameter: str, setting: str) -> float:
    m.present(data, benchmark)
    frame = need(data.choices, "variants of DAV2M")
    rows = frame.filter(benchmark=benchmark, parameter=parameter, setting=setting)
    if rows.is_empty():
        raise Missing(f"not simulated: {parameter} {setting} on {benchmark}")
    return float(rows["switches"][0])


def _oscillation(data: Data, parameter: str, setting: str, without: str) -> Judgement:
    found = [
        (name, _variant(data, name, "", ""), _variant(data, name, parameter, setting))
        for name in PHASED
    ]
    others = [name for name, usual, changed in found if changed <= usual]
    ours = "; ".join(
        f"{name} {usual:g} with, {changed:g} without" for name, usual, changed in found
    )
    reason = f"There have to be more switches without {without}.{wrong(others)}"
    return Judgement(f"switches: {ours}", not others, reason)


def damping(data: Data) -> Judgement:
    """Whether gzip and gcc would oscillate without rising thresholds."""
    return _oscillation(data, "threshold_rise", "1 (never)", "rising thresholds")


def prepaging(data: Data) -> Judgement:
    """Whether gzip and gcc would oscillate without Prepaging."""
    return _oscillation(data, "prepaging", "off", "the state Prepaging")


def thresholds_move(data: Data) -> Judgement:
    """Whether the thresholds change during both runs."""
    found, others = [], []
    for name in PHASED:
        rows = m.windows(data, name, "dav2m")
        kinds = [
            rows[column].drop_nulls().n_unique()
            for column in ("threshold_vexit", "threshold_tmiss")
        ]
        found.append(f"{name} {kinds[0]} and {kinds[1]} values")
        if max(kinds) < 2:
            others.append(name)
    reason = f"At least one of the two thresholds has to move in each run.{wrong(others)}"
    return Judgement(f"exits and misses: {'; '.join(found)}", not others, reason)


def cheap_monitoring(data: Data) -> Judgement:
    """What reading the counters costs."""
    machines = need(data.machines, "the machine's costs").filter(machine=MACHINE).to_dicts()
    if not machines:
        raise Missing("not simulated: the machine's costs")
    each_exit = float(machines[0]["exit_cycles"]) + float(machines[0]["policy_cycles"])
    found = []
    for name in data.focus:
        rows = m.windows(data, name, "dav2m")
        spent = float(rows["exits_policy"].sum()) * each_exit
        found.append((name, 100 * spent / float(rows["cycles"].sum())))
    worst = max(value for _, value in found)
    reason = f"Holds below {MONITORING_PERCENT:g} % of the cycles."
    return Judgement(f"at most {significant(worst, 2)} %", worst < MONITORING_PERCENT, reason)


DECISIONS = (
    Rule("gcc-switches", "7, fig. 11", "Transitions of gcc", "13 switches", gcc_switches),
    Rule(
        "few-switches",
        "7, fig. 11",
        "There is very little switching on the other benchmarks",
        "very little",
        few_elsewhere,
    ),
    Rule(
        "third-group",
        "7, fig. 12",
        "At most one switch where the mode does not matter",
        "at most 1",
        third_group,
        Basis.FITTED,
    ),
    Rule(
        "right-mode",
        "7, fig. 12",
        "DAV2M quickly chooses the right mode for the first two groups",
        "evident",
        right_mode,
    ),
    Rule(
        "settles",
        "7, fig. 12",
        "For the third group DAV2M quickly chooses a mode and stays",
        "stays",
        keeps_one_mode,
        Basis.FITTED,
    ),
    Rule(
        "opposite",
        "7, fig. 12",
        "For the third group DAV2M makes opposite decisions, without consequences",
        "opposite",
        opposite,
        Basis.FITTED,
    ),
    Rule(
        "thresholds-move",
        "6, fig. 9",
        "Thresholds are adjusted dynamically on gzip and gcc",
        "adjusted",
        thresholds_move,
    ),
    Rule(
        "damping",
        "6, fig. 9",
        "Without adjustment gzip and gcc would likely oscillate",
        "oscillation",
        damping,
    ),
    Rule(
        "prepaging",
        "6",
        "Without the state Prepaging gzip and gcc would oscillate",
        "oscillation",
        prepaging,
    ),
    Rule(
        "cheap-monitoring",
        "4",
        "Reading the counters costs little",
        "below 1 %",
        cheap_monitoring,
    ),
)


RULES = (*COSTS, *claims_workloads.RULES, *DECISIONS)
"""All claims, in the order of the paper's parts."""
