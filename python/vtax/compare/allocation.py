"""How many runs each variant gets in the next round, from what the rounds so far have shown.

The variance of a ratio falls most for the time spent when a variant has runs in proportion to its
standard deviation over the root of its cost (Neyman 1934). So a cheap and noisy variant runs
several times in a round in which an expensive and steady one runs once. Only spread and cost
decide, never the values, and the interval counts rounds and not runs (vtax.core.statistics.rounds),
so it keeps its coverage; docs/statistics.md has the simulation.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vtax.compare.analysis import results
from vtax.core.formats.model import ComparisonRecord, Sample
from vtax.core.statistics.results import leading_metric

MOST_RUNS = 8
"""The most runs of a variant in a round: more would hardly help, because the round's one run of a
slow variant limits the interval."""
PILOT_ROUNDS = 3
"""The number of rounds with one run of each variant, before spread and cost are known at all."""
LEAST_ROUNDS = 5
"""The least rounds before an interval may end the run: with fewer, a narrow one may be luck."""
MOST_ROUNDS = 100
SILENT_ROUNDS = 2
"""After this many rounds without a value, an environment has failed, or needs no more runs."""

_LEAST_DEVIATION = 1e-4
"""The least deviation of logs: below it a variant counts as equally steady, so that no share is
divided by zero."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What the rounds so far showed about a variant."""

    label: str
    compared_with: str | None
    """The label of its baseline; None: the variant is a baseline."""
    is_control: bool
    values: Sequence[float]
    """Values of the metric that decides, in the order of running."""
    cost_s: float
    """Mean time of a run, everything included; above 0."""
    width: float | None
    """Half width of the interval of its log ratio; None: there is no interval yet."""


def next_runs(
    record: ComparisonRecord, samples: Sequence[Sample], until_percent: float
) -> Mapping[str, int]:
    """Runs of each label in the next round of a campaign; empty when the campaign has reached its
    aim."""
    lead = leading_metric(record)
    judged = [sample for sample in samples if sample.metric == lead]
    widths = {
        result.environment: max(
            math.log(each.high / each.low) / 2 for each in (result.typical, result.mean)
        )
        for result in results(record, judged)
        if result.typical and result.mean and result.typical.low and result.mean.low
    }
    latest = max((sample.round or 0 for sample in judged), default=0)
    variants = []
    for environment in record.environments:
        own = [sample for sample in judged if sample.environment == environment.label]
        silent = latest - max((sample.round or 0 for sample in own), default=0)
        # A variant that failed in two rounds would only keep the others running.
        if own and silent < SILENT_ROUNDS:
            early = len({sample.round for sample in own}) < LEAST_ROUNDS
            variants.append(
                Variant(
                    environment.label,
                    environment.baseline,
                    environment.role == "control",
                    [sample.value for sample in own],
                    _cost_s(record, own, environment.boot_s),
                    None if early else widths.get(environment.label),
                )
            )
    return next_round(variants, until_percent / 100.0)


def _cost_s(record: ComparisonRecord, own: Sequence[Sample], boot_s: Sequence[float]) -> float:
    boot = statistics.fmean(boot_s) if boot_s and record.reboot == "each" else 0.0
    return max(1e-6, statistics.fmean(sample.host_wall_s for sample in own) + boot)


def next_round(variants: Sequence[Variant], until: float) -> Mapping[str, int]:
    """Runs of each label in the next round; empty when every interval is within `until`.

    A variant whose interval is narrow enough has no more runs. A baseline and its control run as
    long as a variant needs them.
    """
    open_ = [
        each
        for each in variants
        if each.compared_with is not None
        and not each.is_control
        and (each.width is None or each.width > until)
    ]
    needed = {each.compared_with for each in open_}
    alive = open_ + [
        each
        for each in variants
        if each.label in needed or (each.is_control and each.compared_with in needed)
    ]
    return _shares([each for each in variants if each in alive])


def _shares(variants: Sequence[Variant]) -> Mapping[str, int]:
    weights = {each.label: _deviation(each.values) / math.sqrt(each.cost_s) for each in variants}
    least = min(weights.values(), default=1.0)
    return {label: min(MOST_RUNS, round(weight / least)) for label, weight in weights.items()}


def _deviation(values: Sequence[float]) -> float:
    """Standard deviation of the logs, without slow changes (von Neumann 1941)."""
    logs = [math.log(value) for value in values if value > 0]
    steps = [(after - before) ** 2 for before, after in itertools.pairwise(logs)]
    return max(_LEAST_DEVIATION, math.sqrt(statistics.fmean(steps) / 2) if steps else 0.0)
