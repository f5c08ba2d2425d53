"""Measuring for the study: the campaigns of `vtax tune` and `vtax memory` in every place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from vtax import binaries, environments
from vtax.environments import Environment
from vtax.errors import VtaxError
from vtax.formats.folder import RunFolder
from vtax.formats.memory import MemoryRecord
from vtax.formats.tune import TuneRecord
from vtax.runner import memory as memory_runner
from vtax.runner import tune as tune_runner
from vtax.studies.atlas.data import Data, place
from vtax.studies.atlas.figures_tuning import FIGURES as TUNING
from vtax.studies.atlas.setup import FULL, PLACES, QUICK, TCG, Place, Plan, Tuning
from vtax.studies.counting import Counting
from vtax.studies.model import Options, Progress
from vtax.workloads.sized import SizedDgemm
from vtax.workloads.tuner import GENERATED, PEERS, Tuner
from vtax.workloads.variables import base_environment

RUN_TIMEOUT_S = 1800.0
MARGIN_PERCENT = 2.0
"""Within which performances are equivalent, as `vtax tune` has it by default."""


def measure(options: Options, progress: Progress) -> Data:
    """Figures 2 to 7 come from one campaign, 8 to 15 from another: only what is asked for runs.

    Raises VtaxError where nothing can be measured at all. A place that cannot be is left out with
    the reason; so is the emulated processor when its machines fail: it has campaigns of its own.
    """
    plan = QUICK if options.quick else FULL
    usable, left_out = _usable()
    shown = Counting(0, progress)
    memory, tuned = [], []
    for emulated in (False, True):
        own = {each: made for each, made in usable.items() if (each.kernel == TCG) is emulated}
        if not own:
            continue
        try:
            if options.figure not in TUNING:
                memory.append(_campaign(own, plan, emulated, options.seed, shown))
            if options.figure is None or options.figure in TUNING:
                kept = plan.emulated_tuning if emulated else plan.tuning
                some = {each: own[each] for each in own if each.megabytes in plan.tuned_megabytes}
                tuned.append(_tuned(some, kept, options.seed, shown))
        except VtaxError as error:
            left_out |= dict.fromkeys(own, str(error))
    if not memory and not tuned:
        raise VtaxError(
            f"nothing could be measured: {next(iter(left_out.values()))}", "run 'vtax doctor'"
        )
    return Data(
        {place(each.spec): each for record in memory for each in record.environments},
        [each for record in memory for each in record.differences],
        {place(each.spec): each for record in tuned for each in record.environments},
        [each for record in tuned for each in record.equivalence],
        left_out,
    )


def _usable() -> tuple[dict[Place, Environment], dict[Place, str]]:
    usable, left_out = {}, {}
    for each in PLACES:
        try:
            environment = environments.build(each.spec)
            environment.check()
            usable[each] = environment
        except VtaxError as error:
            left_out[each] = str(error)
    return usable, left_out


def _campaign(
    own: Mapping[Place, Environment], plan: Plan, emulated: bool, seed: int, shown: Counting
) -> MemoryRecord:
    sizes = plan.emulated_sizes if emulated else plan.sizes
    runs = plan.emulated_runs if emulated else plan.runs
    settings = memory_runner.Settings(
        environments={each.spec: environment for each, environment in own.items()},
        program=SizedDgemm(),
        sizes=sizes,
        runs=runs,
        seed=seed,
        variables=_variables(),
        command_line=(),
        timeout_s=RUN_TIMEOUT_S,
    )
    shown.extended(len(own) * len(sizes) * runs)
    with tempfile.TemporaryDirectory(prefix="vtax-atlas-") as folder:
        kept = RunFolder.create(Path(folder), "memory")
        record = memory_runner.Campaign(settings, kept, shown).run()
    if record.state == "interrupted":
        raise KeyboardInterrupt
    return record


def _tuned(
    own: Mapping[Place, Environment], tuning: Tuning, seed: int, shown: Counting
) -> TuneRecord:
    settings = tune_runner.Settings(
        environments={each.spec: environment for each, environment in own.items()},
        tuner=Tuner(
            tuning.budget_s, "lines", "d", 1, tuning.size, tuning.edge_size, tuning.edge_runs
        ),
        rounds=tuning.rounds,
        margin_percent=MARGIN_PERCENT,
        seed=seed,
        variables=_variables(),
        command_line=(),
        peers=PEERS,
        generated=GENERATED,
        cache_edge=True,
        fresh=True,
    )
    shown.extended(len(own) * (1 + len(PEERS)))
    with tempfile.TemporaryDirectory(prefix="vtax-atlas-") as folder:
        record = tune_runner.Campaign(settings, RunFolder.create(Path(folder), "tune"), shown).run()
    if record.state == "interrupted":
        raise KeyboardInterrupt
    return record


def _variables() -> dict[str, str]:
    found = dict(base_environment(os.environ, keep_env=False))
    return found | {"PATH": binaries.on_path(found)}
