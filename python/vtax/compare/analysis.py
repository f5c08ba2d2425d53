"""Results, verdicts and flags from the samples of a run; and the same as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vtax.compare.detection import as_run, detections
from vtax.compare.flags import Grouped, flags
from vtax.compare.nodes import spreads
from vtax.compare.repetitions import repetitions_needed
from vtax.core.formats.model import Better, ComparisonRecord, EnvironmentRecord, Sample
from vtax.core.statistics.clocks import clock_flags, program_times
from vtax.core.statistics.means import log_ratio_of_means, mixture, tail_ratio, unseen_percent
from vtax.core.statistics.places import placed
from vtax.core.statistics.results import Compared, Comparison, Result, Verdict
from vtax.core.statistics.rounds import Run, log_ratio, sign_flip_p
from vtax.core.statistics.statistics import (
    Description,
    Estimate,
    bounded_exp,
    derived_seed,
    describe,
    median_estimate,
    median_interval,
)
from vtax.core.statistics.verdicts import ERROR, both, judge, judge_control, smallest_detectable

_NOT_OF_WORKLOAD = {
    "kvm.": "this environment cannot read KVM's counters (capability kvm-counters)",
    "host.": "no host= says where this environment's host can be read",
    "host_cpu_s": "it is of --with host-cpu here, and of host= over ssh",
}
"""Why an environment lacks metrics that are not the workload's, by the beginnings of their
names."""
Expected = Sequence[tuple[str, str, Better]]
"""(name, unit, better) of metrics, in display order."""


@dataclass(frozen=True, slots=True)
class _Analysed:
    """One environment's values of one metric."""

    description: Description
    runs: Sequence[Run]
    """Empty when a value is not above zero."""
    interval: tuple[float, float] | None
    """The 95 % interval of the median, in the metric's unit."""


def compare(
    record: ComparisonRecord, samples: Sequence[Sample], run: str, expected: Expected | None = None
) -> Comparison:
    """Analyse a run, also one that is cut short or has no samples at all.

    `run` is its folder as shown to the user. `expected` are metrics that should be there: they come
    first and are listed as not measured where no environment gave them.
    """
    metrics = _metrics(samples, record.expected_metrics if expected is None else expected)
    grouped, found = _results(record, samples, metrics)
    by_clock = results(record, program_times(record, samples))
    return Comparison(
        run=run,
        record=record,
        baseline=_first_baseline(record),
        results=found,
        flags=(*flags(record, grouped, found), *clock_flags(record, by_clock)),
        nodes=spreads(record, samples),
        detection=detections(record, samples),
    )


def results(record: ComparisonRecord, samples: Sequence[Sample]) -> tuple[Result, ...]:
    """The results of these samples' metrics alone, without flags."""
    return _results(record, samples, _metrics(samples, ()))[1]


def _results(
    record: ComparisonRecord, samples: Sequence[Sample], metrics: Expected
) -> tuple[Grouped, tuple[Result, ...]]:
    grouped = by_metric(samples)
    analysed = {key: _analyse(values, record.seed) for key, values in grouped.items()}
    return grouped, tuple(
        _result(record, environment, metric, analysed)
        for environment in record.environments
        for metric in metrics
    )


def _first_baseline(record: ComparisonRecord) -> str:
    labels = [each.label for each in record.environments if each.role == "baseline"]
    return labels[0] if labels else ""


def by_metric(samples: Sequence[Sample]) -> dict[tuple[str, str], list[Sample]]:
    """Samples by environment and metric, in the order of running."""
    grouped: dict[tuple[str, str], list[Sample]] = {}
    for sample in sorted(samples, key=lambda each: each.position):
        grouped.setdefault((sample.environment, sample.metric), []).append(sample)
    return grouped


def _metrics(samples: Sequence[Sample], expected: Expected) -> list[tuple[str, str, Better]]:
    """Every metric once: the expected ones, then the others in the order in which they came."""
    found = {name: (name, unit, better) for name, unit, better in expected}
    for sample in samples:
        found.setdefault(sample.metric, (sample.metric, sample.unit, sample.better))
    return list(found.values())


def _analyse(samples: Sequence[Sample], seed: int) -> _Analysed:
    first = samples[0]
    values = [sample.value for sample in samples]
    boots = [sample.boot for sample in samples]
    own_seed = derived_seed(seed, first.environment, first.metric)
    positive = min(values) > 0
    estimate = median_estimate(values, boots, own_seed, log=positive)
    return _Analysed(
        describe(values, first.better),
        [as_run(sample) for sample in samples] if positive else (),
        median_interval(estimate, log=positive),
    )


def _result(
    record: ComparisonRecord,
    environment: EnvironmentRecord,
    metric: tuple[str, str, Better],
    analysed: Mapping[tuple[str, str], _Analysed],
) -> Result:
    name, _, better = metric
    own = analysed.get((environment.label, name))
    result = _measured(record, environment, metric, own)
    if own is None:
        return result
    if environment.baseline is None:
        return dataclasses.replace(
            result,
            percent_of_baseline=100.0,
            percent_of_baseline_best=100.0,
            verdict=Verdict.BASELINE,
        )
    base = analysed.get((environment.baseline, name))
    if base is None:
        reason = f"the baseline {environment.baseline} has no value"
        return dataclasses.replace(result, verdict=Verdict.NOT_COMPARED, reason=reason)
    percent = _percent(own.description.median, base.description.median, better)
    if percent is None:
        reason = "a value that is not above zero cannot be compared as a ratio"
        return dataclasses.replace(result, reason=reason)
    best = _percent(own.description.best, base.description.best, better)
    result = dataclasses.replace(result, percent_of_baseline=percent, percent_of_baseline_best=best)
    base_runs = _all_runs_of_baseline(record, environment, name, analysed)
    ratio, mean = (placed(each, own.runs, base_runs) for each in (log_ratio, log_ratio_of_means))
    if ratio is None or mean is None:
        return result
    performance = (ratio, mean) if better == "higher" else (-ratio, -mean)
    compared = _compared(result, *performance, record.margin_percent)
    compared = _with_tail(compared, own.runs, base_runs)
    if environment.role != "control":
        return compared
    questions = sum(label == environment.label for label, _ in analysed)
    # The sides of a duet do not change places in each round independently of the others.
    chance = None if record.duet else sign_flip_p(own.runs, base_runs, ERROR / questions)
    control = judge_control(ratio, record.margin_percent, questions, chance)
    return dataclasses.replace(compared, control=control)


def _all_runs_of_baseline(
    record: ComparisonRecord,
    environment: EnvironmentRecord,
    metric: str,
    analysed: Mapping[tuple[str, str], _Analysed],
) -> Sequence[Run]:
    """The baseline's runs and, unless the A/A control is judged, the control's: they are alike."""
    alike = [
        each.label
        for each in record.environments
        if each.label == environment.baseline
        or (each.role == "control" != environment.role and each.baseline == environment.baseline)
    ]
    return [run for label in alike if (own := analysed.get((label, metric))) for run in own.runs]


def _measured(
    record: ComparisonRecord,
    environment: EnvironmentRecord,
    metric: tuple[str, str, Better],
    own: _Analysed | None,
) -> Result:
    """The result of an environment without a comparison."""
    name, unit, better = metric
    description = own.description if own else None
    interval = own.interval if own else None
    return Result(
        environment=environment.label,
        workload=record.workload,
        metric=name,
        unit=unit,
        better=better,
        better_from=record.better_from.get(name),
        n=description.n if description else 0,
        best=description.best if description else None,
        median=description.median if description else None,
        stdev=description.stdev if description else None,
        median_low=interval[0] if interval else None,
        median_high=interval[1] if interval else None,
        percent_of_baseline=None,
        percent_of_baseline_best=None,
        ci_low=None,
        ci_high=None,
        verdict=Verdict.INCONCLUSIVE if own else Verdict.NOT_MEASURED,
        reason=None if own else why_not(record, environment.label, name),
        believed=all(
            each.believed for each in record.failures if each.environment == environment.label
        ),
    )


def why_not(record: ComparisonRecord, label: str, metric: str) -> str:
    """Why an environment has no value of a metric."""
    failed = [each for each in record.failures if each.environment == label]
    if failed:
        return f"{len(failed)} of {record.repetitions} repetitions failed: {failed[-1].message}"
    if record.state != "complete":
        return "the run ended before a repetition gave this value"
    own = next((why for name, why in _NOT_OF_WORKLOAD.items() if metric.startswith(name)), None)
    return own or "the workload gave no value here"


def _compared(result: Result, ratio: Estimate, mean: Estimate, margin: float) -> Result:
    """The result with what the logs of both performance ratios say."""
    typical, average = _estimand(ratio, margin), _estimand(mean, margin)
    verdict = both(typical.verdict, average.verdict)
    needed = None
    if verdict is Verdict.INCONCLUSIVE:
        # Where the typical run is decided, the verdict waits for the mean.
        waits = ratio if typical.verdict is Verdict.INCONCLUSIVE else mean
        needed = repetitions_needed(waits, margin, result.n)
    return dataclasses.replace(
        result,
        percent_of_baseline=typical.percent,
        ci_low=typical.low,
        ci_high=typical.high,
        verdict=verdict,
        smallest_detectable_percent=smallest_detectable(ratio),
        repetitions_needed=needed,
        typical=typical,
        mean=average,
        unseen_percent=unseen_percent(result.n),
        step_percent=100.0 * math.expm1(min(ratio.bias, 700.0)) if ratio.bias else None,
    )


def _estimand(ratio: Estimate, margin: float) -> Compared:
    half = ratio.half_width()
    return Compared(
        100.0 * bounded_exp(ratio.value),
        100.0 * bounded_exp(ratio.value - half),
        100.0 * bounded_exp(ratio.value + half),
        judge(ratio, margin),
    )


def _with_tail(result: Result, own: Sequence[Run], base: Sequence[Run]) -> Result:
    ours, theirs = ([run.value for run in side] for side in (own, base))
    tail = tail_ratio(ours, theirs, result.better)
    if tail is not None:
        tail = 100.0 * (tail if result.better == "higher" else 1.0 / tail)
    return dataclasses.replace(result, p95_percent_of_baseline=tail, mixture=mixture(ours))


def _percent(own: float, base: float, better: Better) -> float | None:
    """Performance as % of the baseline's: rates directly, times inverted.

    None when a value is not above zero, or the ratio is near the end of what a float holds.
    """
    if not (own > 0 and base > 0):
        return None
    percent = 100.0 * (own / base if better == "higher" else base / own)
    return percent if 1e-300 < percent < 1e300 else None
