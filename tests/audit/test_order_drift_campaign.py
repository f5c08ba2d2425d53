"""The experiment of order drift: its plan on machines that boot nothing, and for real."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from mock_machines import World
from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.audit.order_drift import Order, order_drift
from vtax.audit.order_runs import Subject, measure
from vtax.core.errors import VtaxError
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Listener
from vtax.environments import Environment, build
from vtax.workloads.base import Command, Metric

SIZES = (20_000, 40_000, 80_000)


def read(this: Repetition, size: int) -> Sequence[Metric]:
    outcome = this.finished[0].outcome
    if outcome.exit_code != 0:
        raise VtaxError("it failed")
    return (Metric("wall_s", "s", "lower", outcome.wall_s), Metric("size", "1", "lower", size))


def subject(environment: Environment) -> Subject:
    agent = environment.agent_inside()

    def command(size: int) -> Command:
        argv = (agent, "workload", "gups", "--count", str(size), "--mem", "1M", "--json")
        return Command(argv, timeout_s=60.0)

    return Subject(environment, SIZES, command, read)


def run(world: World, seed: int = 1) -> tuple[list[str], Counter[Order]]:
    subjects = {"a": subject(build("native")), "b": subject(build("native:cpus=1"))}
    found = measure(subjects, {}, 2, seed, Listener(), world.start)
    assert world.alive == 0
    counts: Counter[Order] = Counter()
    for measured in found.values():
        assert measured.failures == []
        for each in measured.observations:
            assert each.values["size"] == each.size
            counts[each.order] += 1
    return world.story, counts


def test_every_order_begins_in_a_fresh_machine_but_the_second_pass() -> None:
    story, counts = run(World())
    assert counts == dict.fromkeys(Order, 2 * 2 * len(SIZES))
    for label in "01":
        own = [line for line in story if line.endswith(f" {label}") or line.startswith(f"{label} ")]
        # There are four passes a round in machines of their own; closing the last machine ends it.
        assert own.count(f"start {label}") == own.count(f"close {label}") == 8
        boots = " ".join(own).split(f"start {label}")[1:]
        names = [[word for word in boot.split() if word.startswith("r")] for boot in boots]
        assert names[0] == [f"r0-ascending-{size}" for size in SIZES]
        assert names[3] == [
            *(f"r0-control-{size}" for size in SIZES),
            *(f"r0-again-{size}" for size in SIZES),
        ]
        assert [f"r0-descending-{size}" for size in reversed(SIZES)] in names[1:3]


def test_the_seed_decides_the_order() -> None:
    assert run(World(), 7) == run(World(), 7)
    stories = {tuple(run(World(), seed)[0]) for seed in range(4)}
    assert len(stories) > 1


def test_a_failure_is_kept_and_the_rest_goes_on() -> None:
    def behaviour(label: str, number: int) -> None:
        if label == "0" and number == 1:
            raise VtaxError("no memory")

    subjects = {"a": subject(build("native"))}
    found = measure(subjects, {}, 1, 1, Listener(), World(behaviour).start)["a"]
    assert len(found.failures) == 4
    assert found.failures[0] == f"r0-ascending-{SIZES[1]}: no memory"
    assert len(found.observations) == 5 * len(SIZES) - 4


@pytest.mark.slow
def test_real_machines() -> None:
    subjects = {spec: subject(checked(spec)) for spec in ("native:cpus=1", "uml:mem=256M")}
    found = measure(subjects, GUEST_ENVIRONMENT, 2, 1, Listener())
    for spec, measured in found.items():
        assert measured.failures == []
        assert len(measured.observations) == 2 * 5 * len(SIZES)
        assert {each.boot for each in measured.observations} == set(range(8)), spec
        judged = order_drift(measured.observations, "wall_s", reboots=spec.startswith("uml"))
        assert judged.within_pass.interval is not None
