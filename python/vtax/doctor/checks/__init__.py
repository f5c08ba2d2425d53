"""All checks: those that parts of vtax declare, and those of every measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vtax import environments, workloads
from vtax.core.checks.model import Check
from vtax.core.recorder import sources
from vtax.doctor.checks import agent, clocks, events, limits, processor
from vtax.place import checks as place
from vtax.workloads.loads.registry import LoadPrograms


def registered() -> Sequence[Check]:
    """Every check once, in the order in which they are shown."""
    declared: list[type[Check]] = [
        *(check for each in environments.registry().values() for check in each.checks),
        agent.Agent,
        *(check for each in workloads.registry().values() for check in each.checks),
        LoadPrograms,
        *events.CHECKS,
        *clocks.CHECKS,
        *processor.CHECKS,
        *limits.CHECKS,
        *place.CHECKS,
    ]
    found: dict[str, Check] = {}
    for check in declared:
        found.setdefault(check.name, check())
    return tuple(found.values())


def purposes() -> Mapping[str, str]:
    """The purpose of each check: its own words, and the events whose sources need it."""
    found = {}
    for check in registered():
        layers = [each.name for each in sources.declared() if check.name in each.needs]
        events = f"events {', '.join(layers)}" if layers else ""
        found[check.name] = "; ".join(filter(None, (check.purpose, events)))
    return found
