"""`compare --param`: the comparisons of all combinations share machines, rounds and a run folder.

Each combination is a `ComparisonCampaign` that keeps its own samples and order. A round has every
environment at every combination once: combinations in a random order, and within one its
environments next to each other, so that what is divided by the other ran close to it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vtax.compare.campaign import ComparisonCampaign, ComparisonRequest
from vtax.compare.sweep import cliff
from vtax.compare.sweep.parameters import Parameter, Values, said
from vtax.compare.sweep.record import (
    ComparisonSweepRecord,
    SweepCliff,
    SweepPoint,
    SweepResult,
)
from vtax.core.errors import VtaxError
from vtax.core.formats.model import ComparisonRecord, Sample
from vtax.core.runner.campaign import Request, StagedCampaign
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Done, Plan, Step, Variant
from vtax.core.statistics.results import Result, leading_metric
from vtax.environments.base import MachineLike


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest(Request):
    """What `vtax compare --param` is asked for."""

    parameters: tuple[Parameter, ...]
    workload: tuple[str, ...]
    """The command with its placeholders."""
    points: tuple[tuple[Values, ComparisonRequest], ...]
    """The comparison of each combination of values; all but the command is the same in all."""


@dataclass(eq=False)
class _Point(ComparisonCampaign):
    """The comparison of one combination; its samples say which one it is."""

    values: Values = field(kw_only=True)
    number: int = field(kw_only=True)

    @property
    def workload(self) -> str:
        return f"{self.request.workload.name} {said(self.values)}"

    def _stamped(self, sample: Sample) -> Sample:
        return replace(super()._stamped(sample), workload=self.workload)

    def _save(self) -> ComparisonRecord:
        """The sweep has the run folder's record."""
        return self.record()

    def _repeated(self, own: tuple[str, int]) -> Step:
        step = super()._repeated(own)
        name = f"p{self.number}-{step.folder}"
        self._points[step.variant, name] = self._points.pop((step.variant, step.folder))
        return replace(step, folder=name, out=step.out.with_name(name))

    def round(self) -> Sequence[Step]:
        """The steps of one more round."""
        return list(map(self._repeated, self._order.add(dict.fromkeys(self._seen, 1))))

    def further(self) -> Sequence[Step]:
        """The steps of one more round where the interval is not yet small enough."""
        return list(map(self._repeated, self._next_round()))

    def share(self, first: _Point) -> None:
        """Know of the machines what the first point learns: they are the same."""
        self._seen = first._seen


@dataclass(eq=False)
class SweepCampaign(StagedCampaign[SweepRequest, ComparisonSweepRecord, None]):
    """All combinations in all environments, in rounds."""

    _all: list[_Point] = field(init=False)
    _chance: random.Random = field(init=False)
    _known: dict[int, tuple[int, SweepPoint]] = field(default_factory=dict, init=False)
    """What was made of a point's samples, by the point's number, with how many there were."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._chance = random.Random(f"{self.request.seed} points")
        self._all = [
            _Point(
                request, self.folder, self.listener, self.start, self.clock,
                values=values, number=number,
            )
            for number, (values, request) in enumerate(self.request.points)
        ]  # fmt: skip
        for each in self._all[1:]:
            each.share(self._all[0])

    @property
    def found(self) -> bool:
        return bool(self.samples)

    @property
    def first_failure(self) -> str | None:
        failed = (each for each in self._all if each.first_failure)
        return next((f"{said(each.values)}: {each.first_failure}" for each in failed), None)

    @property
    def printed(self) -> Path:
        return next((each.printed for each in self._all if each.failures), super().printed)

    @property
    def failures(self) -> Sequence[str]:
        """What failed, at each combination."""
        return [
            f"{said(point.values)}: {each.environment}: {each.message}"
            for point in self._all
            for each in point.failures
        ]

    def _plan(self) -> Plan:
        first = self._all[0].request
        return replace(
            super()._plan(),
            warm_up=first.warm_up,
            reboot=first.reboot,
            max_output_bytes=first.max_output_bytes,
        )

    def _variants(self) -> Sequence[Variant]:
        return self._all[0]._variants()

    def _stages(self) -> Iterator[Sequence[Step]]:
        """The rounds that were asked for, then further ones of the points that need them."""
        rounds = range(self._all[0].request.repetitions)
        yield [step for _ in rounds for point in self._shuffled() for step in point.round()]
        while further := [step for point in self._shuffled() for step in point.further()]:
            yield further

    def _shuffled(self) -> Sequence[_Point]:
        return self._chance.sample(self._all, len(self._all))

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        self._all[0].booted(variant, machine)

    def warmed(self, variant: Variant, machine: MachineLike) -> None:
        self._all[0].warmed(variant, machine)

    def read(self, this: Repetition) -> None:
        self._at(this.folder).read(this)

    def done(self, done: Done) -> None:
        point = self._at(done.step.folder)
        before = len(point.samples)
        point.done(done)
        self.samples += point.samples[before:]
        self._keep()

    def failed(self, step: Step, error: VtaxError) -> None:
        self._at(step.folder).failed(step, error)

    def _at(self, folder: str) -> _Point:
        """The point of a step, whose folder is named `p<NUMBER>-...`. A warm-up, whose results
        nobody keeps, is read by the first."""
        number = folder.partition("-")[0].removeprefix("p")
        return self._all[int(number) if number.isdecimal() else 0]

    def record(self) -> ComparisonSweepRecord:
        request, first = self.request, self._all[0].record()
        lead = leading_metric(first)
        points = tuple(map(self._analysed, self._all))
        return ComparisonSweepRecord(
            **self._head(),
            name=" ".join(request.workload),
            state=self.state,
            parameters={each.name: each.values for each in request.parameters},
            workload=request.workload,
            repetitions=self._all[0].request.repetitions,
            seed=request.seed,
            lead=lead,
            environments=first.environments,
            points=points,
            cliffs=_cliffs(
                request.parameters,
                points,
                lead,
                [each.label for each in first.environments if each.role == "measured"],
            ),
        )

    def _analysed(self, point: _Point) -> SweepPoint:
        """The point as it is now; samples that were analysed before are not analysed again."""
        count = len(point.samples) + len(point.failures)
        if (known := self._known.get(point.number)) is None or known[0] != count:
            known = self._known[point.number] = (count, _point(point))
        return known[1]


def _point(point: _Point) -> SweepPoint:
    return SweepPoint(
        values=dict(point.values),
        workload=point.workload,
        results=tuple(map(_result, _results(point))),
        failures=tuple(f"{each.environment}: {each.message}" for each in point.failures),
    )


def _results(point: _Point) -> Sequence[Result]:
    if not point.samples:
        return ()
    # It imports numpy and polars: the first run does not wait for them.
    from vtax.compare.analysis import results

    return results(point.record(), point.samples)


def _result(each: Result) -> SweepResult:
    return SweepResult(
        environment=each.environment,
        metric=each.metric,
        unit=each.unit,
        better=each.better,
        n=each.n,
        median=each.median,
        median_low=each.median_low,
        median_high=each.median_high,
        percent_of_baseline=each.percent_of_baseline,
        ci_low=each.ci_low,
        ci_high=each.ci_high,
        verdict=each.verdict,
    )


def _cliffs(
    parameters: Sequence[Parameter],
    points: Sequence[SweepPoint],
    lead: str,
    measured: Sequence[str],
) -> tuple[SweepCliff, ...]:
    """The cliff of each measured environment along the one parameter, if its values are numbers;
    none along several."""
    if len(parameters) != 1 or parameters[0].numbers is None:
        return ()
    levels: dict[str, list[cliff.Level]] = {label: [] for label in measured}
    for value, point in zip(parameters[0].numbers, points, strict=True):
        for each in point.results:
            known = each.ci_low is not None and each.ci_high is not None
            if each.metric == lead and known and each.environment in levels:
                level = cliff.Level(value, each.ci_low or 0.0, each.ci_high or 0.0)
                levels[each.environment].append(level)
    return tuple(
        SweepCliff(environment=label, metric=lead, past=cliff.past(own))
        for label, own in levels.items()
        if len(own) > 1
    )
