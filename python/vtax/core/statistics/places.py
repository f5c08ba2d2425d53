"""What two places differ by, taken out of a ratio: the CPUs of a duet, which its sides swap.

Each round's log ratio is that of the two sides plus or minus that of the two places. With both
signs among the rounds the two can be told apart by least squares, as in a crossover trial (Box,
Hunter & Hunter 2005, chapter 4). From `TRIMMED_FROM` rounds on, the places' difference is one of
trimmed means, as the ratio itself.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

from vtax.core.statistics.coarse import widened
from vtax.core.statistics.rounds import TRIM, TRIMMED_FROM, Run
from vtax.core.statistics.statistics import Estimate

Runs = Sequence[Run]


def placed(
    estimate: Callable[[Runs, Runs], Estimate | None], own: Runs, base: Runs
) -> Estimate | None:
    """What `estimate` says of both sides without the difference of places, where runs have places.

    The places cost a degree of freedom. None for fewer than three rounds, and for one place only.
    """
    if not any(run.place for run in own):
        return estimate(own, base)
    level = _levels(own, base)
    if level is None:
        return None
    lift, rounds, balance = level
    found = estimate([_lifted(run, lift.get(run.place, 0.0)) for run in own], base)
    if found is None:
        return None
    df = max(1.0, found.df - 1.0)
    error = found.error * math.sqrt(found.df / df * rounds * balance / 4.0)
    found = dataclasses.replace(found, error=error, df=df)
    return widened(found, [run.value for run in own], [run.value for run in base])


def without_places(own: Runs, base: Runs) -> Runs:
    """`own` with its values as on a place between both."""
    level = _levels(own, base)
    return own if level is None else [_lifted(run, level[0].get(run.place, 0.0)) for run in own]


def _levels(own: Runs, base: Runs) -> tuple[dict[str, float], int, float] | None:
    """What to add to the logs of each place; the number of rounds, and the sum of the inverse
    numbers of rounds at each place."""
    theirs = {run.round: run.value for run in base}
    by_place: dict[str, list[float]] = {}
    for run in own:
        if run.round in theirs:
            ratio = math.log(run.value) - math.log(theirs[run.round])
            by_place.setdefault(run.place, []).append(ratio)
    rounds = sum(map(len, by_place.values()))
    if len(by_place) != 2 or rounds < 3:
        return None
    share = TRIM if rounds >= TRIMMED_FROM else 0.0
    (first, ours), (second, others) = by_place.items()
    half = (_middle(ours, share) - _middle(others, share)) / 2.0
    return {first: -half, second: half}, rounds, 1.0 / len(ours) + 1.0 / len(others)


def _middle(values: Sequence[float], share: float) -> float:
    """The mean without this share of the values at either end."""
    cut = int(share * len(values))
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def _lifted(run: Run, by: float) -> Run:
    return dataclasses.replace(run, value=run.value * math.exp(by))
