"""Prices and counts that are made up, so that a test knows what the bill must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vtax.explain.bill import Used
from vtax.prices.analysis import PriceList
from vtax.prices.record import PricedEnvironment, PricedOperation

Prices = Mapping[str, tuple[float, float]]
"""The price of an operation here and there, in nanoseconds."""

USER = dict.fromkeys(("user_integer", "user_float", "user_branch", "user_call"), (100.0, 100.0))
"""An environment that runs the processor's own instructions."""


def operation(name: str, *ns: float, context: str = "usual", **how: object) -> PricedOperation:
    return PricedOperation.model_validate({"name": name, "context": context, "ns": ns, **how})


def environment(
    label: str, operations: Sequence[PricedOperation], baseline: str | None = None
) -> PricedEnvironment:
    return PricedEnvironment(
        label=label, spec=label, baseline=baseline, description=label, facts={},
        operations=tuple(operations), absent=(),
    )  # fmt: skip


def price_list(prices: Prices) -> PriceList:
    """Prices without any noise."""
    here = [operation(name, ours, ours) for name, (ours, _) in prices.items()]
    there = [operation(name, theirs, theirs) for name, (_, theirs) in prices.items()]
    return PriceList.of(environment("uml", there, "native"), environment("native", here))


def used(*wall_s: float, user_s: float = 0.01, switches: float = 0.0, faults: float = 0.0) -> Used:
    """Repetitions of one thread, by their rounds."""
    rounds = dict(enumerate(wall_s))
    return Used(
        wall_s=rounds,
        user_s=dict.fromkeys(rounds, user_s),
        cpu_s=dict(rounds),
        steal_s={},
        voluntary_switches=switches,
        minor_faults=faults,
    )
