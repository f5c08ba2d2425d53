"""What changed from an earlier run to this one, environment by environment, metric by metric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vtax.compare.analysis import by_metric, why_not
from vtax.compare.detection import as_run
from vtax.compare.history.surroundings import environments, unlike
from vtax.core.formats.model import Better, ComparisonRecord, Sample
from vtax.core.statistics.results import Verdict
from vtax.core.statistics.statistics import bounded_exp, derived_seed, median
from vtax.core.statistics.unpaired import log_ratio_of_medians
from vtax.core.statistics.verdicts import judge

_JUDGED = frozenset({Verdict.SLOWER, Verdict.FASTER, Verdict.EQUIVALENT, Verdict.INCONCLUSIVE})


@dataclass(frozen=True, slots=True)
class Measurements:
    """A run that was read, or has just ended."""

    run: str
    """Its folder as shown to the user."""
    record: ComparisonRecord
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class Change:
    """One environment and metric in both runs."""

    environment: str
    metric: str
    unit: str
    better: Better
    before: float | None
    after: float | None
    """Medians in the metric's unit; None: there is no value."""
    n_before: int
    n_after: int
    percent: float | None = None
    """Performance in percent of the earlier run's: above 100 is better for times and rates
    alike."""
    low: float | None = None
    high: float | None = None
    """Its 95 % interval."""
    verdict: Verdict = Verdict.NOT_COMPARED
    """Slower: the whole interval is beyond the margin. Not measured: the earlier run has values and
    this one, in the same environment, has none."""
    reason: str | None = None
    """Why there is no percentage, or no interval."""


@dataclass(frozen=True, slots=True)
class Changes:
    """A run against an earlier one."""

    against: str
    """The earlier run's folder."""
    commit_before: str | None
    commit: str | None
    margin_percent: float
    unlike: tuple[str, ...]
    """What else was otherwise in the earlier run."""
    changes: tuple[Change, ...]

    @property
    def worse(self) -> Sequence[Change]:
        """Those that fail: worse by more than the margin."""
        return self.of(Verdict.SLOWER)

    @property
    def is_whole(self) -> bool:
        """Whether something was judged, and nothing that the earlier run measured is missing."""
        judged = any(each.verdict in _JUDGED and each.low is not None for each in self.changes)
        return judged and not self.of(Verdict.NOT_MEASURED)

    def of(self, *verdicts: Verdict) -> Sequence[Change]:
        """Those with one of these verdicts."""
        return [each for each in self.changes if each.verdict in verdicts]


def changes(now: Measurements, then: Measurements, margin_percent: float) -> Changes:
    """Compare two runs of the same command; see `surroundings.require_same_command`."""
    return Changes(
        against=then.run,
        commit_before=then.record.commit,
        commit=now.record.commit,
        margin_percent=margin_percent,
        unlike=unlike(now.record, then.record),
        changes=tuple(_changes(now, then, margin_percent)),
    )


def _changes(now: Measurements, then: Measurements, margin: float) -> Iterator[Change]:
    ours, theirs = by_metric(now.samples), by_metric(then.samples)
    for label in environments(now.record) | environments(then.record):
        for key in dict.fromkeys(each for each in (*ours, *theirs) if each[0] == label):
            yield _change(now, then, (ours.get(key, []), theirs.get(key, [])), key, margin)


def _change(
    now: Measurements,
    then: Measurements,
    samples: tuple[Sequence[Sample], Sequence[Sample]],
    key: tuple[str, str],
    margin: float,
) -> Change:
    first = (samples[0] or samples[1])[0]
    ours, theirs = ([each.value for each in side] for side in samples)
    found = Change(
        environment=key[0],
        metric=key[1],
        unit=first.unit,
        better=first.better,
        before=median(theirs) if theirs else None,
        after=median(ours) if ours else None,
        n_before=len(theirs),
        n_after=len(ours),
    )
    if not ours and key[0] in environments(now.record):
        missing = why_not(now.record, *key)
        return replace(found, verdict=Verdict.NOT_MEASURED, reason=missing)
    if (reason := _incomparable(then.run, *samples)) is not None:
        return replace(found, reason=reason)
    return _judged(found, *samples, derived_seed(now.record.seed, *key), margin)


def _incomparable(run: str, ours: Sequence[Sample], theirs: Sequence[Sample]) -> str | None:
    """Why there is no ratio of the values; None: there is one."""
    if not ours:
        return "this run has no such environment"
    if not theirs:
        return f"{run} has no value"
    new, old = ours[0], theirs[0]
    if new.unit != old.unit:
        return f"its unit is {new.unit or 'none'}, was {old.unit or 'none'}"
    if new.better != old.better:
        return f"{new.better} is better, was {old.better}"
    if min(each.value for each in (*ours, *theirs)) <= 0:
        return "a value that is not above zero cannot be compared as a ratio"
    return None


def _judged(
    change: Change, ours: Sequence[Sample], theirs: Sequence[Sample], seed: int, margin: float
) -> Change:
    ratio = log_ratio_of_medians(list(map(as_run, ours)), list(map(as_run, theirs)), seed)
    if ratio is None:
        reason = "an interval needs two repetitions in each run"
        return replace(change, verdict=Verdict.INCONCLUSIVE, reason=reason)
    performance = ratio if change.better == "higher" else -ratio
    half = performance.half_width()
    return replace(
        change,
        percent=100.0 * bounded_exp(performance.value),
        low=100.0 * bounded_exp(performance.value - half),
        high=100.0 * bounded_exp(performance.value + half),
        verdict=judge(performance, margin),
    )
