"""What each node of a cluster says of an environment, and how far the nodes agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from vtax.core.formats.model import ComparisonRecord, EnvironmentRecord, Sample
from vtax.core.statistics.nodes import spread
from vtax.core.statistics.results import NodeRatio, NodeSpread, leading_metric
from vtax.core.statistics.rounds import Run, log_ratio
from vtax.core.statistics.statistics import Estimate, bounded_exp


def spreads(record: ComparisonRecord, samples: Sequence[Sample]) -> tuple[NodeSpread, ...]:
    """The leading metric node by node, of each environment that several nodes compare."""
    lead = leading_metric(record)
    own = [each for each in samples if each.metric == lead and each.value > 0]
    found = (_of(environment, lead, own) for environment in record.environments)
    return tuple(each for each in found if each is not None)


def _of(environment: EnvironmentRecord, lead: str, samples: Sequence[Sample]) -> NodeSpread | None:
    if environment.baseline is None:
        return None
    ours, theirs = (
        [each for each in samples if each.environment == label]
        for label in (environment.label, environment.baseline)
    )
    nodes = _by_node(ours, theirs)
    ratios = {name: log_ratio(_runs(ours, own), _runs(theirs, own)) for name, own in nodes.items()}
    known = {name: each for name, each in ratios.items() if each is not None}
    if not ours or (all_nodes := spread(list(known.values()))) is None:
        return None
    sign = 1.0 if ours[0].better == "higher" else -1.0
    return NodeSpread(
        environment.label,
        lead,
        tuple(
            NodeRatio(name, len(nodes[name]), *_percents(each, sign))
            for name, each in known.items()
        ),
        *_percents(all_nodes.mean, sign),
        between_percent=100.0 * math.expm1(min(all_nodes.between, 700.0)),
    )


def _by_node(ours: Sequence[Sample], theirs: Sequence[Sample]) -> Mapping[str, set[int]]:
    """The rounds of each node; of each pair, where both sides ran on nodes, on different ones."""
    sides = [{_round(s): s.node for s in side if s.node is not None} for side in (ours, theirs)]
    found: dict[str, set[int]] = {}
    for own in sorted(sides[0].keys() | sides[1].keys()):
        names = dict.fromkeys(side[own] for side in sides if own in side)
        found.setdefault(" / ".join(filter(None, names)), set()).add(own)
    return found


def _round(sample: Sample) -> int:
    return sample.repetition if sample.round is None else sample.round


def _runs(samples: Sequence[Sample], rounds: set[int]) -> Sequence[Run]:
    return [Run(_round(s), s.boot, s.value) for s in samples if _round(s) in rounds]


def _percents(ratio: Estimate, sign: float) -> tuple[float, float, float]:
    """Performance in % of the baseline's, and its 95 % interval."""
    half = ratio.half_width()
    low, middle, high = (bounded_exp(sign * ratio.value + each) for each in (-half, 0.0, half))
    return 100.0 * middle, 100.0 * low, 100.0 * high
