"""Whether series that remember their past, wander or come in bursts are related at all.

Two series without any relation still look correlated when both move slowly, or when the few values
that weigh most meet by chance. A cosine transform turns a series into movements that are nearly
independent of each other (approximately for a stationary series, exactly for a random walk). Each
pair of movements of two unrelated series then has a product of either sign with equal probability,
so the sum of products over the root of the sum of their squares is at most about standard normal,
whatever the sizes of the movements: Student's t under symmetry (Efron 1969). The same holds in time
for values, and for stretches of time when values keep together. The largest of the three sums of
squares says how many independent values the series is worth.

Before that, the movements are brought halfway to one size: otherwise the slowest alone would
decide, and there are too few of these to tell anything.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STRETCHES = 50
"""With fewer stretches, strong relations stay unproven; with more, bursts outlast a stretch."""


def weighed(values: Floats) -> Floats:
    """Columns of n x k (none constant) with mean 0 and length 1, their movements evened out.

    Each movement is divided by the root of the amplitude of its neighbours in frequency.
    """
    from scipy.fft import dct, idct
    from scipy.ndimage import uniform_filter1d

    n = values.shape[0]
    movements = dct(values, norm="ortho", axis=0)
    near = 2 * max(2, round(math.sqrt(n) / 4)) + 1
    power = uniform_filter1d(movements[1:] ** 2, near, axis=0, mode="reflect")
    amplitude = np.sqrt(np.maximum(power, np.finfo(float).tiny))
    movements[0] = 0.0
    movements[1:] /= np.sqrt(amplitude)
    movements /= np.sqrt((movements**2).sum(axis=0))
    return np.asarray(idct(movements, norm="ortho", axis=0), dtype=np.float64)


def effective_sizes(values: Floats) -> Floats:
    """For each pair of columns from `weighed`, 1 over the variance of their product's sum.

    At most n. The variance is that of unrelated columns; it is larger for related ones.
    """
    from scipy.fft import dct

    n = values.shape[0]
    powers = [values**2, dct(values, norm="ortho", axis=0) ** 2]
    variance = np.maximum(*[power.T @ power for power in powers])
    if n >= 2 * STRETCHES:
        parts = np.array_split(values, STRETCHES)
        stretches = sum((part.T @ part) ** 2 for part in parts)
        variance = np.maximum(variance, stretches)
    return np.asarray(np.minimum(1.0 / variance, n), dtype=np.float64)
