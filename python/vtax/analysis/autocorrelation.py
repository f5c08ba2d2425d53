"""How many independent values a series that remembers its past is worth.

Two series without any relation still look correlated when both move slowly. The variance of their
correlation is not 1/n but larger by 1 + 2 sum over lags of (1 - lag/n) rho_x(lag) rho_y(lag)
(Bartlett 1935, 1946; Bretherton et al. 1999, equation 30), so n is divided by it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LARGEST_RHO = 0.9999


def effective_sizes(values: Floats) -> Floats:
    """For each pair of columns of `values` (n x k, no gaps, none constant), n over its inflation.

    The inflation is the larger of two estimates, and at least 1. The sum over the estimated
    autocorrelations knows any shape but must be cut off (Tukey's taper up to 2 sqrt(n), as Afyouni,
    Smith & Nichols 2019 choose); that of a first-order process has no end but knows one shape.
    """
    n = values.shape[0]
    lags = max(1, min(n - 2, math.ceil(2.0 * math.sqrt(n))))
    rho = autocorrelations(values, lags)
    steps = np.arange(1, lags + 1)
    weights = 0.5 * (1.0 + np.cos(np.pi * steps / lags)) * (1.0 - steps / n)
    summed = 1.0 + 2.0 * (rho * weights[:, None]).T @ rho
    # Estimated from n values it is too small by about (1 + 4 rho) / n: Kendall 1954.
    first = np.clip(rho[0] + (1.0 + 4.0 * rho[0]) / n, -_LARGEST_RHO, _LARGEST_RHO)
    product = np.outer(first, first)
    first_order = (1.0 + product) / (1.0 - product)
    inflation = np.maximum(np.maximum(summed, first_order), 1.0)
    return np.asarray(n / inflation, dtype=np.float64)


def autocorrelations(values: Floats, lags: int) -> Floats:
    """Of each column at lags 1 to `lags` (lags x k), by way of the Fourier transform."""
    n = values.shape[0]
    centred = values - values.mean(axis=0)
    spectrum = np.fft.rfft(centred, n=2 * n, axis=0)
    products = np.fft.irfft(np.abs(spectrum) ** 2, n=2 * n, axis=0)[: lags + 1]
    return np.asarray(products[1:] / products[0], dtype=np.float64)
