"""The simulated data, and the numbers that claims and figures share: pure functions of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby

import polars as pl

from vtax_studies.dav2m.setup import FOCUS, GROUPS, INDIFFERENT_PERCENT, MACHINE, SURVEYED, Arrow
from vtax_studies.model import StudyData
from vtax_studies.rule import Absent, Missing


def _none() -> pl.DataFrame:
    return pl.DataFrame()


@dataclass(frozen=True, eq=False)
class Data(StudyData):
    """One frame for each kind of simulation; an empty frame stands for one that was not run.

    All cycles are modelled. Rows of `modes`, `windows`, `exits` and `switches` are those of
    `vtax.paging.simulate` with the columns `machine` and `benchmark` before them.
    """

    modes: pl.DataFrame = field(default_factory=_none)
    windows: pl.DataFrame = field(default_factory=_none)
    exits: pl.DataFrame = field(default_factory=_none)
    switches: pl.DataFrame = field(default_factory=_none)
    states: pl.DataFrame = field(default_factory=_none)
    """The states of policies: machine, benchmark, mode, instructions before it, state."""
    arrows: pl.DataFrame = field(default_factory=_none)
    """DAV2M's transitions: number, origin, to, condition, action."""
    pages: pl.DataFrame = field(default_factory=_none)
    """Native runs: benchmark, page, instructions, cycles, l2_tlb_misses."""
    locality: pl.DataFrame = field(default_factory=_none)
    """benchmark, page, region, references."""
    entries: pl.DataFrame = field(default_factory=_none)
    """benchmark, page, what (`misses`, `reads`), entries, and the percent of the busiest entries
    that cover 80 % of it (`covering_percent`): of page-table entries in a native run."""
    kinds: pl.DataFrame = field(default_factory=_none)
    """Native runs of traced programs of the benchmarks' kind: benchmark, page, instructions,
    l2_tlb_misses, cycles_base, cycles_tlb, cycles_walks."""
    timed: pl.DataFrame = field(default_factory=_none)
    """The same programs on this machine: benchmark, page, round, seconds."""
    transitions: pl.DataFrame = field(default_factory=_none)
    """benchmark, phase, direction, milliseconds since the switch, excess_ms (cumulative)."""
    sensitivity: pl.DataFrame = field(default_factory=_none)
    """benchmark, exit_factor, tlb_factor, mode, cycles."""
    choices: pl.DataFrame = field(default_factory=_none)
    """benchmark, parameter, setting (empty: all defaults), switches, overhead_percent."""
    walks: pl.DataFrame = field(default_factory=_none)
    """guest_levels, host_levels, references_per_walk without any cache."""

    machines: pl.DataFrame = field(default_factory=_none)
    """machine, title, clock_hz, exit_cycles, policy_cycles: the presets' own values."""

    programs: tuple[str, ...] | None = field(default=None, kw_only=True)
    """The programs whose traces were simulated; None: the data are of synthetic profiles."""
    traced: Data | None = field(default=None, kw_only=True)
    """The same of traced programs, where they are wanted."""

    @property
    def focus(self) -> tuple[str, ...]:
        """The benchmarks, or programs, that every mode is compared on."""
        return FOCUS if self.programs is None else self.programs

    @property
    def surveyed(self) -> tuple[str, ...]:
        """The benchmarks, or programs, that have runs with both page sizes."""
        return SURVEYED if self.programs is None else self.programs

    def frames(self) -> dict[str, pl.DataFrame]:
        """The frames that were simulated, by name; those of traces are `traced_NAME`."""
        named = {name: getattr(self, name) for name in frame_names()}
        found = {name: frame for name, frame in named.items() if not frame.is_empty()}
        others = self.traced.frames() if self.traced else {}
        return found | {f"traced_{name}": frame for name, frame in others.items()}

    def second(self) -> Data | None:
        return self.traced


def frame_names() -> list[str]:
    """The names of the frames."""
    return [item.name for item in fields(Data) if not item.kw_only]


def need(frame: pl.DataFrame, what: str) -> pl.DataFrame:
    """The frame, or `Missing` when it holds nothing."""
    if frame.is_empty():
        raise Missing(f"not simulated: {what}")
    return frame


def present(data: Data, *names: str) -> None:
    """Raise Absent where these are traced programs and one of the names is not among them."""
    if data.programs is None or not (absent := [n for n in names if n not in data.programs]):
        return
    verb = "is" if len(absent) == 1 else "are"
    spec = f"SPEC's {', '.join(absent)} {verb} not free"
    raise Absent(data.left_out.get(absent[0], spec))


STATIC = ("shadow", "nested")


def mode_rows(data: Data, machine: str, benchmark: str) -> dict[str, dict[str, object]]:
    """The totals of each mode of one run.

    Raises Missing when the data lack this run.
    """
    present(data, benchmark)
    frame = need(data.modes, "the focused benchmarks under every mode")
    rows = frame.filter(machine=machine, benchmark=benchmark).to_dicts()
    if not rows:
        raise Missing(f"not simulated: {benchmark} on {machine}")
    return {row["mode"]: row for row in rows}


def cycles(data: Data, machine: str, benchmark: str) -> dict[str, float]:
    """Modelled cycles of each mode of one run."""
    rows = mode_rows(data, machine, benchmark)
    return {mode: float(str(row["cycles"])) for mode, row in rows.items()}


def number(data: Data, machine: str, benchmark: str, mode: str, column: str) -> float:
    """A total of one mode.

    Raises Missing when the data lack it.
    """
    row = mode_rows(data, machine, benchmark).get(mode)
    if row is None or row.get(column) is None:
        raise Missing(f"not simulated: {column} of {benchmark} under {mode} on {machine}")
    return float(str(row[column]))


def overhead(data: Data, machine: str, benchmark: str, mode: str) -> float:
    """Cycles beyond native, in percent of native.

    Raises Missing when the data lack them.
    """
    found = cycles(data, machine, benchmark)
    for needed in ("native", mode):
        if needed not in found:
            raise Missing(f"not simulated: {benchmark} under {needed} on {machine}")
    return 100 * (found[mode] / found["native"] - 1)


def over_best_static(data: Data, machine: str, benchmark: str, mode: str) -> float:
    """Cycles of `mode` beyond those of the better of shadow and nested, in percent of the
    latter."""
    return over_best(cycles(data, machine, benchmark), mode)


def over_best(found: dict[str, float], mode: str) -> float:
    """The result of `over_best_static`, from the cycles of each mode.

    Raises Missing when the data lack a static mode.
    """
    if any(needed not in found for needed in (*STATIC, mode)):
        raise Missing(f"not simulated: {mode} beside both static modes")
    best = min(found[static] for static in STATIC)
    return 100 * (found[mode] / best - 1)


def preference(found: dict[str, float], margin: float = INDIFFERENT_PERCENT) -> str:
    """`shadow`, `nested` or `indifferent`: the mode whose cycles the other exceeds by over `margin`
    %.

    Raises Missing when the data lack what it needs.
    """
    if any(needed not in found for needed in STATIC):
        raise Missing("not simulated: both static modes")
    better, worse = sorted(STATIC, key=lambda mode: found[mode])
    return better if found[worse] > found[better] * (1 + margin / 100) else "indifferent"


def groups(data: Data) -> Mapping[str, Sequence[str]]:
    """The benchmarks for which each mode is best: the paper's groups, or by traced cycles.

    Raises Missing when the data lack what it needs.
    """
    if data.programs is None:
        return GROUPS
    found = {name: preference(cycles(data, MACHINE, name)) for name in data.programs}
    return {best: tuple(name for name in found if found[name] == best) for best in GROUPS}


def sampling_error(data: Data, machine: str, benchmark: str, modes: Iterable[str]) -> float:
    """Half-width of the interval of a ratio of two modes' cycles, in percent.

    It treats their errors as independent. They are not, because both follow the same references, so
    this is an upper bound.
    """
    rows = mode_rows(data, machine, benchmark)
    found = (rows.get(mode, {}).get("relative_error_percent") for mode in modes)
    return math.hypot(*(float(str(error)) for error in found if error is not None))


def windows(data: Data, benchmark: str, mode: str, machine: str = MACHINE) -> pl.DataFrame:
    """The windows of one mode of one run, in order, with rates per 1e9 instructions.

    Raises Missing when the data lack what it needs.
    """
    present(data, benchmark)
    frame = need(data.windows, "windows of the focused benchmarks")
    rows = frame.filter(machine=machine, benchmark=benchmark, mode=mode).sort("window")
    if rows.is_empty():
        raise Missing(f"not simulated: windows of {benchmark} under {mode} on {machine}")
    per_billion = 1e9 / pl.col("instructions")
    return rows.with_columns(
        end=pl.col("instructions").cum_sum(),
        exit_rate=paging_exits(rows) * per_billion,
        miss_rate=pl.col("l2_tlb_misses") * per_billion,
    )


NOT_SHADOW_PAGING = ("exits_nested_fault", "exits_policy", "exits_other")
"""Exits that DAV2M does not count in `count_vexit`: shadow paging does not cause them."""


def states(data: Data, benchmark: str, machine: str = MACHINE) -> pl.DataFrame:
    """DAV2M's states in one run, in order. Raises Missing when the data lack the run."""
    present(data, benchmark)
    frame = need(data.states, "DAV2M's states")
    rows = frame.filter(machine=machine, benchmark=benchmark, mode="dav2m")
    return need(rows, f"states of {benchmark} on {machine}").sort("instructions")


def arrows(data: Data) -> list[Arrow]:
    """The transitions of figure 7. Raises Missing when the data lack them."""
    return [Arrow(**row) for row in need(data.arrows, "DAV2M's transitions").to_dicts()]


def with_traced(data: Data) -> Sequence[Data]:
    """The data, and those of traced programs where there are some."""
    return [data] if data.traced is None else [data, data.traced]


def paging_exits(frame: pl.DataFrame) -> pl.Expr:
    """Exits that shadow paging causes."""
    causes = [name for name in frame.columns if name.startswith("exits_")]
    return pl.sum_horizontal([pl.col(c) for c in causes if c not in NOT_SHADOW_PAGING])


def bursts(rates: Sequence[float]) -> int:
    """How often the rate rises above the middle of its range after having been below."""
    if not rates or max(rates) <= 2 * min(rates):
        return 0
    middle = (max(rates) + min(rates)) / 2
    return sum(high for high, _ in groupby(rate > middle for rate in rates))


def correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Pearson's r; raises `Missing` when one of the two does not vary."""
    import numpy as np

    if len(left) < 3 or np.std(left) == 0 or np.std(right) == 0:
        raise Missing("one of both rates does not vary")
    return float(np.corrcoef(left, right)[0, 1])


def time_share(data: Data, benchmark: str, paging: str, machine: str = MACHINE) -> float:
    """Share of DAV2M's cycles spent in windows that end in the mode `paging`, in percent."""
    rows = windows(data, benchmark, "dav2m", machine)
    spent = rows.filter(paging=paging)["cycles"].sum()
    return 100 * float(spent) / float(rows["cycles"].sum())


def top_share(references: Sequence[float], part: float = 0.2) -> float:
    """Share of the references that the busiest `part` of the regions gets, in percent.

    Raises Missing when the data lack what it needs.
    """
    ordered = sorted(references, reverse=True)
    total = sum(ordered)
    if total <= 0:
        raise Missing("no references were counted")
    exact = part * len(ordered)
    whole = int(exact)
    rest = ordered[whole] * (exact - whole) if whole < len(ordered) else 0.0
    return 100 * (sum(ordered[:whole]) + rest) / total


COVERED_PERCENT = 80.0


def covering_share(counts: Sequence[float]) -> float:
    """Percent of the busiest that have `COVERED_PERCENT` of all; part of one counts in part.

    Raises Missing when nothing was counted.
    """
    xs, ys = cumulative_share(counts)
    at = next(index for index, y in enumerate(ys) if y >= COVERED_PERCENT - 1e-9)
    part = (COVERED_PERCENT - ys[at - 1]) / (ys[at] - ys[at - 1])
    return xs[at - 1] + part * (xs[at] - xs[at - 1])


def covering_entries(data: Data, benchmark: str, page: str, what: str) -> tuple[float, float]:
    """How many page-table entries have misses, or are read, and the percent of them that covers
    80 %.

    Raises Missing when the data lack it.
    """
    present(data, benchmark)
    if data.entries.is_empty():
        raise Missing("page-table entries are counted on traces only")
    rows = data.entries.filter(benchmark=benchmark, page=page, what=what).to_dicts()
    if not rows:
        raise Missing(f"not traced: page-table entries of {benchmark} with {page} pages")
    return float(rows[0]["entries"]), float(rows[0]["covering_percent"])


def cumulative_share(references: Sequence[float]) -> tuple[list[float], list[float]]:
    """Share of regions (busiest first) against share of references, both in percent, from 0.

    Raises Missing when the data lack what it needs.
    """
    ordered = sorted(references, reverse=True)
    total = sum(ordered)
    if total <= 0:
        raise Missing("no references were counted")
    xs, ys, so_far = [0.0], [0.0], 0.0
    for at, count in enumerate(ordered, 1):
        so_far += count
        xs.append(100 * at / len(ordered))
        ys.append(100 * so_far / total)
    return xs, ys


def large_page_gain(data: Data, benchmark: str) -> float:
    """How many percent shorter the run with large pages is, by the cycles of the 4K run."""
    small, large = (native_cycles(data, benchmark, page) for page in ("4K", "2M"))
    return 100 * (1 - large / small)


def native_cycles(data: Data, benchmark: str, page: str) -> float:
    """Modelled cycles of a native run."""
    return _page_number(data, benchmark, page, "cycles")


def native_miss_rate(data: Data, benchmark: str, page: str) -> float:
    """TLB misses (of both levels) of a native run per 1e9 instructions."""
    misses = _page_number(data, benchmark, page, "l2_tlb_misses")
    return 1e9 * misses / _page_number(data, benchmark, page, "instructions")


def _page_number(data: Data, benchmark: str, page: str, column: str) -> float:
    present(data, benchmark)
    frame = need(data.pages, "native runs with small and large pages")
    found = frame.filter(benchmark=benchmark, page=page)[column].to_list()
    if not found:
        raise Missing(f"not simulated: {benchmark} natively with {page} pages")
    return float(found[0])


def regions(data: Data, benchmark: str, page: str) -> list[float]:
    """References to each PDE region that was touched.

    Raises Missing when the data lack what it needs.
    """
    present(data, benchmark)
    frame = need(data.locality, "references per page-table region")
    found = frame.filter(benchmark=benchmark, page=page)["references"].to_list()
    if not found:
        raise Missing(f"not simulated: regions of {benchmark}")
    return [float(count) for count in found]


def transition_cost(data: Data, benchmark: str, direction: str) -> float:
    """What the most expensive switch costs until its transients are over, in ms.

    Raises Missing when the data lack what it needs.
    """
    present(data, benchmark)
    frame = need(data.transitions, "scripted switches")
    found = frame.filter(benchmark=benchmark, direction=direction)
    if found.is_empty():
        raise Missing(f"not simulated: {direction} switches of {benchmark}")
    last = found.sort("milliseconds").group_by("phase").last()
    return float(str(last["excess_ms"].max()))
