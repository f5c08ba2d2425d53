"""`--duet`: both environments of a comparison at once, and what a reader must know of it.

How the pair runs is in `core/runner/duet.py`, what is computed from it in
`core/statistics/places.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vtax.compare.request import ComparisonRequest
from vtax.core.errors import MisuseError
from vtax.core.formats.model import ComparisonRecord, Sample
from vtax.core.runner.duet import can_move
from vtax.core.statistics.results import Flag
from vtax.core.units import format_seconds
from vtax.environments.base import allowed_cpus

LEAST_OVERLAP = 0.8
"""Below this share of the longer one's time, noise is no longer mostly that of both."""


def paired(request: ComparisonRequest) -> ComparisonRequest:
    """The same comparison with both environments at once; a control only where nothing else is
    compared.

    Raises MisuseError unless it has two environments as large as each other, for which there are
    CPUs enough and whose machines can be moved from CPU to CPU.
    """
    variants = request.compared_variants
    if any(each.role == "measured" for each in variants):
        variants = tuple(each for each in variants if each.role != "control")
    if len(variants) != 2:
        raise MisuseError(
            f"--duet runs two environments at once, not {len(variants)}: "
            f"{', '.join(each.label for each in variants)}",
            "name --baseline and one --in; or, with --baseline none, one that runs beside itself",
        )
    for each in variants:
        if not can_move(each.environment):
            raise MisuseError(
                f"--duet: '{each.label}' is no process of this machine that it could move",
                "leave out --duet, or use native, uml or qemu",
            )
    sizes = [each.environment.shape().cpus for each in variants]
    if sizes[0] != sizes[1]:
        raise MisuseError(
            f"--duet: '{variants[0].label}' has {sizes[0]} CPU and '{variants[1].label}' "
            f"{sizes[1]}, so they cannot swap them",
            f"give both as many, e.g. --baseline native:cpus={min(sizes)}",
        )
    count, allowed = sizes[0], allowed_cpus()
    if 2 * count > len(allowed):
        raise MisuseError(
            f"--duet: {count} CPU for each of two environments is more than the {len(allowed)} "
            "that vtax may use",
            "give both fewer, e.g. --baseline native:cpus=1",
        )
    last = tuple(allowed[-2 * count :])
    return replace(request, compared_variants=variants, places=(last[:count], last[count:]))


def duet_flags(record: ComparisonRecord, samples: Sequence[Sample]) -> Iterator[Flag]:
    """That both ran at once, and whether they did for long enough; `samples`: one of each
    repetition."""
    if not record.duet:
        return
    shares: dict[int | None, float] = {}
    apart = []
    for each in samples:
        if each.beside_s is not None and each.later_s is not None and each.host_wall_s > 0:
            own = min(1.0, each.beside_s / each.host_wall_s)
            shares[each.round] = min(own, shares.get(each.round, 1.0))
            apart.append(abs(each.later_s))
    if not shares:
        return
    label = record.environments[-1].label
    overlap = statistics.median(shares.values())
    begun = format_seconds(statistics.median(apart))
    yield Flag(
        label,
        None,
        "duet",
        "Both ran at once on CPUs that they swapped in half of the rounds, so each time is that of "
        "a run beside the other, not comparable with runs alone. In the median pair they began "
        f"{begun} apart and both ran for {_percent(overlap)} of the longer one's time.",
    )
    if overlap < LEAST_OVERLAP:
        yield Flag(
            label,
            None,
            "duet-overlap",
            f"In the median pair both ran for only {_percent(overlap)} of the longer one's time. "
            "For the rest that one ran alone, without the other's disturbance and without sharing "
            "noise with it: compare without --duet.",
        )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
