"""Whether times depend on the order in which sizes are run, and whose drift it is.

The paper on HPC Challenge in virtualized environments (section 5, equation 2) runs the same sizes
in ascending order and, after a reboot, in descending order. Here a round has five passes over the
sizes: ascending, then descending and random in either order, then ascending again (the control),
each in a machine started afresh, and at last ascending once more in the control's machine. So

- what differs between the two fresh ascending passes survives a reboot: it is the machine's;
- what differs between orders, or in the pass without a reboot, and not between those two, came
  with what the guest had accumulated and went with its reboot: it is the guest's.

The ascending passes before and after the others cancel a steady drift of the machine out of the
ratios between orders. Where there is no guest to reboot, all drift is the machine's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from vtax.core.statistics.rounds import Run, log_ratio, of_rounds
from vtax.core.statistics.statistics import Estimate
from vtax.core.statistics.verdicts import EQUIVALENCE_CONFIDENCE, ERROR

LIMIT_PERCENT = 5.0
"""The most that the paper sees on bare metal ("no noticeable impact"); its guests had 15 to 50
%."""


class Order(StrEnum):
    """A pass over the sizes; in the order of a round, except for the two in the middle."""

    ASCENDING = "ascending"
    DESCENDING = "descending"
    RANDOM = "random"
    CONTROL = "control"
    """Ascending in another fresh machine."""
    AGAIN = "again"
    """Ascending in the control's machine, which has run all sizes."""


class Contrast(StrEnum):
    """What is compared with what."""

    DESCENDING = "descending against ascending"
    RANDOM = "random against ascending"
    AGAIN = "second pass against first, without a reboot"
    CONTROL = "after against before, both freshly booted"


_SIDES: Mapping[Contrast, tuple[tuple[Order, ...], tuple[Order, ...]]] = {
    Contrast.DESCENDING: ((Order.DESCENDING,), (Order.ASCENDING, Order.CONTROL)),
    Contrast.RANDOM: ((Order.RANDOM,), (Order.ASCENDING, Order.CONTROL)),
    Contrast.AGAIN: ((Order.AGAIN,), (Order.CONTROL,)),
    Contrast.CONTROL: ((Order.CONTROL,), (Order.ASCENDING,)),
}


class Verdict(StrEnum):
    """The verdict on an environment."""

    NONE = "no drift"
    GUEST = "drift of the guest"
    MACHINE = "drift of the machine"
    UNCLEAR = "drift, of the guest or of the machine"
    """The control is too noisy to say which."""
    NOISY = "too noisy to tell"


@dataclass(frozen=True, slots=True)
class Observation:
    """One run of one size."""

    round: int
    boot: int
    order: Order
    size: int
    place: int
    """Its place in the pass, from 0."""
    values: Mapping[str, float]
    """Values of metrics by name."""


@dataclass(frozen=True, slots=True)
class Change:
    """A ratio of times; a value that two rounds did not give is None."""

    log_ratio: Estimate | None

    @property
    def percent(self) -> float | None:
        """The change in percent, signed: equation 2 without the bars. Above 0: slower than what it
        is compared with."""
        return None if self.log_ratio is None else _percent(self.log_ratio.value)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval, in percent."""
        if self.log_ratio is None:
            return None
        half = self.log_ratio.half_width()
        return _percent(self.log_ratio.value - half), _percent(self.log_ratio.value + half)

    @property
    def bound(self) -> float:
        """On the log scale: the change is smaller than this, with an error of 5 % on either
        side."""
        if self.log_ratio is None:
            return math.inf
        return abs(self.log_ratio.value) + self.log_ratio.half_width(EQUIVALENCE_CONFIDENCE)

    def differs(self, error: float) -> bool:
        """Whether it is this sure that there is a change at all."""
        ratio = self.log_ratio
        return ratio is not None and abs(ratio.value) > ratio.half_width(1.0 - error)


@dataclass(frozen=True, slots=True)
class OrderDrift:
    """What was found about one environment."""

    verdict: Verdict
    below_percent: float
    """The change of every size is smaller; infinite where that is not known."""
    drift_percent: float | None
    """The largest change that is sure."""
    sizes: Mapping[Contrast, Mapping[int, Change]]
    within_pass: Change
    """The change from the first place of a pass to the last, over all fresh passes: what the order
    moves."""
    overall: Mapping[Contrast, Change]
    """The change over all sizes, for the two contrasts whose passes have the same order."""

    @property
    def text(self) -> str:
        """The verdict as part of a sentence."""
        if self.drift_percent is not None:
            return f"{self.verdict} ({self.drift_percent:.2g} %)"
        if not math.isfinite(self.below_percent):
            return self.verdict
        word = "above" if self.verdict is Verdict.NONE else "below"
        return f"{self.verdict} {word} {self.below_percent:.2g} %"


@dataclass(frozen=True, slots=True)
class _Found:
    """A change that was tested, and what the control said of the same change."""

    change: Change
    control: Change


def order_drift(
    observations: Sequence[Observation],
    metric: str,
    *,
    reboots: bool,
    limit_percent: float = LIMIT_PERCENT,
) -> OrderDrift:
    """Judge the drift of a metric; `reboots`: a fresh machine is a rebooted guest.

    Each size has a contrast of its own, and three questions are asked of all sizes together,
    because few rounds say little of one size: both families get half of the error (Bonferroni).
    """
    own = [each for each in observations if each.values.get(metric, 0.0) > 0]
    sizes = {contrast: dict(_by_size(own, metric, contrast)) for contrast in Contrast}
    overall = {each: _overall(own, metric, each) for each in (Contrast.AGAIN, Contrast.CONTROL)}
    within = Change(of_rounds(list(_slopes(own, metric))))
    # A pass that is in no round was not asked for, and leaves nothing open.
    run = {each.order for each in own}
    every = [
        each
        for contrast, changes in sizes.items()
        if run.intersection(_SIDES[contrast][0])
        for each in changes.values()
    ]
    bound = max((each.bound for each in every), default=math.inf)
    control = _Found(overall[Contrast.CONTROL], overall[Contrast.CONTROL])
    pairs = [
        _Found(change, sizes[Contrast.CONTROL][size])
        for contrast, changes in sizes.items()
        for size, change in changes.items()
        if contrast is not Contrast.CONTROL and size in sizes[Contrast.CONTROL]
    ]
    apart = ERROR / 2 / max(1, len(every))
    together = ERROR / 2 / 3
    machine = [each for each in sizes[Contrast.CONTROL].values() if each.differs(apart)]
    machine += [control.change] if control.change.differs(together) else []
    guest = [each for each in pairs if each.change.differs(apart)]
    guest += [
        each
        for change in (within, overall[Contrast.AGAIN])
        if (each := _Found(change, control.control)).change.differs(together)
    ]
    found = machine or [each.change for each in guest]
    if bound <= math.log1p(limit_percent / 100.0):
        verdict, found = Verdict.NONE, []
    elif not found:
        verdict = Verdict.NOISY
    elif machine or not reboots:
        verdict = Verdict.MACHINE
    else:
        verdict = Verdict.GUEST if _gone_after_reboot(guest) else Verdict.UNCLEAR
    largest = max((_size(each) for each in found), default=None)
    return OrderDrift(
        verdict,
        _percent(bound),
        None if largest is None else _percent(largest),
        sizes,
        within,
        overall,
    )


def _gone_after_reboot(found: Sequence[_Found]) -> bool:
    """Whether the largest drift is larger than all that the control leaves open."""
    largest = max(found, key=lambda each: _size(each.change))
    return largest.control.bound < _size(largest.change)


def _size(change: Change) -> float:
    return 0.0 if change.log_ratio is None else abs(change.log_ratio.value)


def _percent(log_ratio: float) -> float:
    # Two rounds that disagree can have intervals beyond every float.
    return 100.0 * math.expm1(log_ratio) if log_ratio < 300.0 else math.inf


def _by_size(
    observations: Sequence[Observation], metric: str, contrast: Contrast
) -> Iterator[tuple[int, Change]]:
    ours, theirs = _SIDES[contrast]
    for size in sorted({each.size for each in observations}):
        sides = [
            [
                Run(each.round, each.boot, each.values[metric])
                for each in observations
                if each.size == size and each.order in orders
            ]
            for orders in (ours, theirs)
        ]
        yield size, Change(log_ratio(*sides) if all(sides) else None)


def _rounds(observations: Sequence[Observation]) -> Iterator[list[Observation]]:
    for number in sorted({each.round for each in observations}):
        yield [each for each in observations if each.round == number]


def _overall(observations: Sequence[Observation], metric: str, contrast: Contrast) -> Change:
    """The mean over the sizes that a round has on both sides."""
    ours, theirs = _SIDES[contrast]
    differences = []
    for own in _rounds(observations):
        sides = [
            {each.size: math.log(each.values[metric]) for each in own if each.order in orders}
            for orders in (ours, theirs)
        ]
        if common := sides[0].keys() & sides[1].keys():
            differences.append(fmean(sides[0][size] - sides[1][size] for size in common))
    return Change(of_rounds(differences))


def _slopes(observations: Sequence[Observation], metric: str) -> Iterator[float]:
    """For each round, the change of the log from the first place of a pass to the last.

    Least squares over the passes in fresh machines, each size about its own mean.
    """
    last = max((each.place for each in observations), default=0)
    for own in _rounds(observations):
        up = down = 0.0
        for size in {each.size for each in own}:
            runs = [each for each in own if each.size == size and each.order is not Order.AGAIN]
            if not runs:
                continue
            places = [each.place / last if last else 0.0 for each in runs]
            logs = [math.log(each.values[metric]) for each in runs]
            middle, level = fmean(places), fmean(logs)
            up += sum((x - middle) * (y - level) for x, y in zip(places, logs, strict=True))
            down += sum((x - middle) ** 2 for x in places)
        if down > 0:
            yield up / down
