"""Measuring for the study: the campaign of `vtax place measure` in each environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vtax.core.errors import MisuseError, VtaxError
from vtax.environments import Environment
from vtax.place import service_domain
from vtax.place.campaign import PlaceCampaign, PlaceRequest
from vtax.place.record import PlaceRecord
from vtax.place.service_domain import Backend
from vtax.workloads.loads import registry
from vtax.workloads.loads.base import Load
from vtax_studies.asymmetric_cores.data import Data, joined
from vtax_studies.asymmetric_cores.setup import (
    EMULATED_HOST,
    FIGURE_LOADS,
    FULL,
    OF_FOUR,
    ONLY,
    QEMU,
    QUICK,
    QUICK_EMULATED_HOST,
    QUICK_SURVEY,
    SLOW_GUEST,
    SPECS,
    SURVEY,
    WITH_GUESTS,
    CoresPlan,
)
from vtax_studies.measuring import (
    Counting,
    carried_out,
    nothing_measured,
    run_folders,
    usable,
    variables,
)
from vtax_studies.model import Progress, StudyOptions


class _Expected(Counting):
    """Counts against the steps of all campaigns, which were planned before the first campaign."""

    def extended(self, steps: int) -> None:
        """Ignore new steps: they are in the total already."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A campaign of its own: one environment at a time, so that no other guest takes CPU time."""

    name: str
    environment: Environment
    loads: Sequence[Load]
    plan: CoresPlan
    slow_guest: bool = False

    @property
    def label(self) -> str:
        return SLOW_GUEST if self.slow_guest else self.name

    def steps(self, backends: Sequence[Backend]) -> int:
        """The number of steps: a first look, and each point beside its control."""
        if not self.plan.speeds:
            return len(self.loads) * (1 + self.plan.rounds)
        around = self.environment.slowed_by()
        own = [each for each in backends if around is None or each.name in around]
        pairs = self.plan.rounds * len(own) * len(self.plan.speeds)
        return len(self.loads) * (1 + 2 * pairs)


def measure(options: StudyOptions, progress: Progress) -> Data:
    """Measure what the options ask for.

    Raises VtaxError where nothing can be measured at all: without root, without a way to slow
    threads, without any environment. Anything else that cannot be measured is left out with the
    reason.
    """
    left_out: dict[str, str] = {}
    wanted = FIGURE_LOADS.get(options.figure or "")
    parts = [
        part
        for plan in _plans(options)
        for part in _parts(plan, _chosen(plan, wanted, left_out), left_out)
    ]
    around = frozenset[str]().union(*(each.environment.slowed_by() or () for each in parts))
    backends = service_domain.usable(service_domain.backends(), around)
    expected = sum(each.steps(backends) for each in parts)
    shown = _Expected(expected, progress)
    served: list[PlaceRecord] = []
    alone: list[PlaceRecord] = []
    disks: list[PlaceRecord] = []
    with run_folders(options.folder) as folder:
        for each in parts:
            before = shown.count
            try:
                record = _campaign(each, backends, options.seed, folder, shown)
                kind = alone if each.slow_guest else served if each.plan.speeds else disks
                kind.append(record)
            except VtaxError as error:
                left_out[each.label] = str(error)
            # A part that has no slow points, or fails, takes fewer steps.
            shown.total += shown.count - before - each.steps(backends)
    if not served and not alone and not disks:
        raise nothing_measured(left_out)
    return Data(joined(served), joined(alone), joined(disks), left_out=left_out)


def _plans(options: StudyOptions) -> Iterator[CoresPlan]:
    """What to measure in hosts that are real, with disks, and in hosts that are emulated. Raises
    MisuseError for a name in `options.only` that is no environment of the study."""
    if unknown := set(options.only) - set(ONLY):
        raise MisuseError(
            f"--only {min(unknown)}: it is no environment of the study", f"known: {', '.join(ONLY)}"
        )
    chosen = {name for each in options.only for name in ONLY[each]}
    plans: tuple[CoresPlan, ...] = (QUICK, QUICK_SURVEY) if options.quick else (FULL, SURVEY)
    if chosen:
        plans += (QUICK_EMULATED_HOST,) if options.quick else (EMULATED_HOST,)
    elif options.quick:
        plans = plans[:1]
    for plan in plans:
        own = tuple(each for each in plan.environments if not chosen or each in chosen)
        if own:
            yield replace(plan, environments=own)


def _chosen(
    plan: CoresPlan, wanted: Sequence[str] | None, left_out: dict[str, str]
) -> Mapping[str, Load]:
    """The loads of a plan, or those of them that a figure wants."""
    names = dict.fromkeys((*plan.loads, *plan.slow_guest))
    return _loads([each for each in names if wanted is None or each in wanted], left_out)


def _loads(names: Sequence[str], left_out: dict[str, str]) -> Mapping[str, Load]:
    """The loads whose programs are installed here."""
    found = {}
    for load in registry.named(names) if names else ():
        try:
            registry.check(load)
            found[load.name] = load
        except VtaxError as error:
            left_out[load.name] = str(error)
    return found


def _parts(plan: CoresPlan, loads: Mapping[str, Load], left_out: dict[str, str]) -> Iterator[_Part]:
    """A part for each environment that can be made, and one with slow vCPUs for figure 1."""
    specs = {name: SPECS[name] for name in plan.environments if loads}
    for name, environment in usable(specs, left_out).items():
        chosen = WITH_GUESTS if name in OF_FOUR else plan.loads
        own = [each for each in loads.values() if each.name in chosen]
        if own:
            yield _Part(name, environment, own, plan)
        alone = [loads[each] for each in plan.slow_guest if each in loads]
        if name == QEMU and alone:
            yield _Part(name, environment, alone, plan, slow_guest=True)


def _campaign(
    part: _Part,
    backends: Sequence[Backend],
    seed: int,
    parent: Path,
    shown: Counting,
) -> PlaceRecord:
    """Run the campaign of a part. Raises VtaxError when nothing was measured, KeyboardInterrupt
    after Ctrl-C."""
    request = PlaceRequest(
        environments={SPECS[part.name]: part.environment},
        loads={each.name: each for each in part.loads},
        speeds=part.plan.speeds,
        backends=backends,
        service=(),
        rounds=part.plan.rounds,
        seconds=part.plan.seconds,
        seed=seed,
        variables=variables(),
        command_line=(),
        vcpus=part.slow_guest,
    )
    verb = "place-vcpus" if part.slow_guest else "place"
    return carried_out(PlaceCampaign, request, parent, verb, shown)
