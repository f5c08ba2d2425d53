"""From what `vtax tune` saw in each environment to winners, transfer losses and equivalence.

Equivalence is tested as such: two one-sided tests on ratios (vtax.analysis.verdicts), from the
rounds in which both ran, or from the intervals that the machine's own runs have.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vtax.analysis.results import Verdict
from vtax.analysis.rounds import Run, log_ratio
from vtax.analysis.statistics import (
    Estimate,
    bounded_exp,
    derived_seed,
    from_interval,
    median_estimate,
    median_interval,
)
from vtax.analysis.verdicts import judge
from vtax.formats.model import (
    TuneEnvironment,
    TuneEquivalence,
    TunePeer,
    TuneRoutine,
    TuneTransfer,
)
from vtax.formats.tuning import CacheEdge, Probe, Probed, Rated, Routine, Tuned

Verdict3 = Literal["equivalent", "differs", "not known"]
Value = bool | int | float | str | None
REFERENCE = "openblas"
"""The library that others are shown in percent of."""
GRID_UNITS = ("bytes", "registers", "ways", "chains")
"""Units of probes whose values come in steps, so that a ratio says nothing."""
_ONE_SET = "gemm"
"""Its four forms have one set of parameters: packing absorbs the transposition."""
NOT_INSTALLED = "it is not installed"
VARIABILITY = "selection variability"
"""A parameter differs, and each runs as fast with the other's."""
MATTERS = "performance differs with the other's"
OPEN = "whether it matters is not known"


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is measured in the rounds: an environment's winner, or a library."""

    kind: Literal["winner", "peer"]
    name: str


@dataclass(slots=True)
class Peer:
    """A library in one environment."""

    library: str
    version: str | None = None
    reason: str | None = None


@dataclass(slots=True)
class Measured:
    """All that was seen in one environment."""

    spec: str
    description: str = ""
    probed: Probed | None = None
    tuned: Tuned | None = None
    """What the search found or, without one, what was given."""
    search_s: float | None = None
    """None: there was no search."""
    measured_size: int | None = None
    """Rows of the matrices in the rounds."""
    cache_edge: CacheEdge | None = None
    peers: dict[str, Peer] = field(default_factory=dict)
    runs: dict[Candidate, dict[str, list[Run]]] = field(default_factory=dict)
    """By candidate and routine."""
    refused: dict[Candidate, str] = field(default_factory=dict)
    """Why a candidate gave nothing."""
    notes: tuple[str, ...] = ()
    failures: list[str] = field(default_factory=list)

    def own(self) -> dict[str, list[Run]]:
        """The runs with its own parameters, by routine."""
        return self.runs.get(Candidate("winner", self.spec), {})


def environment(measured: Measured, seed: int) -> TuneEnvironment:
    """The record of one environment."""
    own, tuned, probed = measured.own(), measured.tuned, measured.probed
    lead = next(iter(tuned.routines), None) if tuned else None
    routines = tuple(
        TuneRoutine(name=name, **_performance(runs, seed, measured.spec, name))
        for name, runs in own.items()
    )
    peers = _peers(measured, seed)
    best = next((each.gflops for each in routines if lead and each.name == lead.routine), None)
    reference = next((each.gflops for each in peers if each.name == REFERENCE), None)
    winner = None
    if lead is not None:
        winner = {**lead.fields, "gflops": lead.gflops if best is None else best}
    return TuneEnvironment(
        spec=measured.spec,
        description=measured.description,
        probes=probed.probes if probed else (),
        curves=probed.curves if probed else (),
        winner=winner,
        percent_of_openblas=_percent(best, reference),
        searched=tuned.routines if tuned else (),
        routines=routines,
        measured_size=measured.measured_size,
        peers=peers,
        absent={
            name: peer.reason or measured.refused.get(Candidate("peer", name)) or "it was not run"
            for name, peer in measured.peers.items()
            if not _peer_runs(measured, name)
        },
        search_s=measured.search_s,
        resumed=tuned.resumed if tuned else 0,
        complete=tuned.complete if tuned else True,
        cache_edge=measured.cache_edge,
        notes=(
            *measured.notes,
            *(probed.notes if probed else ()),
            *(tuned.notes if tuned else ()),
        ),
        failures=tuple(measured.failures),
    )


def choose_sizes(measured: Sequence[Measured], asked: int) -> None:
    """The size of the products in the rounds, from what each search could do in its time.

    It is the same wherever at least half of what was asked for was possible; others have their
    own, or an emulated processor would have the rest time products of microseconds.
    """
    sizes = {each.spec: each.tuned.size for each in measured if each.tuned}
    same = min((size for size in sizes.values() if 2 * size >= asked), default=None)
    for each in measured:
        own = sizes.get(each.spec)
        each.measured_size = same if own is not None and 2 * own >= asked else own


def _peers(measured: Measured, seed: int) -> tuple[TunePeer, ...]:
    runs = {name: own for name in measured.peers if (own := _peer_runs(measured, name))}
    reference = [run.value for run in runs.get(REFERENCE, ())]
    middle = statistics.median(reference) if reference else None
    return tuple(
        TunePeer(
            name=name,
            library=measured.peers[name].library,
            version=measured.peers[name].version,
            percent_of_openblas=_percent(statistics.median(run.value for run in own), middle),
            **_performance(own, seed, measured.spec, name),
        )
        for name, own in runs.items()
    )


def _performance(runs: Sequence[Run], seed: int, spec: str, name: str) -> dict[str, Any]:
    values = [run.value for run in runs]
    boots = [run.boot for run in runs]
    estimate = median_estimate(values, boots, derived_seed(seed, spec, name), log=True)
    low, high = median_interval(estimate, log=True) or (None, None)
    return {"n": len(values), "gflops": statistics.median(values), "low": low, "high": high}


def transfers(measured: Sequence[Measured], margin: float) -> tuple[TuneTransfer, ...]:
    """What each environment loses with the parameters of each other one, by routine."""
    return tuple(
        _transfer(here, other, name, margin)
        for here, other in itertools.permutations(measured, 2)
        if here.tuned and other.tuned
        for name in (each.routine for each in here.tuned.routines)
    )


def _transfer(here: Measured, other: Measured, name: str, margin: float) -> TuneTransfer:
    candidate = Candidate("winner", other.spec)
    runs = here.runs.get(candidate, {}).get(name, [])
    ratio = log_ratio(runs, here.own().get(name, []))
    known: dict[str, Any] = {"routine": name, "here": here.spec, "winner_of": other.spec}
    if ratio is None:
        reason = here.refused.get(candidate) or "it takes two rounds at least"
        return TuneTransfer(**known, loss_percent=None, low=None, high=None, verdict="not known",
                            reason=reason)  # fmt: skip
    half = ratio.half_width()
    return TuneTransfer(
        **known,
        loss_percent=_loss(ratio.value),
        low=_loss(ratio.value + half),
        high=_loss(ratio.value - half),
        verdict=_verdict(ratio, margin),
    )


def equivalence(
    measured: Sequence[Measured], moved: Sequence[TuneTransfer], margin: float
) -> tuple[TuneEquivalence, ...]:
    """Of each pair: every probe, every parameter, and the performance of every routine."""
    found: list[TuneEquivalence] = []
    for a, b in itertools.combinations(measured, 2):
        found += _probes(a, b, margin)
        found += _parameters(a, b, moved)
        found += _performances(a, b, margin)
        found += _cache_edges(a, b, margin)
    return tuple(found)


def _probes(a: Measured, b: Measured, margin: float) -> Iterator[TuneEquivalence]:
    theirs = {each.name: each for each in b.probed.probes} if b.probed else {}
    for own in a.probed.probes if a.probed else ():
        other = theirs.get(own.name)
        if other is None or own.value is other.value is None:
            continue
        ratio = None if own.unit in GRID_UNITS else _probe_ratio(own, other)
        yield TuneEquivalence(
            quantity=own.name,
            kind="probe",
            a=a.spec,
            b=b.spec,
            value_a=own.value,
            value_b=other.value,
            **_interval(ratio),
            verdict=_on_grid(own, other) if ratio is None else _verdict(ratio, margin),
            meaning=own.reason if own.value is None else other.reason,
        )


def _probe_ratio(own: Probe, other: Probe) -> Estimate | None:
    """None: a value or its interval is missing, or not above 0."""
    first, second = (_probe_estimate(each) for each in (own, other))
    return None if first is None or second is None else second - first


def _probe_estimate(each: Probe) -> Estimate | None:
    if each.value is None or each.low is None or each.high is None:
        return None
    if not 0 < each.low <= each.value <= each.high:
        return None
    return from_interval(each.value, each.low, each.high, each.runs)


def _on_grid(own: Probe, other: Probe) -> Verdict3:
    """Equal are equal steps, with intervals that meet; different ones have none in common."""
    if own.unit not in GRID_UNITS or own.value is None or other.value is None:
        return "not known"
    ends = (own.low, own.high, other.low, other.high)
    if any(each is None for each in ends):
        return "not known"
    low, high, their_low, their_high = (each or 0.0 for each in ends)
    if high < their_low or their_high < low:
        return "differs"
    return "equivalent" if own.value == other.value else "not known"


def _parameters(
    a: Measured, b: Measured, moved: Sequence[TuneTransfer]
) -> Iterator[TuneEquivalence]:
    ours, theirs = _sets(a), _sets(b)
    for name in [each for each in ours if each in theirs]:
        first, second = ours[name], theirs[name]
        meaning = _why_different(a, b, first.routine, moved)
        for key in dict.fromkeys((*first.fields, *second.fields)):
            pair = first.fields.get(key), second.fields.get(key)
            yield TuneEquivalence(
                quantity=f"{name} {key}",
                kind="parameter",
                a=a.spec,
                b=b.spec,
                value_a=pair[0],
                value_b=pair[1],
                verdict="equivalent" if pair[0] == pair[1] else "differs",
                meaning=None if pair[0] == pair[1] else meaning,
            )


def _sets(measured: Measured) -> dict[str, Routine]:
    """Each set of parameters once, by the name of what it is for."""
    found: dict[str, Routine] = {}
    for each in measured.tuned.routines if measured.tuned else ():
        name = each.routine
        found.setdefault(name.partition("_")[0] if _ONE_SET in name else name, each)
    return found


def _why_different(a: Measured, b: Measured, routine: str, moved: Sequence[TuneTransfer]) -> str:
    """Whether a parameter that differs matters, by running each one's in the other."""
    return _meaning(
        {
            each.verdict
            for each in moved
            if each.routine == routine and {each.here, each.winner_of} == {a.spec, b.spec}
        }
    )


def _meaning(verdicts: set[Verdict3]) -> str:
    """Of a parameter that differs, by whether each environment is as fast with the other's."""
    if "differs" in verdicts:
        return MATTERS
    return VARIABILITY if verdicts == {"equivalent"} else OPEN


def _performances(a: Measured, b: Measured, margin: float) -> Iterator[TuneEquivalence]:
    pairs: dict[str, tuple[Sequence[Run], Sequence[Run]]]
    pairs = {name: (runs, b.own().get(name, [])) for name, runs in a.own().items()}
    pairs |= {
        name: (first, second)
        for name in a.peers
        for first, second in [(_peer_runs(a, name), _peer_runs(b, name))]
        if first and second
    }
    for name, (first, second) in pairs.items():
        if first and second:
            ratio = log_ratio(second, first)
            yield TuneEquivalence(
                quantity=name,
                kind="performance",
                a=a.spec,
                b=b.spec,
                value_a=statistics.median(run.value for run in first),
                value_b=statistics.median(run.value for run in second),
                **_interval(ratio),
                verdict="not known" if ratio is None else _verdict(ratio, margin),
                meaning=_sizes(a, b) if ratio else "it takes two rounds at least",
            )


def _sizes(a: Measured, b: Measured) -> str | None:
    if a.measured_size == b.measured_size:
        return None
    return f"of matrices of {a.measured_size} and {b.measured_size} rows"


def _peer_runs(measured: Measured, name: str) -> Sequence[Run]:
    return next(iter(measured.runs.get(Candidate("peer", name), {}).values()), [])


def _cache_edges(a: Measured, b: Measured, margin: float) -> Iterator[TuneEquivalence]:
    if a.cache_edge is None or b.cache_edge is None:
        return
    first, second = usual_edge(a.cache_edge), usual_edge(b.cache_edge)
    meaning = None
    if first != second:
        same = [_same_with(each.cache_edge, first, second, margin) for each in (a, b)]
        meaning = _meaning(set(same))
    yield TuneEquivalence(
        quantity="CacheEdge",
        kind="parameter",
        a=a.spec,
        b=b.spec,
        value_a=first,
        value_b=second,
        verdict="equivalent" if first == second else "differs",
        meaning=meaning,
    )
    rated = [_with_edge(a.cache_edge, first), _with_edge(b.cache_edge, second)]
    if rated[0] is None or rated[1] is None:
        return
    ratio = _rated_ratio(rated[0], rated[1])
    yield TuneEquivalence(
        quantity="dgemm with CacheEdge",
        kind="performance",
        a=a.spec,
        b=b.spec,
        value_a=rated[0].gflops,
        value_b=rated[1].gflops,
        **_interval(ratio),
        verdict="not known" if ratio is None else _verdict(ratio, margin),
    )


def usual_edge(found: CacheEdge) -> int | None:
    """What most runs chose, the smaller of two that as many did; None: the first cache's blocks."""
    known = {point.bytes for point in found.points}
    chosen = sorted((each for each in found.chosen if each in known), key=lambda each: each or 0)
    without = sum(each is None for each in found.chosen)
    usual = statistics.mode(chosen) if chosen else None
    return usual if usual is not None and chosen.count(usual) >= without else None


def _with_edge(found: CacheEdge, edge: int | None) -> Rated | None:
    return next((each for each in found.points if each.bytes == edge), found.l1_only)


def _same_with(
    found: CacheEdge | None, first: int | None, second: int | None, margin: float
) -> Verdict3:
    """Whether two edges are equally fast in one environment."""
    if found is None:
        return "not known"
    ratio = _rated_ratio(_with_edge(found, first), _with_edge(found, second))
    return "not known" if ratio is None else _verdict(ratio, margin)


def _rated_ratio(own: Rated | None, other: Rated | None) -> Estimate | None:
    estimates = [
        from_interval(each.gflops, each.low, each.high, each.runs)
        for each in (own, other)
        if each is not None and each.low is not None and each.high is not None
    ]
    return estimates[1] - estimates[0] if len(estimates) == 2 else None


def _verdict(ratio: Estimate, margin: float) -> Verdict3:
    known: Mapping[Verdict, Verdict3] = {
        Verdict.EQUIVALENT: "equivalent",
        Verdict.SLOWER: "differs",
        Verdict.FASTER: "differs",
    }
    return known.get(judge(ratio, margin), "not known")


def _interval(ratio: Estimate | None) -> dict[str, Any]:
    if ratio is None:
        return {"percent": None, "low": None, "high": None}
    half = ratio.half_width()
    ends = ratio.value, ratio.value - half, ratio.value + half
    return {
        name: 100.0 * bounded_exp(end)
        for name, end in zip(("percent", "low", "high"), ends, strict=True)
    }


def _loss(log: float) -> float:
    return 100.0 * (1.0 - bounded_exp(log))


def _percent(own: float | None, base: float | None) -> float | None:
    return None if own is None or not base else 100.0 * own / base
