"""Which of many tests found something: the false discovery rate under any dependence.

A matrix of 20 events has 190 tests that share their series, some positively and some negatively
dependent. Benjamini & Hochberg's correction is proven for independent and positively dependent
tests only; that of Benjamini & Yekutieli (2001, theorem 1.3) holds for any, at the price of a
factor of about ln(m). scipy.stats has both, but takes most of a second to import.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def adjusted(p: Floats) -> Floats:
    """p values after Benjamini & Yekutieli; a test that was not made (NaN) stays NaN.

    If all tests with a value of at most alpha are called discoveries, on average at most that share
    of them is false.
    """
    result = np.full(p.shape, np.nan)
    made = np.flatnonzero(~np.isnan(p))
    if not made.size:
        return result
    order = made[np.argsort(p[made], kind="stable")]
    m = made.size
    ranks = np.arange(1, m + 1)
    scaled = p[order] * m * (1.0 / ranks).sum() / ranks
    result[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return result
