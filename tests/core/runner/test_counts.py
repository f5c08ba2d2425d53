"""Instructions and cycles of whole programs: where there is a PMU, and where there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from arm64_machine import reuse_packages
from tested_machines import GUEST_ENVIRONMENT, OUTCOME, checked
from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.core.runner.instruments.counts import Counts
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import kept_cpus
from vtax.environments.agent import Finished
from vtax.environments.base import Environment, MachineLike
from vtax.environments.capabilities import CountPrograms

WORK = ("workload", "gups", "--mem", "1M", "--count")


def started(environment: Environment, work: Path) -> MachineLike:
    return environment.start(work, kept_cpus(environment, matched=True))


def counted(machine: MachineLike, work: Path, name: str, *argv: str) -> dict[str, float]:
    Exchange(work, name).create({})
    this = Repetition("x", machine, work, name, work / "out", argv)
    with Counts().around(this):
        this.finished = (machine.run(argv, GUEST_ENVIRONMENT, name, 60.0),)
    assert this.finished[0].outcome.exit_code == 0
    return {metric.name: metric.value for metric in this.metrics}


@pytest.mark.slow
def test_an_emulated_pmu_counts_the_same_each_time(tmp_path: Path) -> None:
    reuse_packages()
    environment = checked("qemu-arm64:icount=1,mem=512M")
    machine = started(environment, tmp_path)
    try:
        # The first run finds nothing in the page cache yet.
        gups = (environment.agent_inside(), *WORK)
        first, *few = [counted(machine, tmp_path, f"few{run}", *gups, "100000") for run in range(7)]
        many = counted(machine, tmp_path, "many", *gups, "200000")
        exact = [
            counted(machine, tmp_path, f"exact{run}", "seq", "20000")["instructions_user"]
            for run in range(3)
        ]
    finally:
        machine.close()
    assert first.keys() == {"instructions", "instructions_user", "cycles"}
    numbers = [each["instructions"] for each in few]
    # The kernel's timer and its other work fall into some runs more often than into others, and
    # only add to them: the smallest counts of two threes are those of the program.
    smallest = sorted((min(numbers[:3]), min(numbers[3:])))
    assert smallest[1] < 1.002 * smallest[0], numbers
    assert all(each["cycles"] == 2 * each["instructions"] for each in few)
    # Start and exit take most of the count; the second hundred thousand updates take 27 each.
    assert many["instructions"] > 1.05 * max(numbers)
    assert 0 < many["instructions_user"] < many["instructions"]
    # The program prints no times, so that its own instructions are the same to the last one.
    assert len(set(exact)) == 1, exact
    assert exact[0] > 1_000_000


def test_a_machine_without_counters_says_why(tmp_path: Path) -> None:
    environment = checked("native:cpus=1")
    machine = started(environment, tmp_path)
    try:
        if machine.facts["pmu"]["present"]:
            pytest.skip("this machine has a PMU")
        with pytest.raises(VtaxError) as raised:
            counted(machine, tmp_path, "r0", environment.agent_inside(), *WORK, "1000")
    finally:
        machine.close()
    assert "counts neither instructions nor cycles: " in str(raised.value)
    assert machine.facts["pmu"]["reason"] in str(raised.value)
    assert raised.value.remedy == "leave out --with counts"


def test_what_was_counted_becomes_metrics_and_counting_ends(tmp_path: Path) -> None:
    switched: list[bool] = []

    class Machine:
        def offer(self, wanted: type[CountPrograms]) -> CountPrograms:
            return wanted(switched.append)

    outcome = replace(OUTCOME, instructions=1000, instructions_user=900, cycles=None)
    this = Repetition("x", Machine(), tmp_path, "r0", tmp_path, ())  # type: ignore[arg-type]
    with Counts().around(this):
        this.finished = (Finished(outcome, 1.0, 1.0),)
    assert [(each.name, each.value, each.better) for each in this.metrics] == [
        ("instructions", 1000.0, "lower"),
        ("instructions_user", 900.0, "lower"),
    ]
    assert switched == [True, False]
