"""What the paper's text claims about detection and tuning, each judged by a pure function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median

from vtax.core.page.format import significant
from vtax.tune.record import TuneEnvironment, TuneEquivalence
from vtax.tune.tuning import CacheEdge
from vtax_studies.atlas import data as m
from vtax_studies.atlas.data import Data
from vtax_studies.atlas.setup import (
    DETECTED,
    HAND_WRITTEN,
    HAND_WRITTEN_SINGLE,
    SAME_EDGE,
    SCALAR,
    SSE2,
    STABLE,
    Place,
)
from vtax_studies.rule import Judgement, Missing, Rule, all_hold, some
from vtax_studies.rule import size as judged_size

KIB = 1 << 10


def same(data: Data, kind: str, named: Callable[[str], bool], what: str) -> Judgement:
    """Whether all pairs of kernels that were measured in turn agree."""
    pairs = [
        each
        for each in data.equivalence
        if each.kind == kind and named(each.quantity) and m.kernels_differ(each)
    ]
    if not pairs:
        raise Missing(f"{what} of no two kernels were measured in turn")
    ways = {"equivalent": True, "differs": False, "not known": None}
    counts = {verdict: [p for p in pairs if p.verdict == verdict] for verdict in ways}
    words = {"equivalent": "equivalent", "differs": "different", "not known": "not known"}
    shown = ", ".join(f"{len(own)} {words[verdict]}" for verdict, own in counts.items() if own)
    exceptions = ", ".join(sorted({_shown(each) for each in counts["differs"]}))
    reason = f"All pairs of kernels have to be equivalent.{f' {exceptions}.' if exceptions else ''}"
    return Judgement(shown, all_hold(ways[each.verdict] for each in pairs), reason)


def _shown(each: TuneEquivalence) -> str:
    a, b = m.place(each.a), m.place(each.b)
    return f"{each.quantity} differs between {a.name} and {b.name}"


def edge_performance(data: Data) -> Judgement:
    """The worst size of figure 4 against L1 blocking alone."""
    worst, where = 0.0, ""
    for sweeps in _groups(data):
        for bytes_ in {point.bytes for each in sweeps.values() for point in each.points}:
            rates = [p.gflops for each in sweeps.values() for p in each.points if p.bytes == bytes_]
            worst, where = max((worst, where), (max(rates) / min(rates) - 1, _kib(bytes_)))
        alone = [each.l1_only.gflops for each in sweeps.values() if each.l1_only]
        if alone:
            worst, where = max((worst, where), (max(alone) / min(alone) - 1, "L1 alone"))
    reason = f"At each size kernels may lie {STABLE:.0%} apart."
    ours = f"up to {significant(100 * worst, 2)} % apart ({where})"
    return Judgement(ours, worst <= STABLE, reason)


def edge_choice(data: Data) -> Judgement:
    """Medians of the runs' choices, as in table 4; it takes at least two sweeps of each kernel."""
    verdicts, shown = [], []
    for sweeps in _groups(data):
        middles = {place: chosen(each) for place, each in sweeps.items()}
        own: dict[str, list[float]] = {}
        for place, size in middles.items():
            own.setdefault(place.kernel, []).extend([size] if size else [])
        repeated = all(len(sizes) > 1 and _near(sizes) for sizes in own.values())
        verdicts.append(_near([s for sizes in own.values() for s in sizes]) if repeated else None)
        shown += [f"{place.name} {_kib(size)}" for place, size in middles.items()]
    reason = (
        f"Medians may lie a factor of {SAME_EDGE:g} apart, as the paper's do. Two sweeps of each "
        "kernel at least have to agree by this, or else kernels cannot be told from sweeps."
    )
    return Judgement(", ".join(shown), all_hold(verdicts), reason)


def _near(sizes: Sequence[float]) -> bool:
    return max(sizes) <= SAME_EDGE * min(sizes)


def edge_flat(data: Data) -> Judgement:
    """What the choice of an edge costs: over the sizes that some run chose, in each place."""
    verdicts, shown = [], []
    for sweeps in _groups(data):
        for place, each in sweeps.items():
            rates = [point.gflops for point in each.points if point.bytes in each.chosen]
            if not rates:
                continue
            lost = 1 - min(rates) / max(rates)
            verdicts.append(lost <= STABLE)
            sizes = len(set(each.chosen) - {None})
            shown.append(f"{place.name} {sizes} sizes, {significant(100 * lost, 2)} %")
    if not verdicts:
        raise Missing("no run chose a size")
    reason = f"Sizes that some run chose may lie {STABLE:.0%} apart."
    return Judgement(", ".join(shown), all_hold(verdicts), reason)


def hand_written(data: Data, *, single: bool) -> Judgement:
    """OpenBLAS against the best generated code, natively."""
    found = m.native(data.single if single else data.tuned)
    percent = found.percent_of_openblas
    if percent is None:
        raise Missing("OpenBLAS was not measured natively")
    return judged_size(100 / percent, _times(single), "times", "OpenBLAS by the generated winner")


def vectors(data: Data, *, single: bool) -> Judgement:
    """What the paper's hand-written kernels have and its compiled kernels lack, natively."""
    found = m.native(data.single if single else data.tuned)
    rates = {peer.name: peer.gflops for peer in found.peers}
    if SCALAR not in rates or SSE2 not in rates:
        raise Missing("generated code with SSE2 or without was not measured natively")
    shown = ", ".join(f"{name} {significant(rates[name])}" for name in (SCALAR, SSE2))
    times = rates[SSE2] / rates[SCALAR]
    return judged_size(times, _times(single), "times", f"GFLOP/s: {shown}")


def _times(single: bool) -> float:
    return HAND_WRITTEN_SINGLE if single else HAND_WRITTEN


def chosen(sweep: CacheEdge) -> float | None:
    """The median edge, without runs that chose L1 blocking alone; None: all runs did."""
    sizes = [size for size in sweep.chosen if size is not None]
    return median(sizes) if sizes else None


def _groups(data: Data) -> Sequence[Mapping[Place, CacheEdge]]:
    """Sweeps with products of the same size. Raises Missing without two sweeps of one size."""
    groups: dict[int, dict[Place, CacheEdge]] = {}
    for place, found in data.tuned.items():
        if found.cache_edge is not None and found.cache_edge.points:
            groups.setdefault(found.cache_edge.size, {})[place] = found.cache_edge
    several = [group for group in groups.values() if len({each.kernel for each in group}) > 1]
    return some(several, "the sweep of no two kernels has products of one size")


def _kib(size: float | str | None) -> str:
    return "none" if size is None else f"{float(size) / KIB:.0f} KiB"


def detected(found: TuneEnvironment, name: str) -> str:
    """A probe's value as table 3 shows it."""
    probe = next((each for each in found.probes if each.name == name), None)
    if probe is None or probe.value is None:
        return ""
    if probe.unit == "bytes":
        return _kib(probe.value)
    return significant(probe.value, 3)


RULES: tuple[Rule[Data], ...] = (
    Rule(
        "detection-same", "4.1, table 3", "Detection finds the same in all kernels",
        "L1 16 KB, pipeline 6, 15 registers",
        partial(same, kind="probe", named=DETECTED.__contains__, what="probes"),
    ),
    Rule(
        "fpu-same", "4.1, fig. 2", "Register-to-register performance does not differ",
        "no significant difference",
        partial(same, kind="probe", named=lambda name: name.startswith("peak_"), what="peaks"),
    ),
    Rule(
        "edge-performance-same", "4.2, fig. 3, 4",
        "Blocked products are as fast in all kernels, past the physical cache too",
        "no difference", edge_performance,
    ),
    Rule("edge-same", "4.2, table 4", "The CacheEdge that is chosen is similar in all kernels",
         "1024 to 1536 KB", edge_choice),
    Rule(
        "edge-flat", "4.2, fig. 5",
        "Which CacheEdge is chosen varies, but performance hardly depends on it",
        "a power of two apart", edge_flat,
    ),
    Rule(
        "hand-written", "4.3, fig. 6",
        "Hand-written double precision kernels are this much faster than generated ones", "2 times",
        partial(hand_written, single=False),
    ),
    Rule(
        "hand-written-single", "4.3, fig. 6",
        "Hand-written single precision kernels are this much faster than generated ones", "4 times",
        partial(hand_written, single=True),
    ),
    Rule(
        "sse2", "4.3, fig. 6",
        "SSE2 alone makes double precision kernels this much faster, both generated", "2 times",
        partial(vectors, single=False),
    ),
    Rule(
        "sse2-single", "4.3, fig. 6",
        "SSE2 alone makes single precision kernels this much faster, both generated", "4 times",
        partial(vectors, single=True),
    ),
    Rule(
        "parameters-same", "4.3, table 5", "The tuned parameters are the same in all kernels",
        "the same", partial(same, kind="parameter", named=bool, what="parameters"),
    ),
    Rule(
        "routines-same", "4.3, fig. 7", "Tuned routines are as fast in all kernels",
        "no significant difference",
        partial(
            same, kind="performance", named=lambda name: name.startswith("dge"), what="routines"
        ),
    ),
)  # fmt: skip
