"""What is left of events once the length of their rows, and if wished their trend, is known.

Rates that share a divisor are correlated by it (Pearson 1897), and counts by the length in which
they were counted. So each pair is correlated given the length: the parts that the length predicts
are removed from both, by least squares. Ranks are predicted by a cubic of the length's rank, values
by the length and its reciprocal, which is what a count with a fixed part and a share has as a rate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vtax.core.recorder.ways import Detrend, Method

Floats = NDArray[np.float64]

_CONSTANT = 1e-9
"""A series whose standard deviation is a smaller share of its size varies by rounding only."""
_DETERMINED = 1e-6
"""A series that keeps a smaller share of its standard deviation is determined by the rest."""


def constant(values: Floats) -> NDArray[np.bool_]:
    """For each column, whether it is constant."""
    scale = np.abs(values).max(axis=0)
    return np.asarray(values.std(axis=0) <= _CONSTANT * scale, dtype=np.bool_)


def conditioned(
    values: Floats, lengths: Floats, method: Method, detrend: Detrend
) -> tuple[Floats, int]:
    """How `values` (n x k, no gaps) deviate from what is expected, and how many variables were
    removed.

    A column that the length determines is 0 throughout. `DIFFERENCE` gives n - 1 rows.
    """
    ranked = method is Method.SPEARMAN
    scores = ranks(values) if ranked else values - values.mean(axis=0)
    known = _terms(lengths, ranked)
    if detrend is Detrend.LINEAR:
        known = np.column_stack([known, np.arange(len(values), dtype=np.float64)])
    left, removed = _without(scores - scores.mean(axis=0), known)
    left[:, left.std(axis=0) <= _DETERMINED * scores.std(axis=0)] = 0.0
    return (np.diff(left, axis=0) if detrend is Detrend.DIFFERENCE else left), removed


def ranks(values: Floats) -> Floats:
    """The ranks of each column's values; ties share the mean of their ranks."""
    import polars as pl

    columns = [pl.Series(column).rank("average").to_numpy() for column in values.T]
    return np.column_stack(columns).astype(np.float64)


def _terms(lengths: Floats, ranked: bool) -> Floats:
    """What predicts an event from the length; no column where the length does not vary."""
    if constant(lengths[:, None])[0]:
        return np.empty((lengths.size, 0))
    if not ranked:
        return np.column_stack([lengths, 1.0 / lengths])
    rank = ranks(lengths[:, None])[:, 0]
    powers = np.polynomial.legendre.legvander(2.0 * rank / lengths.size - 1.0, 3)
    return np.asarray(powers[:, 1:], dtype=np.float64)


def _without(values: Floats, known: Floats) -> tuple[Floats, int]:
    """`values` less their least-squares fit by `known`, and how many independent columns it has."""
    if not known.shape[1]:
        return values, 0
    known = known - known.mean(axis=0)
    known = known / known.std(axis=0)
    fit, _, rank, _ = np.linalg.lstsq(known, values, rcond=_CONSTANT)
    return np.asarray(values - known @ fit, dtype=np.float64), int(rank)
