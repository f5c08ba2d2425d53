"""Nodes of a cluster as a random effect: what a ratio is on nodes like those that were measured.

A ratio found on a few nodes holds for other nodes only as far as nodes agree. Each node's own ratio
is one observation of the nodes' population; Student's t over them is the interval for nodes alike,
exact where nodes were measured equally well, as rounds that visit them in turn make them (the
analysis of a balanced one-way layout with random effects: Searle, Casella & McCulloch 1992,
chapter 3). Few nodes may agree by chance: the standard error is never less than the noise of
repetitions makes it (Roever, Knapp & Friede 2015). The spread between nodes is the variance of
their ratios without what that noise puts into it (the ANOVA estimator: Hedges & Olkin 1985, section
9.B).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vtax.core.statistics.statistics import Estimate


@dataclass(frozen=True, slots=True)
class Spread:
    """Several nodes' log ratios as a sample of nodes."""

    mean: Estimate
    """The log ratio on nodes like these."""
    between: float
    """Standard deviation of nodes' true log ratios; 0: no more than the noise of repetitions."""


def spread(own: Sequence[Estimate]) -> Spread | None:
    """How far nodes agree, from each node's log ratio; None for fewer than two."""
    if len(own) < 2:
        return None
    values = np.array([each.value for each in own])
    noise = float(np.mean([each.error**2 for each in own]))
    variance = float(values.var(ddof=1))
    error = math.sqrt(max(variance, noise) / len(own))
    mean = Estimate(float(values.mean()), error, len(own) - 1)
    return Spread(mean, math.sqrt(max(0.0, variance - noise)))
