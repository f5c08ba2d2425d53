"""The tables of `vtax tune`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vtax.core.page.format import (
    NOT_MEASURED,
    bytes_text,
    interval,
    percent,
    plural,
    seconds_text,
    significant,
)
from vtax.core.page.page import Section, table_section
from vtax.tune.analysis import NOT_INSTALLED, VARIABILITY
from vtax.tune.record import TuneEnvironment, TuneEquivalence, TuneRecord, TuneRoutine
from vtax.tune.tuning import Probe, Routine

_STATES = {
    "running": "vtax was killed, or still runs",
    "interrupted": "it was interrupted",
}
_ORDER = ("VECTOR", "MULADD", "LAT", "NB", "MU", "NU", "KU", "FFTCH", "IFTCH", "NFTCH", "MC", "NC")
"""ATLAS's fields in the order of the paper's table 5."""


def remarks(record: TuneRecord) -> Sequence[str]:
    """What a reader must know before believing the result."""
    found = []
    if record.state != "complete":
        found.append(f"not everything was run: {_STATES.get(record.state, record.state)}")
    for each in record.environments:
        found += [f"{each.spec}: failed: {text}" for text in each.failures]
        if not each.complete:
            found.append(f"{each.spec}: the budget ended the search: its winner is the best so far")
        if rejected := sum(len(routine.rejected) for routine in each.searched):
            found.append(f"{each.spec}: {plural(rejected, 'candidate')} rejected: {_why(each)}")
        found += [f"{each.spec}: {text}" for text in each.notes]
        missing = [name for name, reason in each.absent.items() if reason == NOT_INSTALLED]
        if missing:
            found.append(f"{each.spec}: not installed: {', '.join(missing)}")
        found += [
            f"{each.spec}: {name} is not measured: {reason}"
            for name, reason in each.absent.items()
            if reason != NOT_INSTALLED
        ]
    if any(each.meaning == VARIABILITY for each in record.equivalence):
        found.append(f"{VARIABILITY}: parameters differ, and each runs as fast with the other's")
    if record.rounds < 2 and len(record.environments) > 1:
        found.append("one round has no interval: no performance can be called equivalent (--reps)")
    return found


def winners(record: TuneRecord) -> Section:
    """What each environment's search found, and what the libraries reach there."""
    rows = []
    for each in record.environments:
        lead = next(iter(each.searched), None)
        own = next((r for r in each.routines if lead and r.name == lead.routine), None)
        value = each.winner["gflops"] if each.winner else None
        size = "" if each.measured_size is None else str(each.measured_size)
        rows.append(
            (
                each.spec,
                "tuned",
                size,
                significant(float(value)) if value is not None else NOT_MEASURED,
                "" if own is None or own.low is None else interval(own.low, own.high),
                "" if each.percent_of_openblas is None else percent(each.percent_of_openblas),
                "" if each.percent_of_peak is None else percent(each.percent_of_peak),
                "" if each.search_s is None else _search(each),
            )
        )
        rows += [
            (
                each.spec, peer.name, size, significant(peer.gflops),
                "" if peer.low is None else interval(peer.low, peer.high),
                "" if peer.percent_of_openblas is None else percent(peer.percent_of_openblas),
                "" if peer.percent_of_peak is None else percent(peer.percent_of_peak), "",
            )
            for peer in each.peers
        ]  # fmt: skip
    return table_section(
        "winners",
        "Winner and libraries",
        f"GFLOP/s of a product of square matrices by {plural(record.threads, 'thread')}: "
        f"median of {plural(record.rounds, 'round')} with 95 % interval, or what the search saw. "
        "For generated code also the percentage of the register peak that the probes found.",
        (
            "Environment",
            "Kernels",
            "Rows",
            "GFLOP/s",
            "95 % interval",
            "% of OpenBLAS",
            "% of peak",
            "Search",
        ),
        tuple(rows),
    )


def parameters(record: TuneRecord) -> Section:
    """The fields of every set of parameters (table 5)."""
    sets = {each.spec: _sets(each) for each in record.environments}
    names = dict.fromkeys(
        (name, key)
        for found in sets.values()
        for name, own in found.items()
        for key in sorted(own.fields, key=_place)
    )
    rows = [
        (
            name, key,
            *(_value(found[name].fields.get(key)) if name in found else NOT_MEASURED
              for found in sets.values()),
        )
        for name, key in names
    ]  # fmt: skip
    return table_section(
        "parameters",
        "Parameters",
        "What was chosen, by ATLAS's names (the paper's table 5) and ours (docs/tune.md).",
        ("Routine", "Field", *sets),
        tuple(rows),
    )


def routines(record: TuneRecord, few: bool = False) -> Section:
    """Every routine with the winner of its environment (figure 7); `few`: without intervals."""
    found = {each.spec: {own.name: own for own in each.routines} for each in record.environments}
    names = dict.fromkeys(name for known in found.values() for name in known)
    rows = [(name, *(_rated(known.get(name), few) for known in found.values())) for name in names]
    return table_section(
        "routines",
        "Routines",
        "GFLOP/s with each environment's own parameters: median of the rounds with 95 % "
        "interval (of the paper's figure 7).",
        ("Routine", *found),
        tuple(rows),
    )


def probes(record: TuneRecord, few: bool = False) -> Section:
    """Each quantity in each environment (table 3); `few`: only the quantities of the paper."""
    found = {each.spec: {own.name: own for own in each.probes} for each in record.environments}
    names = {own.name: own for known in found.values() for own in known.values()}
    rows = [
        (
            name if few or one.atlas is None else f"{name} ({one.atlas})",
            one.unit,
            *(_probed(known.get(name), few) for known in found.values()),
        )
        for name, one in names.items()
        if not few or one.atlas is not None or name.startswith("peak_")
    ]
    return table_section(
        "probes",
        "Probes",
        "Medians with 95 % intervals (docs/tune.md); in brackets what is claimed, where it "
        "disagrees. ATLAS's names for what the paper's table 3 and figure 2 have.",
        ("Quantity", "Unit", *found),
        tuple(rows),
    )


def transfers(record: TuneRecord, few: bool = False) -> Section:
    """How much is lost with parameters tuned elsewhere; `few`: only for the first routine."""
    lead = next((each.routine for each in record.transfer), None)
    rows = [
        (
            each.here, each.winner_of, each.routine, percent(each.loss_percent),
            _between(each.low, each.high), each.reason or each.verdict,
        )
        for each in record.transfer
        if not few or each.routine == lead
    ]  # fmt: skip
    return table_section(
        "transfer",
        "Transfer",
        "What a routine loses with the parameters that were tuned in another environment, in % of "
        "its performance with its own; negative: it gains."
        if rows
        else "There are no two winners to exchange.",
        ("Runs in", "Tuned in", "Routine", "Loss, %", "95 % interval", "Verdict"),
        tuple(rows),
    )


def equivalence(record: TuneRecord) -> Section:
    """The verdict on each quantity of each pair."""
    rows = [
        (
            each.a, each.b, each.quantity, _value(each.value_a, each), _value(each.value_b, each),
            _between(each.low, each.high), each.verdict, each.meaning or "",
        )
        for each in record.equivalence
    ]  # fmt: skip
    return table_section(
        "equivalence",
        "Equivalence",
        f"Equivalent: the ratio is within {record.margin_percent:g} % with 95 % confidence (two "
        "one-sided tests); differs: it is outside; not known: neither can be shown. A parameter "
        f"either is the same or not; where each runs as fast with the other's, it is {VARIABILITY}."
        if rows
        else "One environment: nothing to compare.",
        ("Environment", "Other", "Quantity", "Its", "The other's", "In %", "Verdict", "Meaning"),
        tuple(rows),
    )


def differences(record: TuneRecord) -> Section:
    """The performances, and the differences in the rest; for parameters only their names."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for each in record.equivalence:
        if each.kind != "performance" and each.verdict != "differs":
            continue
        name, _, field = each.quantity.partition(" ")
        text = f"{each.verdict}: {each.meaning}" if each.meaning else each.verdict
        if each.kind == "probe":
            groups.setdefault((each.a, each.b, "probes", "", text), []).append(each.quantity)
        elif each.kind == "parameter" and field:
            groups.setdefault((each.a, each.b, name, "", text), []).append(field)
        else:
            groups[each.a, each.b, each.quantity, _between(each.low, each.high), text] = []
    rows = [
        (a, b, ": ".join(filter(None, (name, ", ".join(fields)))), ratio, text)
        for (a, b, name, ratio, text), fields in groups.items()
    ]
    return table_section(
        "differences", "Differences", "", ("Environment", "Other", "Quantity", "In %", "Verdict"),
        tuple(rows),
    )  # fmt: skip


def verdict_counts(record: TuneRecord) -> Sequence[str]:
    """A line for each pair and kind: `a and b: probes: equivalent 12, not known 3`."""
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    for each in record.equivalence:
        counts.setdefault((each.a, each.b, each.kind), Counter())[each.verdict] += 1
    return [
        f"{a} and {b}: {kind}s: "
        + ", ".join(f"{verdict} {count}" for verdict, count in own.items())
        for (a, b, kind), own in counts.items()
    ]


def starts(record: TuneRecord) -> Sequence[str]:
    """The caches that the searches started from, on one line."""
    known = [
        f"{each.spec} {bytes_text(own.l1_bytes)} and {bytes_text(own.l2_bytes)} "
        + ("by the probes" if own.from_ == "probes" else "as claimed")
        for each in record.environments
        if (own := each.start) and own.l1_bytes
    ]
    return [f"searched from L1 and L2: {'; '.join(known)}"] if known else []


def cache_edges(record: TuneRecord, few: bool = False) -> Section:
    """How often each CacheEdge was chosen (table 4); `few`: only edges that were chosen."""
    rows = []
    for each in record.environments:
        if each.cache_edge is None:
            continue
        chosen = Counter(each.cache_edge.chosen)
        rated = {point.bytes: point for point in each.cache_edge.points}
        l1_only = each.cache_edge.l1_only
        rows.append((each.spec, "L1 only", significant(l1_only.gflops if l1_only else None),
                     str(chosen[None])))  # fmt: skip
        rows += [
            (each.spec, bytes_text(size), significant(point.gflops), str(chosen[size]))
            for size, point in rated.items()
            if chosen[size] or not few
        ]
    return table_section(
        "cache-edge",
        "CacheEdge",
        "GFLOP/s with each size of the second cache's block, and how many runs would choose it.",
        ("Environment", "CacheEdge", "GFLOP/s", "Chosen by"),
        tuple(rows),
    )


def _search(each: TuneEnvironment) -> str:
    return f"{seconds_text(each.search_s)}{', resumed' if each.resumed else ''}"


def _place(field: str) -> int:
    return _ORDER.index(field) if field in _ORDER else len(_ORDER)


def _sets(each: TuneEnvironment) -> dict[str, Routine]:
    """Routines by name; the forms of GEMM count as one, because they share their parameters."""
    found: dict[str, Routine] = {}
    for own in each.searched:
        name = own.routine.partition("_")[0] if "gemm" in own.routine else own.routine
        found.setdefault(name, own)
    return found


def _rated(own: TuneRoutine | None, few: bool) -> str:
    if own is None:
        return NOT_MEASURED
    known = own.low is not None and not few
    return significant(own.gflops) + (f" ({interval(own.low, own.high)})" if known else "")


def _between(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{percent(low)} to {percent(high)}"


def _probed(own: Probe | None, few: bool) -> str:
    if own is None or own.value is None:
        return NOT_MEASURED
    show = bytes_text if own.unit == "bytes" else significant
    text = show(own.value)
    if not few and own.low is not None and own.high is not None and own.low < own.high:
        text += f" ({show(own.low)} to {show(own.high)})"
    if own.agrees is False and own.claimed is not None:
        text += f" [{show(own.claimed)}]"
    return text


def _value(value: bool | int | float | str | None, of: TuneEquivalence | None = None) -> str:
    if value is None:
        return "none" if of and of.quantity == "CacheEdge" else NOT_MEASURED
    if isinstance(value, bool | str):
        return str(value)
    if of and of.quantity == "CacheEdge":
        return bytes_text(value)
    return str(value) if isinstance(value, int) else significant(value)


def _why(each: TuneEnvironment) -> str:
    return next((one.why for own in each.searched for one in own.rejected), "")
