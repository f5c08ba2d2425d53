"""How long a campaign such as this one would take to see a small difference."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from vtax.core.formats.model import ComparisonRecord, EnvironmentRecord, Sample
from vtax.core.statistics.detection import rounds_needed
from vtax.core.statistics.places import placed, without_places
from vtax.core.statistics.results import Detection, leading_metric
from vtax.core.statistics.rounds import Run, block_means, log_ratio

PERCENTS = (1.0, 2.0)
"""The slowdowns that are asked for."""


def detections(record: ComparisonRecord, samples: Sequence[Sample]) -> tuple[Detection, ...]:
    """What it takes to see slowdowns in the leading metric: of each measured environment, or of the
    A/A control where there is none."""
    lead = leading_metric(record)
    judged = [each for each in samples if each.metric == lead and each.value > 0]
    roles = {each.role for each in record.environments}
    wanted = "measured" if "measured" in roles else "control"
    return tuple(
        found
        for environment in record.environments
        if environment.role == wanted
        for found in _of(record, environment, judged)
    )


def _of(
    record: ComparisonRecord, environment: EnvironmentRecord, judged: Sequence[Sample]
) -> Iterator[Detection]:
    own, base = (
        [as_run(each) for each in judged if each.environment == label]
        for label in (environment.label, environment.baseline)
    )
    ratio = placed(log_ratio, own, base)
    if ratio is None:
        return
    differences, each = block_means(without_places(own, base) if record.duet else own, base)
    round_s = _round_s(record, judged)
    for percent in PERCENTS:
        effect = -math.log1p(-percent / 100.0)
        found = rounds_needed(differences, effect, bias=ratio.bias, each=each, places=record.duet)
        if found is not None:
            seconds = None if found.rounds is None else found.rounds * round_s
            yield Detection(
                environment.label,
                leading_metric(record),
                percent,
                found.rounds,
                found.low,
                found.high,
                seconds,
            )


def as_run(sample: Sample) -> Run:
    """The sample's value with its round, boot and place."""
    # Older versions of vtax ran every variant once in each round.
    own = sample.repetition if sample.round is None else sample.round
    return Run(own, sample.boot, sample.value, sample.cpus or "")


def _round_s(record: ComparisonRecord, judged: Sequence[Sample]) -> float:
    """The mean time of a round, in which all environments run, with the starts of machines if each
    repetition has one."""
    by_round: dict[int, list[float]] = {}
    for each in judged:
        by_round.setdefault(as_run(each).round, []).append(each.host_wall_s)
    together = max if record.duet else sum
    mean = statistics.fmean(together(times) for times in by_round.values())
    if record.reboot == "each":
        mean += sum(statistics.fmean(each.boot_s) for each in record.environments if each.boot_s)
    return mean
