"""Measuring for the study: the DGEMM driver of `vtax memory` in every place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from vtax import binaries, environments
from vtax.environments import Environment
from vtax.errors import VtaxError
from vtax.formats.folder import RunFolder
from vtax.formats.model import MemoryRecord
from vtax.runner.memory import Campaign, Settings
from vtax.runner.runner import Listener
from vtax.studies.atlas.data import Data
from vtax.studies.atlas.setup import FULL, PLACES, QUICK, TCG, Place
from vtax.studies.counting import Counting
from vtax.studies.model import Options, Progress
from vtax.workloads.sized import SizedDgemm
from vtax.workloads.variables import base_environment

RUN_TIMEOUT_S = 1800.0


def measure(options: Options, progress: Progress) -> Data:
    """Raises VtaxError where nothing can be measured at all.

    A place that cannot be is left out with the reason; so is the emulated processor when its
    machines fail, for it has a campaign of its own.
    """
    plan = QUICK if options.quick else FULL
    usable, left_out = _usable()
    parts = [
        (
            {each: made for each, made in usable.items() if each.kernel != TCG},
            plan.sizes,
            plan.runs,
        ),
        (
            {each: made for each, made in usable.items() if each.kernel == TCG},
            plan.emulated_sizes,
            plan.emulated_runs,
        ),
    ]
    shown = Counting(sum(len(own) * len(sizes) * runs for own, sizes, runs in parts), progress)
    records = []
    for own, sizes, runs in parts:
        try:
            records += [_campaign(own, sizes, runs, options.seed, shown)] if own else []
        except VtaxError as error:
            left_out |= dict.fromkeys(own, str(error))
    if not records:
        raise VtaxError(
            f"nothing could be measured: {next(iter(left_out.values()))}", "run 'vtax doctor'"
        )
    specs = {place.spec: place for place in PLACES}
    return Data(
        {specs[each.spec]: each for record in records for each in record.environments},
        [each for record in records for each in record.differences],
        left_out,
    )


def _usable() -> tuple[dict[Place, Environment], dict[Place, str]]:
    usable, left_out = {}, {}
    for place in PLACES:
        try:
            environment = environments.build(place.spec)
            environment.check()
            usable[place] = environment
        except VtaxError as error:
            left_out[place] = str(error)
    return usable, left_out


def _campaign(
    own: Mapping[Place, Environment], sizes: Sequence[int], runs: int, seed: int, shown: Listener
) -> MemoryRecord:
    variables = dict(base_environment(os.environ, keep_env=False))
    variables["PATH"] = binaries.on_path(variables)
    settings = Settings(
        environments={place.spec: environment for place, environment in own.items()},
        program=SizedDgemm(),
        sizes=sizes,
        runs=runs,
        seed=seed,
        variables=variables,
        command_line=(),
        timeout_s=RUN_TIMEOUT_S,
    )
    with tempfile.TemporaryDirectory(prefix="vtax-atlas-") as folder:
        record = Campaign(settings, RunFolder.create(Path(folder), "memory"), shown).run()
    if record.state == "interrupted":
        raise KeyboardInterrupt
    return record
