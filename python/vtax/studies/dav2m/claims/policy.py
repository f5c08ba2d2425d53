"""Claims about what DAV2M does: figures 9, 11 and 12."""

from __future__ import annotations

from vtax.present.format import significant
from vtax.studies.dav2m import measures as m
from vtax.studies.dav2m.claims.rule import each, size, wrong
from vtax.studies.dav2m.data import Data, need
from vtax.studies.dav2m.setup import FOCUS, GROUPS, MACHINE, PHASED
from vtax.studies.rule import Judgement, Missing, Rule

FEW_SWITCHES = 3
MOSTLY_PERCENT = 90.0
MONITORING_PERCENT = 1.0


def _switches(data: Data, benchmark: str) -> float:
    return m.number(data, MACHINE, benchmark, "dav2m", "switches")


def gcc_switches(data: Data) -> Judgement:
    """The number of transitions of gcc."""
    return size(_switches(data, "gcc"), 13, "switches")


def few_elsewhere(data: Data) -> Judgement:
    """All others switch rarely."""
    found = [(name, _switches(data, name)) for name in FOCUS if name != "gcc"]
    others = [name for name, count in found if count > FEW_SWITCHES]
    reason = f"“Very little” is read as at most {FEW_SWITCHES} switches.{wrong(others)}"
    return Judgement(each(found, "switches"), not others, reason)


def third_group(data: Data) -> Judgement:
    """At most one switch where the mode does not matter."""
    found = [(name, _switches(data, name)) for name in GROUPS["indifferent"]]
    others = [name for name, count in found if count > 1]
    return Judgement(
        each(found, "switches"), not others, f"Holds at one switch or none.{wrong(others)}"
    )


def right_mode(data: Data) -> Judgement:
    """The first two groups spend nearly all time in their mode."""
    found, others = [], []
    for best in ("shadow", "nested"):
        for name in GROUPS[best]:
            share = m.time_share(data, name, best)
            found.append((f"{name} {best}", share))
            if share < 50 or (name != "gcc" and share < MOSTLY_PERCENT):
                others.append(name)
    reason = (
        f"Each has to spend {MOSTLY_PERCENT:g} % of its time in its group's mode; gcc, which the "
        f"paper shows changing, half.{wrong(others)}"
    )
    return Judgement(each(found, digits=3), not others, reason)


def settles(data: Data) -> Judgement:
    """Where the mode does not matter, DAV2M settles on one."""
    found = [(name, m.time_share(data, name, "shadow")) for name in GROUPS["indifferent"]]
    others = [n for n, share in found if 100 - MOSTLY_PERCENT < share < MOSTLY_PERCENT]
    reason = f"One mode has to have {MOSTLY_PERCENT:g} % of the time.{wrong(others)}"
    return Judgement(f"in shadow: {each(found, digits=3)}", not others, reason)


def opposite(data: Data) -> Judgement:
    """Within the third group DAV2M decided both ways."""
    found = [(name, m.time_share(data, name, "shadow")) for name in GROUPS["indifferent"]]
    holds = any(share > 50 for _, share in found) and any(share <= 50 for _, share in found)
    reason = (
        "Both modes have to be chosen within the third group; the text names swim and zeusmp, "
        "which are not in it."
    )
    return Judgement(f"in shadow: {each(found, digits=3)}", holds, reason)


def _variant(data: Data, benchmark: str, parameter: str, setting: str) -> float:
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
    """Without rising thresholds gzip and gcc would oscillate."""
    return _oscillation(data, "threshold_rise", "1 (never)", "rising thresholds")


def prepaging(data: Data) -> Judgement:
    """Without Prepaging gzip and gcc would oscillate."""
    return _oscillation(data, "prepaging", "off", "the state Prepaging")


def thresholds_move(data: Data) -> Judgement:
    """The thresholds change during both runs."""
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
    for name in FOCUS:
        rows = m.windows(data, name, "dav2m")
        spent = float(rows["exits_policy"].sum()) * each_exit
        found.append((name, 100 * spent / float(rows["cycles"].sum())))
    worst = max(value for _, value in found)
    reason = f"Holds below {MONITORING_PERCENT:g} % of the cycles."
    return Judgement(f"at most {significant(worst, 2)} %", worst < MONITORING_PERCENT, reason)


RULES = (
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
        settles,
    ),
    Rule(
        "opposite",
        "7, fig. 12",
        "For the third group DAV2M makes opposite decisions, without consequences",
        "opposite",
        opposite,
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
