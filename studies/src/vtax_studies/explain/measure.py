"""Measuring for the study: `vtax explain` of each program in all environments at once.

Each program's run folder is kept below the study's folder, and is not made again: a study that was
interrupted goes on where it was.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats import records
from vtax.core.formats.bill import BILL, BillRecord
from vtax.core.formats.folder import load, slug
from vtax.core.page.format import plural
from vtax.core.runner.runner import Listener
from vtax.explain import campaign
from vtax.explain.verb import ExplainOptions
from vtax.prices.analysis import PriceList
from vtax.prices.record import PricedEnvironment
from vtax_studies.explain import inputs
from vtax_studies.explain.data import Data, Run
from vtax_studies.explain.programs import NOTHING, PRICE, Change, Loop, Program, priced
from vtax_studies.explain.setup import FULL, LAB, QUICK, SAME, ExplainPlan, environments_on
from vtax_studies.measuring import nothing_measured, run_folders, usable
from vtax_studies.model import Progress, StudyOptions
from vtax_studies.roles import here

TIMEOUT = "2m"
EACH_S = 11.0
"""What one program takes in one environment, on average, on two CPUs of a KVM guest."""


@dataclass(frozen=True, slots=True)
class _Job:
    program: Program
    specs: Sequence[str]


def measure(options: StudyOptions, progress: Progress) -> Data:
    """Measure what is not there yet.

    Raises MisuseError for a name in `options.only` that is neither an environment nor a program,
    VtaxError where nothing can be measured, KeyboardInterrupt after Ctrl-C.
    """
    plan = QUICK if options.quick else FULL
    plan = replace(plan, environments=environments_on(here(), plan.environments))
    plan = selected(plan, options.only)
    # Programs must not read what this one is given; every campaign would look at it.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    left_out: dict[str, str] = {}
    specs = dict.fromkeys((*plan.environments, *(each for pair in plan.price_changes
                                                 for each in pair)))  # fmt: skip
    there = list(usable({each: each for each in specs}, left_out))
    runs: dict[str, Run] = {}
    with run_folders(options.folder) as folder:
        files = (folder / "inputs").absolute()
        for name, reason in inputs.make(files, options.seed).items():
            left_out[f"input '{name}'"] = reason
        jobs = list(_jobs(plan, there))
        ends = time.monotonic() + plan.budget_s
        expected_s = EACH_S * sum(len(each.specs) for each in jobs)
        progress(
            0,
            len(jobs),
            f"about {plural(round(expected_s / 60), 'minute')}, less what is there already",
        )
        for done, job in enumerate(jobs, 1):
            try:
                runs[job.program.name] = _run(
                    job, plan, options.seed, folder, files, left_out, ends
                )
            except VtaxError as error:
                left_out[job.program.name] = str(error)
            progress(done, len(jobs), job.program.name)
    if not runs:
        raise nothing_measured(left_out)
    return Data(runs, plan, left_out=left_out)


def selected(plan: ExplainPlan, only: Sequence[str]) -> ExplainPlan:
    """The plan with the environments and programs of these names; without names of one kind, all of
    that kind. Prices are changed where all is measured, or where it is named."""
    if not only:
        return plan
    kinds: Sequence[Sequence[Program | Loop | Change]] = (plan.programs, plan.loops, plan.changes)
    names = [*(each.name for own in kinds for each in own), PRICE]
    if unknown := [each for each in only if each not in {*names, *plan.environments}]:
        raise MisuseError(
            f"--only {unknown[0]}: it is neither an environment nor a program of the study",
            f"choose of {', '.join((*plan.environments, *names))}",
        )
    if PRICE not in only:
        plan = replace(plan, price_changes=())
    if environments := [each for each in plan.environments if each in only]:
        kept = [each for each in plan.changed_in if each in only]
        plan = replace(plan, environments=environments, changed_in=kept)
    if not set(names).isdisjoint(only):
        plan = replace(
            plan,
            programs=[each for each in plan.programs if each.name in only],
            loops=[each for each in plan.loops if each.name in only],
            changes=[each for each in plan.changes if each.name in only],
        )
    return plan


def _jobs(plan: ExplainPlan, there: Sequence[str]) -> Iterator[_Job]:
    """The campaigns, those of real programs first."""
    everywhere = [each for each in plan.environments if each in there]
    changed_in = [each for each in plan.changed_in if each in there]
    yield from (_Job(each, everywhere) for each in plan.programs)
    loops = [NOTHING, *plan.loops] if plan.loops else []
    # A loop of seconds takes minutes in an emulated guest.
    quick = [each for each in everywhere if each != LAB]
    yield from (_Job(each.program(), quick) for each in loops if quick)
    if changed_in:
        yield from (_Job(each, changed_in) for change in plan.changes
                    for each in change.programs())  # fmt: skip
    yield from (_Job(priced(pair), pair) for pair in plan.price_changes
                if all(each in there for each in pair))  # fmt: skip


def _run(
    job: _Job, plan: ExplainPlan, seed: int, folder: Path, files: Path,
    left_out: dict[str, str], ends: float,
) -> Run:  # fmt: skip
    """The program's bills, from an earlier run of the study or from a new one.

    Raises VtaxError when it cannot run natively, or the study's time is over.
    """
    name, words = job.program.name, job.program.words()
    key = hashlib.blake2b(repr((words, job.specs, plan.rounds, seed)).encode(), digest_size=4)
    parent = folder / f"{slug(name)}-{key.hexdigest()}"
    if not (kept := list(parent.glob(f"*/{BILL}"))):
        for needed in job.program.programs():
            if shutil.which(needed) is None and not (files / needed).is_file():
                raise VtaxError(f"{needed} is not installed")
        if time.monotonic() > ends:
            raise VtaxError("the study's time was over", "run the study again: it goes on here")
        _explain(job, plan, seed, parent, files)
        kept = list(parent.glob(f"*/{BILL}"))
    run = _read(kept[0].parent)
    for spec in job.specs:
        if spec not in run.bills:
            left_out[f"{name} in {spec}"] = _reason(parent, spec)
    return run


def _explain(job: _Job, plan: ExplainPlan, seed: int, parent: Path, files: Path) -> None:
    """Make the program's bills; where it fails in an environment, those of the others.

    Raises VtaxError when there is none.
    """
    options = ExplainOptions(
        workload=job.program.words(),
        environments=[*job.specs, SAME],
        repetitions=plan.rounds,
        control=False,
        timeout=TIMEOUT,
        workdir=files,
        seed=seed,
        out=parent,
        quiet=True,
    )
    try:
        campaign.anew(options, Listener())
    except VtaxError:
        ran = _ran(parent)
        fewer = [each for each in options.environments or () if each in ran]
        if not fewer or len(fewer) > len(job.specs):
            raise
        campaign.anew(replace(options, environments=fewer), Listener())


def _ran(parent: Path) -> set[str]:
    """The environments in which a repetition was finished, in the first run folder below."""
    for file in sorted(parent.glob("*/run.json")):
        return {each.environment for each in load(file.parent)[1]}
    return set()


def _reason(parent: Path, spec: str) -> str:
    for file in sorted(parent.glob("*/run.json")):
        for failure in load(file.parent)[0].failures:
            if failure.environment == spec:
                return failure.message
    return "it did not run there"


def _read(folder: Path) -> Run:
    """What a run folder holds. Raises VtaxError for one that is damaged."""
    found = records.read(folder / BILL)
    assert isinstance(found, BillRecord)
    samples = load(folder)[1]
    native = {each.baseline: campaign.used(samples, each.baseline) for each in found.bills}
    return Run(
        bills={each.environment: each for each in found.bills},
        native={label: used for label, used in native.items() if used is not None},
        prices=_price_lists(found),
    )


def _price_lists(record: BillRecord) -> Mapping[str, PriceList]:
    """By environment: the record has each baseline before its environment."""
    every = [PricedEnvironment.model_validate(each) for each in record.prices]
    pairs = zip(every[::2], every[1::2], strict=True)
    return {there.label: PriceList.of(there, here) for here, there in pairs}
