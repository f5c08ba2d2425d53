"""Measuring for the study: the campaigns of `vtax tune` and `vtax memory` in every place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vtax import binaries, environments
from vtax.environments import Environment
from vtax.errors import VtaxError
from vtax.formats.folder import RunFolder
from vtax.formats.memory import MemoryRecord
from vtax.formats.tune import TuneRecord
from vtax.runner.memory import MemoryCampaign, MemoryRequest
from vtax.runner.tune import TuneCampaign, TuneRequest
from vtax.studies.atlas.data import Data, place
from vtax.studies.atlas.figures_tuning import FIGURES as TUNING
from vtax.studies.atlas.setup import FULL, PLACES, QUICK, TCG, AtlasPlan, Place
from vtax.studies.campaigns import carried_out, run_folders
from vtax.studies.counting import Counting
from vtax.studies.model import Progress, StudyOptions
from vtax.workloads.sized import SizedDgemm
from vtax.workloads.tuner import GENERATED, PEERS, Tuner
from vtax.workloads.variables import base_environment

RUN_TIMEOUT_S = 1800.0
MARGIN_PERCENT = 2.0
"""The margin within which performances are equivalent, the default of `vtax tune`."""


def measure(options: StudyOptions, progress: Progress) -> Data:
    """Figures 2 to 7 come from one campaign, 8 to 15 from another: only what is asked for runs.

    Raises VtaxError where nothing can be measured at all. A place that cannot be measured is left
    out with the reason. So is the emulated processor when its machines fail: it has campaigns of
    its own.
    """
    usable, left_out = _usable()
    memory, tuned = [], []
    with run_folders(options.folder) as folder:
        plan = QUICK if options.quick else FULL
        campaigns = _Campaigns(plan, options.seed, folder, Counting(0, progress))
        for emulated in (False, True):
            own = {each: made for each, made in usable.items() if (each.kernel == TCG) is emulated}
            try:
                if own and options.figure not in TUNING:
                    memory.append(campaigns.memory(own, emulated=emulated))
                if own and (options.figure is None or options.figure in TUNING):
                    tuned.append(campaigns.tuning(own, emulated=emulated))
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


@dataclass(frozen=True, slots=True)
class _Campaigns:
    """What all campaigns share."""

    plan: AtlasPlan
    seed: int
    folder: Path
    shown: Counting

    def memory(self, own: Mapping[Place, Environment], *, emulated: bool) -> MemoryRecord:
        sizes = self.plan.emulated_sizes if emulated else self.plan.sizes
        runs = self.plan.emulated_runs if emulated else self.plan.runs
        request = MemoryRequest(
            environments={each.spec: environment for each, environment in own.items()},
            program=SizedDgemm(),
            sizes=sizes,
            runs=runs,
            seed=self.seed,
            variables=_variables(),
            command_line=(),
            timeout_s=RUN_TIMEOUT_S,
        )
        kept = RunFolder.create(self.folder, "memory")
        return carried_out(MemoryCampaign(request, kept, self.shown))

    def tuning(self, own: Mapping[Place, Environment], *, emulated: bool) -> TuneRecord:
        by = self.plan.emulated_tuning if emulated else self.plan.tuning
        environments = {
            each.spec: environment
            for each, environment in own.items()
            if each.megabytes in self.plan.tuned_megabytes
        }
        request = TuneRequest(
            environments=environments,
            tuner=Tuner(by.budget_s, "lines", "d", 1, by.size, by.edge_size, by.edge_runs),
            rounds=by.rounds,
            margin_percent=MARGIN_PERCENT,
            seed=self.seed,
            variables=_variables(),
            command_line=(),
            peers=PEERS,
            generated=GENERATED,
            cache_edge=True,
            fresh=True,
        )
        kept = RunFolder.create(self.folder, "tune")
        return carried_out(TuneCampaign(request, kept, self.shown))


def _variables() -> dict[str, str]:
    found = dict(base_environment(os.environ))
    return found | {"PATH": binaries.on_path(found)}
