"""The part of an audit that runs a program's sizes in several orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vtax.audit import order_runs as order_drift
from vtax.audit.order_drift import Order, OrderDrift
from vtax.audit.order_drift import order_drift as judged
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Listener, Starter
from vtax.environments.base import Environment
from vtax.workloads.base import Command, Metric
from vtax.workloads.outcomes import program_metrics, require_success

SIZES_MIB = (1, 4, 16)
"""Sizes of tables within the caches and beyond them."""
UPDATES = "2000000"
"""The number of updates: they take about 20 to 150 ms natively."""
ROUNDS = 5
RUNS = 4 * len(SIZES_MIB) * ROUNDS
"""The most runs in each environment: a round has four passes."""
TIMEOUT_S = 120.0


def drifts(
    environments: Mapping[str, Environment],
    variables: Mapping[str, str],
    seconds: float,
    seed: int,
    listener: Listener,
    start: Starter,
) -> Mapping[str, OrderDrift]:
    """What the order of sizes does in each environment, as far as `seconds` for each allow.

    Raises VtaxError when an environment does not come up.
    """
    found = order_drift.measure(
        {label: _subject(each) for label, each in environments.items()},
        variables,
        ROUNDS,
        seed,
        listener,
        start,
        between=(Order.DESCENDING,),
        budget_s=seconds * len(environments),
    )
    return {
        label: judged(each.observations, "wall_s", reboots=environments[label].is_guest)
        for label, each in found.items()
    }


def _subject(environment: Environment) -> order_drift.Subject:
    agent = environment.agent_inside()

    def command(size: int) -> Command:
        argv = (agent, "workload", "gups", "--count", UPDATES, "--mem", f"{size}M")
        return Command(argv, timeout_s=TIMEOUT_S)

    return order_drift.Subject(environment, SIZES_MIB, command, _program)


def _program(this: Repetition, _size: int) -> Sequence[Metric]:
    outcome = this.finished[0].outcome
    require_success("vtax-agent workload gups", outcome, this.exchange)
    return program_metrics(outcome)
