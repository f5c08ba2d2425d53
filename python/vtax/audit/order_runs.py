"""The same sizes in several orders, each in a machine started afresh (docs/audit.md).

vtax.audit.order_drift says what the passes of a round are and mean.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vtax.audit.order_drift import Observation, Order
from vtax.core.errors import VtaxError
from vtax.core.formats.model import Sample
from vtax.core.formats.scratch import scratch
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import (
    Done,
    Keeper,
    Listener,
    Plan,
    Runner,
    Starter,
    Step,
    Variant,
    boot,
)
from vtax.core.runner.samples import sample
from vtax.environments.base import Environment
from vtax.workloads.base import Command, Metric

EXPERIMENT = "order-drift"

BETWEEN = (Order.DESCENDING, Order.RANDOM)


@dataclass(frozen=True, slots=True)
class Subject:
    """An environment and what is run in it."""

    environment: Environment
    sizes: Sequence[int]
    """Sizes in ascending order."""
    command: Callable[[int], Command]
    read: Callable[[Repetition, int], Sequence[Metric]]
    """The metrics of a finished run of a size. Raises VtaxError when the run failed."""

    @property
    def runs(self) -> int:
        """The number of runs in one round."""
        return len(Order) * len(self.sizes)


@dataclass(slots=True)
class Measured:
    """What was measured in one environment."""

    observations: list[Observation] = field(default_factory=list)
    samples: dict[int, list[Sample]] = field(default_factory=dict)
    """The same values by size, as campaigns keep them."""
    failures: list[str] = field(default_factory=list)


def measure(
    subjects: Mapping[str, Subject],
    variables: Mapping[str, str],
    rounds: int,
    seed: int,
    listener: Listener,
    start: Starter = boot,
    *,
    between: Sequence[Order] = BETWEEN,
    budget_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Mapping[str, Measured]:
    """Run `rounds` in every environment by its label, or as many rounds as end within the budget.

    `between` are the passes between the ascending ones, in a new random order in each round. The
    environments take turns at each pass, in a random order of their own. A run that fails is
    kept as a failure and the others go on. Raises VtaxError when an environment does not come up.
    """
    with scratch("order") as folder:
        variants = []
        for number, (label, subject) in enumerate(subjects.items()):
            work = folder / str(number)
            work.mkdir(mode=0o700)
            variants.append(Variant(label, subject.environment, work))
        order = _Rounds(subjects, between, rounds, random.Random(seed), folder / "out")
        keeper = _Keeper(subjects, order, {label: Measured() for label in subjects})
        plan = Plan(
            variants, order.next(), variables, more=order.next, budget_s=budget_s, matched=True
        )
        Runner(plan, keeper, listener, start, clock).run()
        return keeper.found


@dataclass(slots=True)
class _Rounds:
    """Makes the steps, a round at a time, and knows the purpose of each."""

    subjects: Mapping[str, Subject]
    between: Sequence[Order]
    left: int
    random: random.Random
    out: Path
    made: dict[tuple[str, int], tuple[int, Order, int, int]] = field(default_factory=dict)
    """Round, order, size and place of each step, by its variant and repetition."""
    number: int = 0

    def next(self) -> Sequence[Step]:
        """The steps of one more round, or none at the end."""
        if self.left == 0:
            return ()
        steps = [
            step
            for passes in zip(*(self._passes() for _ in self.subjects), strict=True)
            for label, order in self._turns(passes)
            for step in self._steps(label, order)
        ]
        self.left -= 1
        self.number += 1
        return steps

    def _passes(self) -> Sequence[Order]:
        between = list(self.between)
        self.random.shuffle(between)
        return (Order.ASCENDING, *between, Order.CONTROL, Order.AGAIN)

    def _turns(self, passes: Sequence[Order]) -> Sequence[tuple[str, Order]]:
        turns = list(zip(self.subjects, passes, strict=True))
        self.random.shuffle(turns)
        return turns

    def _steps(self, label: str, order: Order) -> Sequence[Step]:
        sizes = list(self.subjects[label].sizes)
        if order is Order.DESCENDING:
            sizes.reverse()
        elif order is Order.RANDOM:
            self.random.shuffle(sizes)
        return [self._step(label, order, size, place) for place, size in enumerate(sizes)]

    def _step(self, label: str, order: Order, size: int, place: int) -> Step:
        number = sum(variant == label for variant, _ in self.made)
        self.made[label, number] = (self.number, order, size, place)
        return Step(
            label,
            number,
            self.subjects[label].command(size),
            f"r{self.number}-{order}-{size}",
            self.out,
            fresh=place == 0 and order is not Order.AGAIN,
        )


@dataclass(slots=True)
class _Keeper(Keeper):
    subjects: Mapping[str, Subject]
    order: _Rounds
    found: Mapping[str, Measured]

    def read(self, this: Repetition) -> None:
        if doubt := this.finished[0].doubt():
            raise VtaxError(f"not believed: {doubt}")
        size = int(this.folder.rpartition("-")[2])
        this.metrics += self.subjects[this.label].read(this, size)

    def done(self, done: Done) -> None:
        number, order, size, place = self.order.made[done.step.variant, done.step.repetition]
        values = {metric.name: metric.value for metric in done.repetition.metrics}
        own = Observation(number, done.boot, order, size, place, values)
        found = self.found[done.step.variant]
        found.observations.append(own)
        found.samples.setdefault(size, []).extend(
            sample(None, EXPERIMENT, metric, done, number) for metric in done.repetition.metrics
        )

    def failed(self, step: Step, error: VtaxError) -> None:
        self.found[step.variant].failures.append(f"{step.folder}: {error}")
