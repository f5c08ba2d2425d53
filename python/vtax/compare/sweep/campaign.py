"""`compare --param`: the comparisons of all combinations share machines, rounds and a run folder.

Each combination is a `ComparisonCampaign` that keeps its own samples and order. A round has every
environment at every combination once: combinations in a random order, and within one its
environments next to each other, so that what is divided by the other ran close to it.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vtax.compare.campaign import ComparisonCampaign, Seen
from vtax.compare.sweep.analysis import cliffs, results
from vtax.compare.sweep.parameters import said
from vtax.compare.sweep.record import ComparisonSweepRecord, SweepPoint
from vtax.compare.sweep.request import Combination, SweepRequest
from vtax.core.errors import VtaxError
from vtax.core.formats.model import ComparisonRecord, Sample
from vtax.core.runner.campaign import StagedCampaign
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Done, Plan, Step, Variant
from vtax.core.statistics.results import leading_metric
from vtax.environments.base import MachineLike


@dataclass(eq=False)
class _Point(ComparisonCampaign):
    """The comparison of one combination; its samples say which one it is."""

    number: int = field(kw_only=True)
    combination: Combination = field(kw_only=True)

    @property
    def said(self) -> str:
        """The combination in words."""
        return said(self.combination.values)

    @property
    def workload(self) -> str:
        return f"{self.request.workload.name} {self.said}"

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

    def share(self, machines: dict[str, Seen], run_id: str) -> None:
        """Know of machines what other points learn of them, and be part of the same run."""
        self._seen = {label: machines.setdefault(label, own) for label, own in self._seen.items()}
        self._run_id = run_id

    def analysed(self) -> SweepPoint:
        """The point as it is now."""
        return SweepPoint(
            values=dict(self.combination.values),
            workload=self.workload,
            environments=dict(self.combination.names),
            results=results(self.record(), self.samples),
            failures=tuple(f"{each.environment}: {each.message}" for each in self.failures),
        )


@dataclass(eq=False)
class SweepCampaign(StagedCampaign[SweepRequest, ComparisonSweepRecord, None]):
    """All combinations in all environments, in rounds."""

    _all: list[_Point] = field(init=False)
    _chance: random.Random = field(init=False)
    _first: dict[str, _Point] = field(default_factory=dict, init=False)
    """The first point that has an environment, by label."""
    _run_id: str = field(default_factory=lambda: secrets.token_hex(8), init=False)
    _known: dict[int, tuple[int, SweepPoint]] = field(default_factory=dict, init=False)
    """What was made of a point's samples, by the point's number, with how many there were."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._chance = random.Random(f"{self.request.seed} points")
        self._all = [
            _Point(
                each.request, self.folder, self.listener, self.start, self.clock,
                number=number, combination=each,
            )
            for number, each in enumerate(self.request.points)
        ]  # fmt: skip
        machines: dict[str, Seen] = {}
        for point in self._all:
            point.share(machines, self._run_id)
            for variant in point.request.compared_variants:
                self._first.setdefault(variant.label, point)

    @property
    def found(self) -> bool:
        return bool(self.samples)

    @property
    def first_failure(self) -> str | None:
        failed = (each for each in self._all if each.first_failure)
        return next((f"{each.said}: {each.first_failure}" for each in failed), None)

    @property
    def printed(self) -> Path:
        return next((each.printed for each in self._all if each.failures), super().printed)

    @property
    def failures(self) -> Sequence[str]:
        """What failed, at each combination."""
        return [
            f"{point.said}: {each.environment}: {each.message}"
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
        """The machines of all points, each once."""
        return [
            variant
            for point in self._all
            for variant in point._variants()
            if self._first[variant.label] is point
        ]

    def _stages(self) -> Iterator[Sequence[Step]]:
        """The rounds that were asked for, then further ones of the points that need them."""
        rounds = range(self._all[0].request.repetitions)
        yield [step for _ in rounds for point in self._shuffled() for step in point.round()]
        while further := [step for point in self._shuffled() for step in point.further()]:
            yield further

    def _shuffled(self) -> Sequence[_Point]:
        return self._chance.sample(self._all, len(self._all))

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        self._first[variant.label].booted(variant, machine)

    def warmed(self, variant: Variant, machine: MachineLike) -> None:
        self._first[variant.label].warmed(variant, machine)

    def read(self, this: Repetition) -> None:
        self._at(this.step).read(this)

    def done(self, done: Done) -> None:
        point = self._at(done.step.folder)
        before = len(point.samples)
        point.done(done)
        self.samples += point.samples[before:]
        self._keep()

    def failed(self, step: Step, error: VtaxError) -> None:
        self._at(step.folder).failed(step, error)
        self._keep()

    def _at(self, folder: str) -> _Point:
        """The point of a step, whose folder is named `p<NUMBER>-...`."""
        return self._all[int(folder.partition("-")[0].removeprefix("p"))]

    def record(self) -> ComparisonSweepRecord:
        request, first = self.request, self._all[0]
        lead = leading_metric(first.record())
        environments = tuple(
            point._environment_record(point._seen[label]) for label, point in self._first.items()
        )
        points = tuple(map(self._analysed, self._all))
        drawing = first.request.drawing
        return ComparisonSweepRecord(
            **self._head(),
            name=" ".join(request.workload),
            run_id=self._run_id,
            state=self.state,
            parameters={each.name: each.values for each in request.parameters},
            drawn=drawing.sources if drawing else {},
            workload=request.workload,
            repetitions=first.request.repetitions,
            seed=request.seed,
            margin_percent=first.request.margin_percent,
            lead=lead,
            environments=environments,
            points=points,
            cliffs=cliffs(request.parameters, points, lead, environments),
        )

    def _analysed(self, point: _Point) -> SweepPoint:
        """The point as it is now; samples that were analysed before are not analysed again."""
        count = len(point.samples) + len(point.failures)
        if (known := self._known.get(point.number)) is None or known[0] != count:
            known = self._known[point.number] = (count, point.analysed())
        return known[1]
