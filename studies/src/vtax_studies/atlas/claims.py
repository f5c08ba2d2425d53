"""What the paper's text claims about scarce memory, each judged from data by a pure function."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations

from vtax.core.page.format import significant
from vtax.core.units import format_bytes
from vtax.memory.analysis import MODULES, NO_TLB
from vtax.memory.record import MemoryEnvironment, MemoryPoint
from vtax_studies.atlas import data as m
from vtax_studies.atlas.data import Data
from vtax_studies.atlas.setup import (
    EDGE,
    FEW,
    GUEST_OF,
    GUESTS_DATA,
    LARGE_MB,
    NEAR,
    OTHERS_MB,
    PLATEAU,
    QUADRATIC,
    SMALL_MB,
    SOME_BYTES,
    STABLE,
    TREMENDOUS,
    Place,
)
from vtax_studies.rule import Judgement, Missing, Rule, all_hold, some
from vtax_studies.rule import size as judged_size

MIB = 1 << 20
NO_OTHERS = "no guest says it"


def rises(data: Data) -> Judgement:
    """Whether performance rises from the smallest size to the plateau."""
    shown, verdicts = [], []
    for place, found in {**data.of(SMALL_MB), **data.of(LARGE_MB)}.items():
        points = {point.size: point for point in found.points if point.n}
        large = min((size for size in points if size >= PLATEAU), default=None)
        small = min(points)
        if large is None or small >= PLATEAU:
            raise Missing(f"{place.name}: not run on both sides of {PLATEAU}")
        low, high = (m.value(place, points[size], "median") for size in (small, large))
        verdicts.append(high > low)
        shown.append(f"{place.name} {significant(low, 3)} to {significant(high, 3)}")
    reason = f"The median at {PLATEAU} has to be above that of the smallest size in every place."
    return Judgement(f"{', '.join(shown)} Mflop/s", all_hold(verdicts), reason)


def stable(data: Data) -> Judgement:
    """Whether performance is stable from the plateau's begin to the edge, or to the end."""
    shown, verdicts = [], []
    for place, found in {**data.of(SMALL_MB), **data.of(LARGE_MB)}.items():
        edge = found.cliff.size if found.cliff else None
        levels = [
            m.value(place, point, "median") for point in found.points
            if point.n and PLATEAU <= point.size <= (edge or point.size)
        ]  # fmt: skip
        if len(levels) < 2:
            raise Missing(f"{place.name}: fewer than two sizes on its plateau")
        spread = max(levels) / min(levels) - 1
        verdicts.append(spread <= STABLE)
        shown.append(f"{place.name} {significant(100 * spread, 2)}")
    reason = f"Medians from {PLATEAU} to the edge may lie {STABLE:.0%} apart."
    return Judgement(f"apart: {', '.join(shown)} %", all_hold(verdicts), reason)


def falls(data: Data) -> Judgement:
    """The edge with the small memory, with its interval."""
    shown, verdicts = [], []
    for place, found in _reaching(data, SMALL_MB).items():
        edge = m.cliff(place, found)
        low = edge.low or 0
        verdicts.append(low <= EDGE * (1 + NEAR) and edge.high >= EDGE * (1 - NEAR))
        shown.append(f"{place.name} past {edge.size} ({low} to {edge.high})")
    reason = f"Each edge's interval has to meet {EDGE} within {NEAR:.0%}."
    return Judgement(", ".join(shown), all_hold(verdicts), reason)


def same_edge(data: Data) -> Judgement:
    """Whether kernels have the same edge with the small memory."""
    pairs = [
        each for each in data.differences
        if m.place(each.a).megabytes == m.place(each.b).megabytes == SMALL_MB
    ]  # fmt: skip
    if not pairs:
        raise Missing("no two kernels were run in turn")
    names = [(m.place(each.a).kernel, m.place(each.b).kernel, each) for each in pairs]
    shown = ", ".join(
        f"{a} and {b} {each.verdict}" + ("" if each.p is None else f" (p = {each.p:.2g})")
        for a, b, each in names
    )
    ways = {"differ": False, "no difference shown": True, "not known": None}
    holds = all_hold(ways[each.verdict] for each in pairs)
    return Judgement(shown, holds, "A permutation test of the rounds' edges must show none.")


def no_fall(data: Data) -> Judgement:
    """Whether there is no fall with the large memory, up to the largest size."""
    found = {place: each for place, each in data.of(LARGE_MB).items() if m.reaches(each, SMALL_MB)}
    if not found:
        raise Missing(f"no size was run that does not fit into {SMALL_MB} MB")
    shown = ", ".join(
        f"{place.name} {'none' if each.cliff is None else f'past {each.cliff.size}'}"
        for place, each in found.items()
    )
    holds = all(each.cliff is None for each in found.values())
    return Judgement(shown, holds, "No place may have a cliff.")


def code(data: Data) -> Judgement:
    """The code of unprivileged guests' kernels, with their modules, against the native kernel's."""
    sizes = {place.kernel: _code(each) for place, each in data.found.items()}
    known = {kernel: size for kernel, size in sizes.items() if size is not None}
    pairs = [(known[a], known[b]) for a, b in GUEST_OF.items() if a in known and b in known]
    if not pairs:
        raise Missing("the kernels do not show their images (only root reads /proc/iomem)")
    shown = ", ".join(f"{name} {format_bytes(size)}" for name, size in known.items())
    holds = all(guest < native for guest, native in pairs)
    return Judgement(shown, holds, "A guest's has to be less than the native kernel's.")


def _code(found: MemoryEnvironment) -> int | None:
    code, modules = (found.kernel_bytes.get(part) for part in ("code", MODULES))
    return None if code is None else code + (modules or 0)


def kernel_data(data: Data) -> Judgement:
    """The data of unprivileged guests' kernels against the native kernel's."""
    sizes = {place.kernel: each.kernel_bytes.get("data") for place, each in data.found.items()}
    known = {kernel: size for kernel, size in sizes.items() if size}
    shares = [known[a] / known[b] for a, b in GUEST_OF.items() if a in known and b in known]
    if not shares:
        raise Missing("the kernels do not show their images (only root reads /proc/iomem)")
    shown = ", ".join(f"{name} {format_bytes(size)}" for name, size in known.items())
    return judged_size(max(shares), GUESTS_DATA, "of the native kernel's", shown)


def others(data: Data) -> Judgement:
    """The resident memory of all other processes of each guest."""
    sizes = {place.name: each.others_bytes for place, each in data.found.items()}
    known = {name: size for name, size in sizes.items() if size is not None}
    shown = ", ".join(f"{name} {size / MIB:.1f}" for name, size in some(known, NO_OTHERS).items())
    return judged_size(max(known.values()) / 1e6, OTHERS_MB, "MB", f"{shown} MiB")


def resident_stops(data: Data) -> Judgement:
    """Whether the resident set stops growing past the edge, with the small memory."""
    shown, verdicts = [], []
    for place, found in _reaching(data, SMALL_MB).items():
        _, past = m.split(place, found)
        sizes = [m.value(place, point, "max_rss_bytes") for point in past]
        verdicts.append(max(sizes) <= (1 + STABLE) * sizes[0])
        shown.append(f"{place.name} {sizes[0] / MIB:.0f} to {sizes[-1] / MIB:.0f}")
    reason = f"Past the edge it may grow by {STABLE:.0%} in all."
    return Judgement(f"{', '.join(shown)} MiB", all_hold(verdicts), reason)


def resident_grows(data: Data) -> Judgement:
    """Whether the resident set keeps growing, with the large memory."""
    shown, verdicts = [], []
    for place, found in data.of(LARGE_MB).items():
        points = [point for point in found.points if point.n]
        sizes = [m.value(place, point, "max_rss_bytes") for point in points]
        verdicts.append(all(m.need(point.size) <= size
                            for point, size in zip(points, sizes, strict=True)))  # fmt: skip
        shown.append(f"{place.name} {sizes[-1] / MIB:.0f} at {points[-1].size}")
    reason = "All matrices have to be resident at every size."
    return Judgement(f"{', '.join(shown)} MiB", all_hold(verdicts), reason)


def swaps(data: Data) -> Judgement:
    """Swapping with the small memory: none before the edge, some past it."""
    shown, verdicts = [], []
    for place, found in _reaching(data, SMALL_MB).items():
        before, past = m.split(place, found)
        most = max(m.value(place, point, "swap_bytes") for point in before)
        least = min(m.value(place, point, "swap_bytes") for point in past)
        verdicts.append(most < SOME_BYTES <= least)
        shown.append(f"{place.name} {most / MIB:.1f} before, {least / MIB:.1f} and more past it")
    reason = f"Below {format_bytes(SOME_BYTES)} before the edge, above past it."
    return Judgement(f"{', '.join(shown)} MiB", all_hold(verdicts), reason)


def no_swap(data: Data) -> Judgement:
    """Whether nothing is swapped with the large memory."""
    found = {
        place: max(m.value(place, point, "swap_bytes") for point in each.points if point.n)
        for place, each in data.of(LARGE_MB).items()
    }
    shown = ", ".join(f"{place.name} {most / MIB:.1f}" for place, most in found.items())
    holds = all(most < SOME_BYTES for most in found.values())
    return Judgement(f"{shown} MiB", holds, f"Below {format_bytes(SOME_BYTES)} at every size.")


def major_faults(data: Data) -> Judgement:
    """Whether major faults begin at the edge, with the small memory."""
    shown, verdicts = [], []
    for place, found in _reaching(data, SMALL_MB).items():
        before, past = m.split(place, found)
        most = max(m.value(place, point, "major_faults") for point in before)
        least = min(m.value(place, point, "major_faults") for point in past)
        verdicts.append(least >= 10 * max(most, 1))
        shown.append(f"{place.name} {most:.0f} before, {least:,.0f} and more past it")
    reason = "Ten times as many past the edge as ever before it."
    return Judgement(", ".join(shown), all_hold(verdicts), reason)


def minor_faults(data: Data) -> Judgement:
    """Minor faults past the edge, with the small memory against the large one."""
    large = {place.kernel: each for place, each in data.of(LARGE_MB).items()}
    shown, verdicts = [], []
    for place, found in _reaching(data, SMALL_MB).items():
        _, past = m.split(place, found)
        last = past[-1]
        rich = {point.size: point for point in large[place.kernel].points if point.n} \
            if place.kernel in large else {}  # fmt: skip
        if last.size not in rich:
            raise Missing(f"{place.kernel}: {last.size} was not run with {LARGE_MB} MB")
        ratio = m.value(place, last, "minor_faults") / m.value(
            place, rich[last.size], "minor_faults"
        )
        verdicts.append(ratio >= TREMENDOUS)
        shown.append(f"{place.kernel} {significant(ratio, 3)}")
    reason = f"At the largest size at least {TREMENDOUS:g} times those of {LARGE_MB} MB."
    return Judgement(f"{', '.join(shown)} times", all_hold(verdicts), reason)


def same_minor_faults(data: Data, megabytes: int) -> Judgement:
    """Whether kernels with equal memory have the same minor faults, at sizes that all of them
    ran."""
    own = data.of(megabytes)
    faults = {
        place: {
            p.size: m.value(place, p, "minor_faults")
            for p in each.points
            if p.n and p.size >= PLATEAU
        }
        for place, each in own.items()
    }
    worst = max(
        (
            (max(a[size], b[size]) / max(min(a[size], b[size]), 1), size)
            for (one, a), (other, b) in combinations(faults.items(), 2)
            if one.is_emulated == other.is_emulated
            for size in a.keys() & b.keys()
        ),
        default=None,
    )
    if worst is None:
        raise Missing("no two kernels ran the same sizes on one machine")
    reason = f"Kernels may lie {STABLE:.0%} apart at every size from {PLATEAU} on."
    ours = f"up to {significant(worst[0], 3)} times (size {worst[1]})"
    return Judgement(ours, worst[0] <= 1 + STABLE, reason)


def dtlb(data: Data) -> Judgement:
    """The exponent of the size in dTLB misses, on the plateau."""
    shown, verdicts = [], []
    for place, points in _counting(data, "dtlb_misses").items():
        first, last = points[0], points[-1]
        grown = m.value(place, last, "dtlb_misses") / m.value(place, first, "dtlb_misses")
        exponent = math.log(grown) / math.log(last.size / first.size)
        verdicts.append(QUADRATIC[0] <= exponent <= QUADRATIC[1])
        shown.append(f"{place.name} {exponent:.1f}")
    low, high = QUADRATIC
    reason = f"From {PLATEAU} to the edge they have to grow by a power from {low} to {high}."
    return Judgement(f"exponents {', '.join(shown)}", all_hold(verdicts), reason)


def modelled_dtlb(data: Data) -> Judgement:
    """The exponent of the size in the modelled misses, over the larger half of the sizes."""
    found = some(data.modelled, "nothing was traced; --traced does it")
    sizes = sorted(found)
    first, last = sizes[len(sizes) // 2], sizes[-1]
    if first == last or not found[first].of_data:
        raise Missing("one size was traced, or none that misses")
    grown = found[last].of_data / found[first].of_data
    exponent = math.log(grown) / math.log(last / first)
    low, high = QUADRATIC
    reason = f"From {first} to {last} rows it has to be a power from {low} to {high}."
    return Judgement(f"exponent {exponent:.1f} (model)", low <= exponent <= high, reason)


def itlb(data: Data) -> Judgement:
    """iTLB misses against dTLB misses, on the plateau."""
    data_misses = _counting(data, "dtlb_misses")
    shown, verdicts = [], []
    for place, points in _counting(data, "itlb_misses").items():
        if place not in data_misses:
            continue
        last = points[-1]
        share = m.value(place, last, "itlb_misses") / m.value(place, last, "dtlb_misses")
        verdicts.append(share <= FEW)
        shown.append(f"{place.name} {100 * share:.2g}")
    if not shown:
        raise Missing(NO_TLB)
    reason = f"At most {FEW:.0%} of the data TLB's at the edge."
    return Judgement(f"{', '.join(shown)} % of the data TLB's", all_hold(verdicts), reason)


def modelled_itlb(data: Data) -> Judgement:
    """Modelled misses of instructions against those of data, at the largest size."""
    found = some(data.modelled, "nothing was traced; --traced does it")
    size = max(found)
    if not found[size].of_data:
        raise Missing("the size that was traced misses nothing")
    share = found[size].of_instructions / found[size].of_data
    ours = f"{100 * share:.2g} % of the data TLB's at {size} rows (model)"
    return Judgement(ours, share <= FEW, f"At most {FEW:.0%} of the data TLB's.")


def _counting(data: Data, quantity: str) -> Mapping[Place, Sequence[MemoryPoint]]:
    """The plateau of each place that counts misses and had some. Raises Missing without any
    place."""
    found = {}
    for place, each in data.found.items():
        edge = each.cliff.size if each.cliff else None
        points = [
            point for point in each.points
            if PLATEAU <= point.size <= (edge or point.size) and getattr(point, quantity)
        ]  # fmt: skip
        if len(points) > 1:
            found[place] = points
    return some(found, NO_TLB)


def _reaching(data: Data, megabytes: int) -> Mapping[Place, MemoryEnvironment]:
    """Places that ran matrices larger than their memory. Raises Missing without any."""
    found = {
        place: each for place, each in data.of(megabytes).items() if m.reaches(each, megabytes)
    }
    return some(found, f"no size was run that does not fit into {megabytes} MB")


RULES: tuple[Rule[Data], ...] = (
    Rule("dgemm-rises", "5.1, fig. 8", f"Performance rises to size {PLATEAU}", "4 Gflops", rises),
    Rule(
        "dgemm-stable", "5.1, fig. 8", "Then it stabilizes up to the edge", "for all kernels",
        stable,
    ),
    Rule(
        "threshold-size", "5.1, fig. 8", f"With {SMALL_MB} MB it falls past this size",
        f"{EDGE} rows, 219 MB", falls,
    ),
    Rule(
        "threshold-same", "5.1, fig. 8", "The threshold is the same for all kernels", "the same",
        same_edge,
    ),
    Rule("no-threshold", "5.1, fig. 8", f"With {LARGE_MB} MB it does not fall", "none", no_fall),
    Rule("kernel-code", "5.2, fig. 9", "A guest's kernel has the smallest code", "smallest", code),
    Rule(
        "kernel-data", "5.2, fig. 9", "A guest's kernel has half the native kernel's data",
        "0.52 of 1.05 MB", kernel_data,
    ),
    Rule("others", "5.2", "Resident sets of all other processes", "2.8 MB", others),
    Rule(
        "resident-stops", "5.2, fig. 10", f"With {SMALL_MB} MB the resident set grows no further",
        f"at {EDGE}", resident_stops,
    ),
    Rule(
        "resident-grows", "5.2, fig. 10", f"With {LARGE_MB} MB it grows with the need", "growing",
        resident_grows,
    ),
    Rule("swap", "5.3, fig. 11", f"With {SMALL_MB} MB swapping begins at the edge", f"{EDGE}",
         swaps),
    Rule("no-swap", "5.3, fig. 11", f"With {LARGE_MB} MB there is no swap activity", "none",
         no_swap),
    Rule("major-faults", "5.3, fig. 12", f"With {SMALL_MB} MB major faults begin there",
         f"{EDGE}", major_faults),
    Rule(
        "minor-faults", "5.3, fig. 13", f"With {SMALL_MB} MB minor faults grow past the edge",
        "tremendously", minor_faults,
    ),
    Rule(
        "minor-faults-same-small", "5.3, fig. 13",
        f"Kernels with {SMALL_MB} MB do not differ in minor faults", "no significant difference",
        partial(same_minor_faults, megabytes=SMALL_MB),
    ),
    Rule(
        "minor-faults-same-large", "5.3, fig. 13",
        f"Kernels with {LARGE_MB} MB do not differ in minor faults", "no significant difference",
        partial(same_minor_faults, megabytes=LARGE_MB),
    ),
    Rule(
        "dtlb", "5.4, fig. 14", "DTLB misses grow with the matrices, alike in all kernels",
        "3x²", dtlb,
    ),
    Rule(
        "dtlb-model", "5.4, fig. 14", "The same by the model, on a data TLB like the paper's",
        "3x²", modelled_dtlb,
    ),
    Rule(
        "itlb", "5.4, fig. 15", "ITLB misses are few where the driver does not swap", "minimal",
        itlb,
    ),
    Rule(
        "itlb-model", "5.4, fig. 15", "The same by the model, on an instruction TLB of the size "
        "that the paper states", "minimal", modelled_itlb,
    ),
)  # fmt: skip
