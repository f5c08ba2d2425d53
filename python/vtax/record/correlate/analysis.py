"""Which events rise and fall together, on average over runs, and what virtualization changes in
that.

Rates of the intervals of one CPU (or task, or vCPU) give a correlation per pair of events and
series, given the length of the intervals (conditioning.py). The correlation is shown as it is, and
tested with the series' movements evened out (autocorrelation.py): Fisher's transformation z =
atanh(r) makes that about normal with a variance of 1/(n - 3 - c) (Pearson; Fisher 1924) or 1.06/(n
- 3 - c) (Spearman; Fieller, Hartley & Pearson 1957), n being the effective number of intervals and
c the number of variables removed. docs/record.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vtax.core.recorder.intervals import Event, Recording, merged, rates, series
from vtax.core.recorder.ways import By, Detrend, Method, Per
from vtax.record.correlate.autocorrelation import Floats, effective_sizes, weighed
from vtax.record.correlate.conditioning import conditioned, constant
from vtax.record.correlate.discoveries import adjusted

if TYPE_CHECKING:
    import polars as pl

MIN_ROWS = 20
"""No correlation is calculated from fewer intervals in which both events were measured."""
MIN_EFFECTIVE = 8.0
"""A correlation from fewer effective intervals is shown but not judged: its z is not normal."""
_LARGEST_R = 1.0 - 1e-9
"""The largest correlation that is transformed: Fisher's z of 1 is infinite."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Correlations of k events, each array k x k and symmetric; NaN is "cannot be said"."""

    events: tuple[str, ...]
    method: Method
    detrend: Detrend
    per: Per
    r: Floats
    """Averaged over runs by way of atanh."""
    z: Floats
    """What is tested: atanh of the correlation of evened-out movements, averaged over runs."""
    variance: Floats
    """The variance of z, with what runs differ by; NaN where z is not judged."""
    between: Floats
    """The part of the variance that comes from differences between runs."""
    runs: NDArray[np.int64]
    """Runs that gave a correlation of the pair."""
    intervals: NDArray[np.int64]
    """Rows in which both events were measured, over all series and runs."""
    effective: Floats
    """How many independent intervals these are worth."""
    p: Floats
    q: Floats
    """p after correction for all pairs of the matrix."""
    alpha: float
    left_out: tuple[tuple[str, str], ...]
    """Events without any correlation, and why."""

    @property
    def significant(self) -> NDArray[np.bool_]:
        return self.q <= self.alpha


@dataclass(frozen=True, slots=True)
class Change:
    """One relationship in two sets of runs."""

    first: str
    second: str
    ours: float
    theirs: float
    score: float
    """Difference of the averaged z over its standard error; NaN where it is not judged."""
    p: float
    q: float
    significant: bool

    @property
    def difference(self) -> float:
        return self.ours - self.theirs


@dataclass(frozen=True, slots=True)
class Difference:
    """Two matrices over the events that both have; significant changes first, the largest ahead."""

    events: tuple[str, ...]
    r: Floats
    """The first matrix's correlations minus the second's."""
    q: Floats
    alpha: float
    changes: tuple[Change, ...]
    only_ours: tuple[str, ...]
    only_theirs: tuple[str, ...]

    @property
    def significant(self) -> NDArray[np.bool_]:
        return self.q <= self.alpha


@dataclass(frozen=True, slots=True)
class _Estimates:
    """z, its variance and what it is made from, for one series or one run (all k x k)."""

    shown: Floats
    """atanh of the correlation as it is."""
    z: Floats
    """atanh of the correlation of evened-out movements."""
    variance: Floats
    intervals: Floats
    effective: Floats


def correlate(
    recordings: Sequence[Recording],
    events: Sequence[Event],
    *,
    method: Method = Method.SPEARMAN,
    detrend: Detrend = Detrend.NONE,
    by: By = By.CPU,
    per: Per = Per.GIGA_INSTRUCTION,
    merge: int = 1,
    alpha: float = 0.05,
) -> Matrix:
    """The matrix of `events` over all recordings, each of which is one run.

    An event that a recording lacks counts as not measured in that recording. Events that are
    nowhere measured often enough, never vary or are determined by the rows' length are left out of
    the matrix and named in `left_out`.
    """
    reasons: dict[str, str] = {}
    found = []
    for recording in recordings:
        ones = []
        for _, rows in series(recording, by):
            made = merged(rows, _present(rows, events), merge)
            lengths = _lengths(made, per)
            values = _values(made, lengths, events, per)
            reasons |= _reasons(values, lengths, events, method, reasons)
            ones.append(correlations(values, lengths, method, detrend))
        if ones:
            found.append(_within_run(ones))
    if not found:
        found = [_nothing(len(events))]
    whole = _over_runs(found)
    kept = [i for i in range(len(events)) if np.isfinite(np.delete(whole.shown[i], i)).any()]
    for i, first in _twins(whole.shown, kept):
        reasons[events[i].name] = f"the same as {events[first].name}"
        kept.remove(i)
    names = tuple(events[i].name for i in kept)
    gone = [event.name for event in events if event.name not in names]
    left_out = tuple((name, reasons.get(name) or "no event to compare it with") for name in gone)
    return _matrix(whole, kept, names, method, detrend, per, alpha, left_out)


def difference(ours: Matrix, theirs: Matrix) -> Difference:
    """What changes between two matrices of the same method and unit, over the events of both.

    The test is (z1 - z2) over its standard error against the normal distribution: how much runs
    differ is pooled over all pairs, and so is well known even from few runs.
    """
    common = tuple(name for name in ours.events if name in theirs.events)
    a = [ours.events.index(name) for name in common]
    b = [theirs.events.index(name) for name in common]
    one, two = np.ix_(a, a), np.ix_(b, b)
    # The diagonal, an infinite z, is no change.
    gap = np.where(np.eye(len(common), dtype=np.bool_), 0.0, ours.z[one]) - np.where(
        np.eye(len(common), dtype=np.bool_), 0.0, theirs.z[two]
    )
    variance = ours.variance[one] + theirs.variance[two]
    p = _two_sided(gap, variance)
    q = _corrected(p)
    rows = []
    for i, j in zip(*np.triu_indices(len(common), k=1), strict=True):
        if not np.isfinite(gap[i, j]):
            continue
        ends = (float(ours.r[a[i], a[j]]), float(theirs.r[b[i], b[j]]))
        score = float(gap[i, j] / np.sqrt(variance[i, j]))
        found = bool(q[i, j] <= ours.alpha)
        tests = (score, float(p[i, j]), float(q[i, j]))
        rows.append(Change(common[i], common[j], *ends, *tests, found))
    return Difference(
        common,
        ours.r[one] - theirs.r[two],
        q,
        ours.alpha,
        tuple(sorted(rows, key=_rank)),
        tuple(name for name in ours.events if name not in theirs.events),
        tuple(name for name in theirs.events if name not in ours.events),
    )


def correlations(
    values: Floats, lengths: Floats, method: Method, detrend: Detrend = Detrend.NONE
) -> _Estimates:
    """The estimates of one series: `values` is n x k in the order of time, NaN where not measured.

    Each pair uses the rows that have both. Columns measured in the same rows are taken together.
    """
    k = values.shape[1]
    result = _nothing(k)
    present = ~np.isnan(values)
    groups: dict[bytes, list[int]] = {}
    for column in range(k):
        groups.setdefault(present[:, column].tobytes(), []).append(column)
    blocks = list(groups.values())
    for at, first in enumerate(blocks):
        for second in blocks[at:]:
            rows = present[:, first[0]] & present[:, second[0]]
            columns = first if second is first else first + second
            if rows.sum() >= MIN_ROWS:
                made = conditioned(values[rows][:, columns], lengths[rows], method, detrend)
                _fill(result, *made, columns, method)
    return result


def never_together(recording: Recording, events: Sequence[Event], by: By) -> int:
    """The smallest number of rows to merge so that events that took turns meet; 1 if all do.

    It is the longest gap, in rows, in the values of one of them, plus one.
    """
    longest = 1
    for _, rows in series(recording, by):
        for event in _present(rows, events):
            indices = np.flatnonzero(rows[event.name].is_not_null().to_numpy())
            if 0 < indices.size < rows.height:
                longest = max(longest, int(np.diff(indices, prepend=-1).max()))
    return longest


def _present(rows: pl.DataFrame, events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.name in rows.columns]


def _values(rows: pl.DataFrame, lengths: Floats, events: Sequence[Event], per: Per) -> Floats:
    """An n x k array: NaN where not measured, in columns that these rows lack, and in rows of no
    length."""
    table = rates(rows, _present(rows, events), per)
    columns = [
        table[event.name].fill_null(float("nan")).to_numpy()
        if event.name in table.columns
        else np.full(rows.height, np.nan)
        for event in events
    ]
    values = np.column_stack(columns) if columns else np.empty((rows.height, 0))
    return np.where(np.isfinite(values) & np.isfinite(lengths)[:, None], values, np.nan)


def _lengths(rows: pl.DataFrame, per: Per) -> Floats:
    """The length of each row; NaN where a row has none."""
    lengths = rows[per.column].cast(float).fill_null(float("nan")).to_numpy()
    return np.where(lengths > 0, lengths, np.nan)


def _reasons(
    values: Floats,
    lengths: Floats,
    events: Sequence[Event],
    method: Method,
    known: dict[str, str],
) -> dict[str, str]:
    """Why each event that can have no correlation in this series has none."""
    found = {}
    for column, event in enumerate(events):
        rows = ~np.isnan(values[:, column])
        present = values[rows, column][:, None]
        if not present.size:
            found[event.name] = known.get(event.name, "not measured")
        elif present.size < MIN_ROWS:
            found[event.name] = f"measured in fewer than {MIN_ROWS} intervals"
        elif constant(present)[0]:
            found[event.name] = "constant"
        elif not conditioned(present, lengths[rows], method, Detrend.NONE)[0].any():
            found[event.name] = "determined by the intervals' length; another --per may show it"
    return found


def _nothing(k: int) -> _Estimates:
    nan = np.full((k, k), np.nan)
    return _Estimates(nan, nan.copy(), nan.copy(), np.zeros((k, k)), np.zeros((k, k)))


def _fill(
    result: _Estimates, values: Floats, removed: int, columns: Sequence[int], method: Method
) -> None:
    """Writes the estimates of these columns, which have no gap in these rows, into the matrix."""
    varying = np.flatnonzero(~constant(values))
    if varying.size < 2:
        return
    values = values[:, varying]
    even = weighed(values)
    effective = effective_sizes(even)
    free = np.where(effective - removed >= MIN_EFFECTIVE, effective - removed, np.nan)
    own = np.asarray(columns)[varying]
    indices = np.ix_(own, own)
    result.shown[indices] = _fisher(np.atleast_2d(np.corrcoef(values, rowvar=False)))
    result.z[indices] = _fisher(even.T @ even)
    result.variance[indices] = method.variance / (free - 3.0)
    result.intervals[indices] = len(values)
    result.effective[indices] = effective


def _fisher(r: Floats) -> Floats:
    return np.asarray(np.arctanh(np.clip(r, -_LARGEST_R, _LARGEST_R)), dtype=np.float64)


def _within_run(ones: Sequence[_Estimates]) -> _Estimates:
    """The weighted mean over the series of one run, with the weighted mean of the variances.

    CPUs of one machine see the same phases, so several are not taken as independent: the variance
    of a weighted mean is at most the weighted mean of the variances, whatever their dependence.
    """
    shown, z = np.stack([one.shown for one in ones]), np.stack([one.z for one in ones])
    variance = np.stack([one.variance for one in ones])
    weight = np.where(np.isnan(variance) | np.isnan(z), 0.0, 1.0 / variance)
    judged = weight.sum(axis=0) > 0
    # Series too short to be judged count only where no other series says anything.
    weight = np.where(judged, weight, np.where(np.isnan(z), 0.0, 1.0))
    total = weight.sum(axis=0)
    share = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    return _Estimates(
        np.where(total > 0, (share * np.nan_to_num(shown)).sum(axis=0), np.nan),
        np.where(total > 0, (share * np.nan_to_num(z)).sum(axis=0), np.nan),
        np.where(judged, (share * np.nan_to_num(variance)).sum(axis=0), np.nan),
        np.stack([one.intervals for one in ones]).sum(axis=0),
        np.stack([one.effective for one in ones]).sum(axis=0),
    )


@dataclass(frozen=True, slots=True)
class _Average:
    shown: Floats
    z: Floats
    variance: Floats
    between: Floats
    runs: NDArray[np.int64]
    intervals: Floats
    effective: Floats


def _over_runs(found: Sequence[_Estimates]) -> _Average:
    """The average over runs that may differ (random effects: DerSimonian & Laird 1986)."""
    z = np.stack([one.z for one in found])
    variance = np.stack([one.variance for one in found])
    known = ~(np.isnan(z) | np.isnan(variance))
    weight = np.where(known, 1.0 / np.where(known, variance, 1.0), 0.0)
    values = np.nan_to_num(z)
    count = known.sum(axis=0)
    total = weight.sum(axis=0)
    safe = np.where(total > 0, total, 1.0)
    centre = (weight * values).sum(axis=0) / safe
    scatter = (weight * (values - centre) ** 2).sum(axis=0)
    slack = safe - (weight**2).sum(axis=0) / safe
    excess = np.maximum(scatter - (count - 1), 0.0)
    tau = np.where(count > 1, excess / np.where(count > 1, slack, 1.0), 0.0)
    tau = np.where(count > 1, np.maximum(tau, _typical(tau, count > 1)), 0.0)
    weight = np.where(known, 1.0 / np.where(known, variance + tau, 1.0), 0.0)
    spread = weight.sum(axis=0)
    judged = count > 0
    spread = np.where(judged, spread, 1.0)
    # A pair that no run can judge is shown as the plain mean.
    some = (~np.isnan(z)).sum(axis=0)
    share = np.where(judged, weight / spread, 1.0 / np.maximum(some, 1))
    shown = (share * np.nan_to_num(np.stack([one.shown for one in found]))).sum(axis=0)
    return _Average(
        np.where(some > 0, shown, np.nan),
        np.where(some > 0, (share * values).sum(axis=0), np.nan),
        np.where(judged, 1.0 / spread, np.nan),
        np.where(judged, np.maximum(1.0 / spread - 1.0 / safe, 0.0), 0.0),
        np.where(judged, count, some).astype(np.int64),
        np.stack([one.intervals for one in found]).sum(axis=0),
        np.stack([one.effective for one in found]).sum(axis=0),
    )


def _typical(tau: Floats, known: NDArray[np.bool_]) -> float:
    """The mean over all pairs of how much runs differ.

    From a few runs the estimate of a single pair is often zero by chance. No pair's runs are taken
    to differ less than those of pairs on average: without that, 2 runs a side made the test of a
    difference wrong in 16 of 100 matrices and 3 runs in 9, with it in 1 and 3
    (tests/record/test_correlate.py).
    """
    above = known & ~np.eye(known.shape[0], dtype=np.bool_)
    return float(tau[above].mean()) if above.any() else 0.0


def _matrix(
    whole: _Average,
    kept: Sequence[int],
    names: tuple[str, ...],
    method: Method,
    detrend: Detrend,
    per: Per,
    alpha: float,
    left_out: tuple[tuple[str, str], ...],
) -> Matrix:
    indices = np.ix_(list(kept), list(kept))
    z, variance = whole.z[indices].copy(), whole.variance[indices].copy()
    r = np.tanh(whole.shown[indices])
    np.fill_diagonal(r, 1.0)
    np.fill_diagonal(z, np.inf)
    np.fill_diagonal(variance, np.nan)
    between, runs = whole.between[indices], whole.runs[indices]
    p = _two_sided(z, variance)
    return Matrix(
        names,
        method,
        detrend,
        per,
        r,
        z,
        variance,
        between,
        runs,
        whole.intervals[indices].astype(np.int64),
        whole.effective[indices],
        p,
        _corrected(p),
        alpha,
        left_out,
    )


def _two_sided(z: Floats, variance: Floats) -> Floats:
    # special and not stats: importing scipy.stats takes most of a second.
    from scipy.special import ndtr

    with np.errstate(invalid="ignore"):
        score = -np.abs(z) / np.sqrt(variance)
    return np.asarray(2.0 * ndtr(score), dtype=np.float64)


def _corrected(p: Floats) -> Floats:
    """p corrected over the pairs above the diagonal, written to both sides of it."""
    upper = np.triu_indices(p.shape[0], k=1)
    q = np.full(p.shape, np.nan)
    q[upper] = adjusted(p[upper])
    return np.where(np.isnan(q), q.T, q)


def _rank(change: Change) -> tuple[bool, float, str, str]:
    """The order of changes: significant ones first, the largest ahead."""
    return (not change.significant, -abs(change.difference), change.first, change.second)


def _twins(z: Floats, kept: Sequence[int]) -> list[tuple[int, int]]:
    """Events that rise and fall exactly as an earlier one does, each with that earlier one.

    Cycles per instruction are CPI, and every VM exit is followed by an entry. To list one quantity
    twice only adds tests whose outcome is certain.
    """
    same = np.arctanh(_LARGEST_R) * (1.0 - 1e-6)
    found = []
    for at, i in enumerate(kept):
        first = next((j for j in kept[:at] if z[i, j] >= same), None)
        if first is not None:
            found.append((i, first))
    return found


def pairs(matrix: Matrix) -> Iterable[tuple[int, int]]:
    """Pairs above the diagonal that have a correlation, the strongest first."""
    upper = zip(*np.triu_indices(len(matrix.events), k=1), strict=True)
    found = [(int(i), int(j)) for i, j in upper if np.isfinite(matrix.r[i, j])]
    return sorted(found, key=lambda pair: -abs(matrix.r[pair]))
