"""Which events rise and fall together, on average over runs, and what virtualization changes of it.

Rates of the intervals of one CPU (or task, or vCPU) give a correlation per pair of events and
series; Fisher's transformation z = atanh(r) makes it about normal with a variance of 1/(n - 3)
(Pearson; Fisher 1921) or 1.06/(n - 3) (Spearman; Fieller, Hartley & Pearson 1957), n being the
effective number of intervals. Averages and tests are of z; docs/correlation.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vtax.analysis.autocorrelation import Floats, effective_sizes
from vtax.analysis.discoveries import adjusted
from vtax.analysis.intervals import By, Event, Per, Recording, merged, rates, series

if TYPE_CHECKING:
    import polars as pl

MIN_ROWS = 20
"""Fewer intervals in which both events were measured give no correlation."""
MIN_EFFECTIVE = 6.0
"""A correlation from fewer effective intervals is shown but not judged: its z is not normal."""
_LARGEST_R = 1.0 - 1e-9
"""Fisher's z of 1 is infinite."""
_CONSTANT = 1e-9
"""A series whose standard deviation is a smaller share of its mean varies by rounding only."""


class Method(StrEnum):
    """Of linear relations, or of any that rise or fall throughout."""

    PEARSON = "pearson"
    SPEARMAN = "spearman"

    @property
    def variance(self) -> float:
        """Of z, times n - 3."""
        return {"pearson": 1.0, "spearman": 1.06}[self]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Correlations of k events, each array k x k and symmetric; NaN is "cannot be said"."""

    events: tuple[str, ...]
    method: Method
    per: Per
    z: Floats
    """Averaged over runs."""
    variance: Floats
    """Of z, with what runs differ by; NaN where it is not judged."""
    between: Floats
    """The part of the variance that comes from differences between runs."""
    runs: NDArray[np.int64]
    """Runs that gave a correlation of the pair."""
    intervals: NDArray[np.int64]
    """Rows in which both were measured, over all series and runs."""
    effective: Floats
    """How many independent ones these are worth."""
    p: Floats
    q: Floats
    """p after correction for all pairs of the matrix."""
    alpha: float
    left_out: tuple[tuple[str, str], ...]
    """Events without any correlation, and why."""
    varying_length: float
    """The largest coefficient of variation of the rows' length in any series."""

    @property
    def r(self) -> Floats:
        """Averaged correlations: tanh of the average z."""
        return np.asarray(np.tanh(self.z), dtype=np.float64)

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
    """Difference of the averaged z over its standard error; NaN when it is not judged."""
    p: float
    q: float
    significant: bool

    @property
    def difference(self) -> float:
        return self.ours - self.theirs


@dataclass(frozen=True, slots=True)
class Difference:
    """Two matrices over the events they share; significant changes first, the largest ahead."""

    events: tuple[str, ...]
    r: Floats
    """Ours minus theirs."""
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
    """Of one series or one run: z, its variance and what it is made from (all k x k)."""

    z: Floats
    variance: Floats
    intervals: Floats
    effective: Floats


def correlate(
    recordings: Sequence[Recording],
    events: Sequence[Event],
    *,
    method: Method = Method.PEARSON,
    by: By = By.CPU,
    per: Per = Per.GIGA_INSTRUCTION,
    merge: int = 1,
    alpha: float = 0.05,
) -> Matrix:
    """The matrix of `events` over all recordings, each of which is one run.

    An event that a recording does not have counts as not measured there. Events that are nowhere
    measured often enough or never vary are left out of the matrix and named in `left_out`.
    """
    reasons: dict[str, str] = {}
    found, spread = [], 0.0
    for recording in recordings:
        ones = []
        for _, rows in series(recording, by):
            made = merged(rows, _present(rows, events), merge)
            spread = max(spread, _spread(made, per))
            values = _values(made, events, per)
            reasons |= _reasons(values, events, reasons)
            ones.append(correlations(values, method))
        if ones:
            found.append(_within_run(ones))
    if not found:
        found = [_nothing(len(events))]
    whole = _over_runs(found)
    kept = [i for i in range(len(events)) if np.isfinite(np.delete(whole.z[i], i)).any()]
    for i, first in _twins(whole.z, kept):
        reasons[events[i].name] = f"the same as {events[first].name}"
        kept.remove(i)
    names = tuple(events[i].name for i in kept)
    gone = [event.name for event in events if event.name not in names]
    left_out = tuple((name, reasons.get(name) or "no event to compare it with") for name in gone)
    return _matrix(whole, kept, names, method, per, alpha, left_out, spread)


def difference(ours: Matrix, theirs: Matrix) -> Difference:
    """What changes between two matrices of the same method and unit, over the events of both.

    Tested by (z1 - z2) over its standard error against the normal distribution: how much runs
    differ is pooled over all pairs and so well known even from few runs.
    """
    common = tuple(name for name in ours.events if name in theirs.events)
    a = [ours.events.index(name) for name in common]
    b = [theirs.events.index(name) for name in common]
    one, two = np.ix_(a, a), np.ix_(b, b)
    # The diagonal, an infinite z, is nobody's change.
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


def correlations(values: Floats, method: Method) -> _Estimates:
    """Of one series: `values` is n x k in the order of time, NaN where not measured.

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
            _fill(result, values[rows][:, columns], columns, method)
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


def _values(rows: pl.DataFrame, events: Sequence[Event], per: Per) -> Floats:
    """n x k; a column that these rows lack is NaN throughout."""
    table = rates(rows, _present(rows, events), per)
    columns = [
        table[event.name].fill_null(float("nan")).to_numpy()
        if event.name in table.columns
        else np.full(rows.height, np.nan)
        for event in events
    ]
    values = np.column_stack(columns) if columns else np.empty((rows.height, 0))
    return np.where(np.isfinite(values), values, np.nan)


def _spread(rows: pl.DataFrame, per: Per) -> float:
    """The coefficient of variation of the rows' lengths."""
    lengths = rows[per.column].drop_nulls().cast(float).to_numpy()
    return float(lengths.std() / lengths.mean()) if lengths.size and lengths.mean() > 0 else 0.0


def _reasons(values: Floats, events: Sequence[Event], known: dict[str, str]) -> dict[str, str]:
    """Why an event can have no correlation in this series."""
    found = {}
    for column, event in enumerate(events):
        present = values[~np.isnan(values[:, column]), column]
        if not present.size:
            found[event.name] = known.get(event.name, "not measured")
        elif present.size < MIN_ROWS:
            found[event.name] = f"measured in fewer than {MIN_ROWS} intervals"
        elif _constant(present[:, None])[0]:
            found[event.name] = "constant"
    return found


def _constant(values: Floats) -> NDArray[np.bool_]:
    scale = np.abs(values).max(axis=0)
    return np.asarray(values.std(axis=0) <= _CONSTANT * scale, dtype=np.bool_)


def _nothing(k: int) -> _Estimates:
    nan = np.full((k, k), np.nan)
    return _Estimates(nan, nan.copy(), np.zeros((k, k)), np.zeros((k, k)))


def _fill(result: _Estimates, values: Floats, columns: Sequence[int], method: Method) -> None:
    """Writes the estimates of these columns, which have no gap in these rows, into the matrix."""
    n = values.shape[0]
    if n < MIN_ROWS:
        return
    varying = np.flatnonzero(~_constant(values))
    if varying.size < 2:
        return
    scored = values[:, varying]
    if method is Method.SPEARMAN:
        scored = _ranks(scored)
    r = np.clip(np.corrcoef(scored, rowvar=False), -_LARGEST_R, _LARGEST_R)
    effective = effective_sizes(scored)
    judged = np.where(effective >= MIN_EFFECTIVE, effective, np.nan)
    own = np.asarray(columns)[varying]
    indices = np.ix_(own, own)
    result.z[indices] = np.arctanh(r)
    result.variance[indices] = method.variance / (judged - 3.0)
    result.intervals[indices] = n
    result.effective[indices] = effective


def _ranks(values: Floats) -> Floats:
    """Of each column, ties sharing the mean of their ranks."""
    import polars as pl

    columns = [pl.Series(values[:, i]).rank("average").to_numpy() for i in range(values.shape[1])]
    return np.column_stack(columns).astype(np.float64)


def _within_run(ones: Sequence[_Estimates]) -> _Estimates:
    """The weighted mean over the series of one run, with the weighted mean of their variances.

    CPUs of one machine see the same phases, so several are not taken as independent: the variance
    of a weighted mean is at most the weighted mean of the variances, whatever their dependence.
    """
    z = np.stack([one.z for one in ones])
    variance = np.stack([one.variance for one in ones])
    weight = np.where(np.isnan(variance) | np.isnan(z), 0.0, 1.0 / variance)
    judged = weight.sum(axis=0) > 0
    # Series too short to be judged count only where no other says anything.
    weight = np.where(judged, weight, np.where(np.isnan(z), 0.0, 1.0))
    total = weight.sum(axis=0)
    share = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    return _Estimates(
        np.where(total > 0, (share * np.nan_to_num(z)).sum(axis=0), np.nan),
        np.where(judged, (share * np.nan_to_num(variance)).sum(axis=0), np.nan),
        np.stack([one.intervals for one in ones]).sum(axis=0),
        np.stack([one.effective for one in ones]).sum(axis=0),
    )


@dataclass(frozen=True, slots=True)
class _Average:
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
    mean = (weight * values).sum(axis=0) / spread
    # A pair that no run can judge is shown as the plain mean.
    shown = (~np.isnan(z)).sum(axis=0)
    plain = np.where(shown > 0, values.sum(axis=0) / np.maximum(shown, 1), np.nan)
    return _Average(
        np.where(judged, mean, plain),
        np.where(judged, 1.0 / spread, np.nan),
        np.where(judged, np.maximum(1.0 / spread - 1.0 / safe, 0.0), 0.0),
        np.where(judged, count, shown).astype(np.int64),
        np.stack([one.intervals for one in found]).sum(axis=0),
        np.stack([one.effective for one in found]).sum(axis=0),
    )


def _typical(tau: Floats, known: NDArray[np.bool_]) -> float:
    """The mean over all pairs of how much runs differ.

    From a few runs the estimate of a single pair is often zero by chance. No pair is taken to
    differ less than pairs do on average: without that, 3 runs a side made the test of a difference
    wrong in 16 % of all matrices, with it in about 5 % (tests/cli/test_correlate.py).
    """
    above = known & ~np.eye(known.shape[0], dtype=np.bool_)
    return float(tau[above].mean()) if above.any() else 0.0


def _matrix(
    whole: _Average,
    kept: Sequence[int],
    names: tuple[str, ...],
    method: Method,
    per: Per,
    alpha: float,
    left_out: tuple[tuple[str, str], ...],
    spread: float,
) -> Matrix:
    indices = np.ix_(list(kept), list(kept))
    z, variance = whole.z[indices].copy(), whole.variance[indices].copy()
    np.fill_diagonal(z, np.inf)
    np.fill_diagonal(variance, np.nan)
    between, runs = whole.between[indices], whole.runs[indices]
    p = _two_sided(z, variance)
    return Matrix(
        names,
        method,
        per,
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
        spread,
    )


def _two_sided(z: Floats, variance: Floats) -> Floats:
    # special and not stats: importing scipy.stats takes most of a second.
    from scipy.special import ndtr

    with np.errstate(invalid="ignore"):
        score = -np.abs(z) / np.sqrt(variance)
    return np.asarray(2.0 * ndtr(score), dtype=np.float64)


def _corrected(p: Floats) -> Floats:
    """Corrected over the pairs above the diagonal, written to both sides of it."""
    upper = np.triu_indices(p.shape[0], k=1)
    q = np.full(p.shape, np.nan)
    q[upper] = adjusted(p[upper])
    return np.where(np.isnan(q), q.T, q)


def _rank(change: Change) -> tuple[bool, float, str, str]:
    """Significant ones first, the largest change before smaller ones."""
    return (not change.significant, -abs(change.difference), change.first, change.second)


def _twins(z: Floats, kept: Sequence[int]) -> list[tuple[int, int]]:
    """Events that rise and fall exactly as an earlier one, with that one.

    Cycles per instruction are CPI, and every exit is followed by an entry: to list one quantity
    twice only adds tests and certain findings.
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
    found = [(int(i), int(j)) for i, j in upper if np.isfinite(matrix.z[i, j])]
    return sorted(found, key=lambda pair: -abs(matrix.z[pair]))
