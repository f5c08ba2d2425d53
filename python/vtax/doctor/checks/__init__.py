"""All checks: those that environments and workloads declare, and those of every measurement."""

from __future__ import annotations

from collections.abc import Sequence

from vtax import environments, workloads
from vtax.doctor.checks import agent, clocks, events, limits, processor
from vtax.doctor.model import Check


def registered() -> Sequence[Check]:
    """Every check once, in the order in which they are shown."""
    declared: list[type[Check]] = [
        *(check for each in environments.registry().values() for check in each.checks),
        agent.Agent,
        *(check for each in workloads.registry().values() for check in each.checks),
        *events.CHECKS,
        *clocks.CHECKS,
        *processor.CHECKS,
        *limits.CHECKS,
    ]
    found: dict[str, Check] = {}
    for check in declared:
        found.setdefault(check.name, check())
    return tuple(found.values())
