"""What the samples of a sweep mean: results at each combination of values, and cliffs.

The run analyses what it has just measured, and `vtax report` what a run that was cut short left.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vtax.compare.sweep import cliff
from vtax.compare.sweep.parameters import Parameter
from vtax.compare.sweep.record import (
    ComparisonSweepRecord,
    SweepCliff,
    SweepPoint,
    SweepResult,
)
from vtax.core.formats.folder import JOURNAL, RunFolder, read_samples
from vtax.core.formats.model import ComparisonRecord, EnvironmentRecord, Sample
from vtax.core.statistics.results import Result


def point_seed(seed: int, number: int) -> int:
    """The seed of a combination's order and intervals, from that of the sweep."""
    return seed + number


def results(record: ComparisonRecord, samples: Sequence[Sample]) -> tuple[SweepResult, ...]:
    """Every metric of every environment at one combination."""
    if not samples:
        return ()
    # It imports numpy and polars: the first run does not wait for them.
    from vtax.compare import analysis

    return tuple(map(_result, analysis.results(record, samples)))


def cliffs(
    parameters: Sequence[Parameter],
    points: Sequence[SweepPoint],
    lead: str,
    environments: Sequence[EnvironmentRecord],
) -> tuple[SweepCliff, ...]:
    """The cliff of each measured environment along the one parameter, if its values are numbers;
    none along several."""
    if len(parameters) != 1 or parameters[0].numbers is None:
        return ()
    labels = [each.label for each in environments if each.role == "measured"]
    levels: dict[str, list[cliff.Level]] = {}
    for value, point in zip(parameters[0].numbers, points, strict=True):
        for each in point.results:
            known = each.ci_low is not None and each.ci_high is not None
            if each.metric == lead and known and each.environment in labels:
                level = cliff.Level(value, each.ci_low or 0.0, each.ci_high or 0.0)
                levels.setdefault(point.environments[each.environment], []).append(level)
    return tuple(
        SweepCliff(environment=name, metric=lead, past=cliff.past(own))
        for name, own in levels.items()
        if len(own) > 1
    )


def again(path: Path, record: ComparisonSweepRecord) -> ComparisonSweepRecord:
    """The record of a sweep with what its journal has, which becomes its table of samples.

    A sweep that ended has no journal, and its record is complete. One that another vtax is still
    writing is left to that process. Raises VtaxError for a damaged journal, or one of another run.
    """
    if not (path / JOURNAL).is_file():
        return record
    from vtax.core.formats.samples import foreign

    workloads = [each.workload for each in record.points]
    labels = [each.label for each in record.environments]
    samples = read_samples(path, lambda each: foreign(each, record.run_id, workloads, labels))
    found = analysed(record, samples)
    folder = RunFolder(path)
    if folder.claim():
        folder.write_record(found)
        folder.finish(samples)
        folder.release()
    return found


def analysed(record: ComparisonSweepRecord, samples: Sequence[Sample]) -> ComparisonSweepRecord:
    """The record with the results of these samples."""
    own: dict[str, list[Sample]] = {}
    for sample in samples:
        own.setdefault(sample.workload, []).append(sample)
    points = tuple(
        each.model_copy(
            update={"results": results(_comparison(record, number), own.get(each.workload, ()))}
        )
        for number, each in enumerate(record.points)
    )
    axes = [Parameter(*each) for each in record.parameters.items()]
    found = cliffs(axes, points, record.lead, record.environments)
    return record.model_copy(update={"points": points, "cliffs": found})


def _comparison(record: ComparisonSweepRecord, number: int) -> ComparisonRecord:
    """The comparison at a combination, as far as results depend on it."""
    point = record.points[number]
    return ComparisonRecord(
        vtax_version=record.vtax_version,
        command_line=record.command_line,
        name=record.name,
        started_utc=record.started_utc,
        workload=point.workload,
        workload_parameters={},
        repetitions=record.repetitions,
        reboot="never",
        budget_s=None,
        margin_percent=record.margin_percent,
        seed=point_seed(record.seed, number),
        order=(),
        environments=tuple(
            each for each in record.environments if each.label in point.environments
        ),
    )


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
