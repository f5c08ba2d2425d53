"""Recording in an emulated arm64 machine, which has the hardware counters that this one may lack.

Its clock counts instructions, so the cost of recording is exact, and in instructions instead of
time. One run of each workload and setting serves both as a recording and for the overhead: to start
the recorder costs an emulated CPU as much as the workload.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.recorder.intervals import Recording, load
from vtax.core.recorder.options import RecordOptions
from vtax.core.runner.instruments.record import Recording as Recorded
from vtax.core.runner.runner import Done, Variant
from vtax.environments import Environment
from vtax.workloads.base import Command
from vtax_studies.measuring import Counting
from vtax_studies.vrtprof.runs import (
    BARE,
    Found,
    by_work,
    command,
    counted,
    interleaved,
    prepared,
    rows_of,
    run,
)
from vtax_studies.vrtprof.setup import (
    EMULATED,
    EMULATED_EVENTS,
    EMULATED_SETTINGS,
    ICOUNT,
    VrtprofPlan,
    Work,
)

FIGURES = ("5", "6", "7", "overhead")
"""The study's figures to which this machine contributes."""
SPEC = f"qemu-arm64:icount={ICOUNT}"


def builtin(plan: VrtprofPlan) -> list[Work]:
    """The workloads that it can run: it has none of this machine's programs."""
    return [work for work in plan.workloads if not work.line]


def steps(plan: VrtprofPlan) -> int:
    """How many runs the measurement takes."""
    return len(builtin(plan)) * plan.repetitions * (len(EMULATED_SETTINGS) + 1)


def measure(plan: VrtprofPlan, seed: int, folder: Path, found: Found, shown: Counting) -> None:
    """Measure in the emulated machine; where it cannot be made, it is left out with the reason."""
    own: dict[str, list[Recording]] = {}
    works: dict[str, str] = {}

    def keep(done: Done) -> None:
        row = rows_of(done, works)
        found.emulated.append({**row, "instructions": instructions(done)})
        if done.step.variant == EMULATED_SETTINGS[-1].every:
            own.setdefault(row["workload"], []).append(load(done.step.out, EMULATED))

    try:
        environment, work_folder = prepared(SPEC, folder, "emulated")
        made, names = interleaved(
            [BARE, *(each.every for each in EMULATED_SETTINGS)],
            _commands(environment, plan),
            plan.repetitions,
            f"{seed} {EMULATED}",
            folder / "emulated",
        )
        works |= names
        run(_variants(environment, work_folder), made, keep, shown, warm_up=True)
    except VtaxError as error:
        found.left_out[EMULATED] = str(error)
    if own:
        found.recordings[EMULATED] = by_work(builtin(plan), own)


def _commands(environment: Environment, plan: VrtprofPlan) -> Mapping[str, Command]:
    """One copy of each workload, with a fixed count, because its clock does not follow this
    machine's."""
    return {
        work.name: command(environment, work, counted(work.emulated, plan.share), 1)
        for work in builtin(plan)
    }


def _variants(environment: Environment, work: Path) -> list[Variant]:
    """The variants; the recorder is in the machine, on the CPU that it records."""
    recorded = {
        each.every: Recorded(
            RecordOptions.of(every=each.every, events=EMULATED_EVENTS), by_guest=True
        )
        for each in EMULATED_SETTINGS
    }
    variants = [Variant(BARE, environment, work)]
    return variants + [Variant(name, environment, work, (one,)) for name, one in recorded.items()]


def instructions(done: Done) -> float:
    """The instructions that the machine executed during the workload's operations, including the
    recorder's.

    They come from the workload's time by the machine's clock. So they exclude what the recorder
    does before it starts the workload (some 300 million instructions), and what the workload
    prepares and checks. Raises VtaxError when the workload did not report its time.
    """
    printed = done.repetition.exchange.read_text("stdout")
    try:
        wall_s = float(foreign_json.parse_object(printed)["wall_s"])
    except (ValueError, KeyError, TypeError):
        raise VtaxError(f"{done.step.folder} did not print its result") from None
    return wall_s * 1e9 / (1 << ICOUNT)
