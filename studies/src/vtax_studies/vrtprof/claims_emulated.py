"""What the emulated machine adds to the claims.

Its counters are those of QEMU's emulated PMU: instructions and cycles. Every text says *emulated*.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from vtax.core.page.format import signed, significant
from vtax.core.recorder.intervals import CPI
from vtax.core.recorder.ways import Axis, Per
from vtax_studies.model import Basis
from vtax_studies.rule import Judgement, Rule, below
from vtax_studies.vrtprof import data as m
from vtax_studies.vrtprof.data import Data, has
from vtax_studies.vrtprof.judgements import apart, each_below, judge_phases
from vtax_studies.vrtprof.setup import (
    EMULATED,
    EMULATED_LOWEST,
    EMULATED_PRACTICAL,
    EMULATED_SETTINGS,
    FLAT,
    PAPER_OVERHEADS,
    PHASE_EVENTS,
    PHASED,
    Setting,
)

EMULATED_PHASE_EVENTS = (*PHASE_EVENTS, "hw.instructions.kernel")
"""In the emulated machine cycles go with instructions, so only the kernel's share tells phases
apart."""
CONSTANT = 1.05
"""If rows differ by less than this factor in a ratio, the ratio is constant."""
_NO_TIME = (
    "Instructions, emulated, which are not time: what recording costs by cache misses and flushed "
    "pipelines is not in them."
)


def mean_overhead(setting: Setting, limit: float, data: Data) -> Judgement:
    """The mean overhead over the workloads at one interval, in instructions."""
    found = m.emulated_overheads(data, setting.every)
    value, noise = m.mean(found), m.noise(found)
    reason = f"{_NO_TIME} Holds below {limit:g} %"
    if _repetitions(data) < 2:
        return Judgement(f"{signed(value, 3)} %", None, f"{reason}. {_ONE}")
    reason += (
        ", fails above, and cannot be judged within "
        f"±{significant(noise, 2)} points of it, the mean of half the workloads' ranges."
    )
    return Judgement(f"{signed(value, 3)} %", below(value, noise, limit), reason)


def every_overhead(data: Data) -> Judgement:
    """The overhead of each workload at the paper's interval, in instructions."""
    limit = max(PAPER_OVERHEADS.values())
    found = m.emulated_overheads(data, EMULATED_PRACTICAL.every)
    words = f"{_NO_TIME} Each has to be below {limit:g} % by more than half its range."
    return _unless_one(each_below(found, limit, words), data)


def circumstances(data: Data) -> Judgement:
    """How far the instructions of each workload are apart in the paper's three circumstances."""
    lowest, practical = (
        m.emulated_overheads(data, each.every) for each in (EMULATED_LOWEST, EMULATED_PRACTICAL)
    )
    return _unless_one(apart(lowest, practical, _NO_TIME.removesuffix(".")), data)


def _unless_one(judged: Judgement, data: Data) -> Judgement:
    if _repetitions(data) > 1:
        return judged
    return Judgement(judged.ours, None, f"{_NO_TIME} {_ONE}")


_ONE = "The noise of one repetition is not known."


def _repetitions(data: Data) -> int:
    return data.emulated["repetition"].n_unique()


def phased(workload: str, several: bool, data: Data) -> Judgement:
    """The number of phases that a workload has along its instructions."""
    recordings = data.labelled(workload, [EMULATED])
    names = data.measured(recordings, EMULATED_PHASE_EVENTS)
    counts = m.phase_counts(recordings, names, Per.GIGA_INSTRUCTION, Axis.INSTRUCTIONS)
    return judge_phases(counts, several, f"Each emulated run of {workload}", names)


def cpi(data: Data) -> Judgement | None:
    """Why the machine's cycles judge nothing; None where they were not recorded."""
    name = f"{CPI}.kernel"
    rows = [
        one.frame[name]
        for each in data.recordings.get(EMULATED, {}).values()
        for one in each
        if has(one, name)
    ]
    if not rows:
        return None
    values = pl.concat(rows).drop_nulls()
    low, high = (float(str(end)) for end in (values.min(), values.max()))
    between = f"between {significant(low, 4)} and {significant(high, 4)}"
    reason = (
        "No cycles are counted natively. The emulated machine counts them with the instructions; "
        f"the kernel's ratio is {between}. "
    )
    if high <= CONSTANT * low:
        reason += (
            "Its emulator gives each instruction the same time, and counters are read one after "
            "the other: nothing can go with that. "
        )
    return Judgement(f"emulated: {between}", None, f"{reason}No guest runs there to compare with.")


def nor_there(data: Data, name: str) -> str:
    """The end of a reason for events that the emulated machine lacks too."""
    recorded = [one for each in data.recordings.get(EMULATED, {}).values() for one in each]
    if not recorded or data.measured(recorded, [name]):
        return ""
    return "; nor has the emulated arm64 machine"


OVERHEADS = (
    Rule(
        "overhead-paper-interval-emulated",
        "IV-B, table IV",
        "Recording at the practical setting costs this much on average, in instructions, emulated",
        "1.34 % (1.2 % in the abstract)",
        partial(mean_overhead, EMULATED_PRACTICAL, 1.34),
        Basis.EMULATION,
    ),
    Rule(
        "overhead-finest-emulated",
        "IV-B, table IV",
        "The same at rows of 2 million instructions, 25 times finer, emulated",
        "1.34 %",
        partial(mean_overhead, EMULATED_SETTINGS[-1], 1.34),
        Basis.EMULATION,
    ),
    Rule(
        "overhead-each-emulated",
        "IV-B, table IV",
        "No benchmark is slowed down by more than the slowest, in instructions, emulated",
        "2.59 % (Pseudo JBB)",
        every_overhead,
        Basis.EMULATION,
    ),
    Rule(
        "overhead-circumstances-emulated",
        "IV-B",
        "Unloaded, at the lowest rate and at the practical one, a benchmark takes as many "
        "instructions, emulated",
        "within 1-2 % of each other",
        circumstances,
        Basis.EMULATION,
    ),
)
PHASES = (
    Rule(
        "phased-emulated",
        "IV-D, fig. 5",
        "One benchmark (here compiler-like) shows phases along its instructions, emulated",
        "clear pseudo-regular pattern",
        partial(phased, PHASED, True),
        Basis.EMULATION,
    ),
    Rule(
        "flat-emulated",
        "IV-D, fig. 6",
        "Another (here gups) is flat along its instructions, emulated",
        "a single phase",
        partial(phased, FLAT, False),
        Basis.EMULATION,
    ),
)
