"""Measuring for the study: the campaigns of `vtax tune` and `vtax memory` in every place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vtax.core.errors import MisuseError, VtaxError
from vtax.environments import Environment
from vtax.memory.campaign import MemoryCampaign, MemoryRequest
from vtax.memory.record import MemoryRecord
from vtax.memory.sized import SizedDgemm
from vtax.tune.campaign import TuneCampaign, TuneRequest
from vtax.tune.record import TuneRecord
from vtax.tune.tuner import GENERATED, PEERS, Tuner
from vtax_studies import roles
from vtax_studies.atlas.data import Data, TlbMisses, place
from vtax_studies.atlas.figures_tuning import FIGURES as TUNING
from vtax_studies.atlas.setup import (
    ENVIRONMENTS,
    FULL,
    KVM,
    NATIVE,
    PLACES,
    QUICK,
    AtlasPlan,
    Place,
    Tuning,
)
from vtax_studies.atlas.traced import tlb_misses
from vtax_studies.measuring import (
    Counting,
    carried_out,
    nothing_measured,
    run_folders,
    usable,
    variables,
)
from vtax_studies.model import Progress, StudyOptions

RUN_TIMEOUT_S = 1800.0
MARGIN_PERCENT = 2.0
"""The margin within which performances are equivalent, the default of `vtax tune`."""


def measure(options: StudyOptions, progress: Progress) -> Data:
    """Figures 2 to 7 come from one campaign, 8 to 15 from another: only what is asked for runs.

    Raises VtaxError where nothing can be measured at all. A place that cannot be measured is left
    out with the reason. So is the emulated processor when its machines fail: it has campaigns of
    its own. Raises MisuseError for a name in `options.only` that is no environment of the study.
    """
    if unknown := set(options.only) - set(ENVIRONMENTS):
        raise MisuseError(
            f"--only {min(unknown)}: it is no environment of the study",
            f"choose of {', '.join(ENVIRONMENTS)}",
        )
    plan = QUICK if options.quick else FULL
    left_out: dict[Place, str] = {}
    found = usable({each: each.spec for each in _places(plan, options.only)}, left_out)
    memory, tuned, single = [], [], []
    with run_folders(options.folder) as folder:
        campaigns = _Campaigns(plan, options.seed, folder, Counting(0, progress))
        for emulated in (False, True):
            own = {each: made for each, made in found.items() if each.is_emulated is emulated}
            try:
                if own and options.figure not in TUNING:
                    memory.append(campaigns.memory(own, emulated=emulated))
                if own and (options.figure is None or options.figure in TUNING):
                    tuned.append(campaigns.tuning(own, emulated=emulated))
                alone = {each: made for each, made in own.items() if each.kernel == NATIVE}
                if alone and options.figure in (None, "6"):
                    single.append(campaigns.single(alone))
            except VtaxError as error:
                left_out |= dict.fromkeys(own, str(error))
    modelled: Mapping[int, TlbMisses] = {}
    if options.traced and options.figure in (None, "14", "15"):
        modelled = tlb_misses(plan.traced_sizes, progress)
    if not memory and not tuned and not modelled:
        raise nothing_measured(left_out)
    return Data(
        {place(each.spec): each for record in memory for each in record.environments},
        [each for record in memory for each in record.differences],
        {place(each.spec): each for record in tuned for each in record.environments},
        [each for record in tuned for each in record.equivalence],
        {place(each.spec): each for record in single for each in record.environments},
        modelled,
        left_out={each.name: reason for each, reason in left_out.items()},
    )


def _places(plan: AtlasPlan, only: Sequence[str]) -> Iterator[Place]:
    for each in PLACES:
        small_enough = not each.is_emulated or each.megabytes in plan.emulated_megabytes
        there = each.kernel != KVM or roles.KVM in roles.here().has
        if there and small_enough and each.environment in (only or ENVIRONMENTS):
            yield each


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
            program=SizedDgemm(self.plan.emulated_columns if emulated else None),
            sizes=sizes,
            runs=runs,
            seed=self.seed,
            variables=variables(),
            command_line=(),
            timeout_s=RUN_TIMEOUT_S,
        )
        return carried_out(MemoryCampaign, request, self.folder, "memory", self.shown)

    def tuning(self, own: Mapping[Place, Environment], *, emulated: bool) -> TuneRecord:
        by = self.plan.emulated_tuning if emulated else self.plan.tuning
        return self._tuned(own, by, "d", "tune", cache_edge=True)

    def single(self, own: Mapping[Place, Environment]) -> TuneRecord:
        """The product in single precision, beside libraries."""
        return self._tuned(own, self.plan.tuning, "s", "tune-single", cache_edge=False)

    def _tuned(
        self,
        own: Mapping[Place, Environment],
        by: Tuning,
        precision: Literal["d", "s"],
        name: str,
        *,
        cache_edge: bool,
    ) -> TuneRecord:
        environments = {
            each.spec: environment
            for each, environment in own.items()
            if each.megabytes in self.plan.tuned_megabytes
        }
        request = TuneRequest(
            environments=environments,
            tuner=Tuner(by.budget_s, "lines", precision, 1, by.size, by.edge_size, by.edge_runs),
            rounds=by.rounds,
            margin_percent=MARGIN_PERCENT,
            seed=self.seed,
            variables=variables(),
            command_line=(),
            peers=PEERS,
            generated=GENERATED,
            cache_edge=cache_edge,
            fresh=True,
        )
        return carried_out(TuneCampaign, request, self.folder, name, self.shown)
