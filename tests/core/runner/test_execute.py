"""The campaign on machines that boot nothing: order, saving, failures, cleaning up."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mock_machines import World
from vtax.compare.analysis import compare
from vtax.compare.campaign import ComparisonCampaign, _library
from vtax.compare.request import ComparisonRequest
from vtax.core.errors import VtaxError
from vtax.core.formats.folder import SAMPLES, RunFolder, load, read_record
from vtax.core.runner.matching import compared_variants
from vtax.core.runner.runner import Listener
from vtax.environments.base import Environment, MachineLike
from vtax.environments.machine import MachineLostError
from vtax.workloads.base import Command, MachineShape, Metric, Outcome, ResultFolder


@dataclasses.dataclass(frozen=True)
class Counting:
    """A workload whose metric is the length of its command."""

    name: ClassVar[str] = "counting"

    def parameters(self) -> dict[str, Any]:
        return {}

    def label(self) -> str:
        return "counting"

    def command(self, shape: MachineShape) -> Command:
        return Command(("count",), files={"input": b"1"})

    def metrics(self, outcome: Outcome, folder: ResultFolder) -> Sequence[Metric]:
        return [Metric("count", "1", "higher", float(len(folder.read_text("input"))))]

    def needs(self) -> Sequence[str]:
        return ()

    def libraries(self) -> Sequence[str]:
        return ()

    def expected_metrics(self, shape: MachineShape) -> Sequence[Any]:
        return [("count", "1", "higher")]


class Timed(Counting):
    """A workload whose every run takes a second, by the metric that decides."""

    def metrics(self, outcome: Outcome, folder: ResultFolder) -> Sequence[Metric]:
        return [Metric("wall_s", "s", "lower", 1.001)]


def request(specs: Sequence[str] = ("native", "uml:mem=1G"), **options: Any) -> ComparisonRequest:
    values: dict[str, Any] = {
        "workload": Counting(),
        "compared_variants": compared_variants(specs),
        "variables": {},
        "recorded_variables": {},
        "scrubbed_variables": {},
        "command_line": ("vtax",),
        "repetitions": 3,
        "seed": 7,
    }
    return ComparisonRequest(**values | options)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "test")


def run(folder: RunFolder, world: World, **options: Any) -> ComparisonCampaign:
    campaign = ComparisonCampaign(request(**options), folder, Listener(), world.start)
    campaign.run()
    return campaign


def test_every_environment_runs_its_repetitions_in_the_recorded_order(folder: RunFolder) -> None:
    world = World()
    run(folder, world)
    record, samples = load(folder.path)
    assert record.state == "complete" and record.finished_utc
    # The facts are those under measurement, not those just after boot.
    assert [each.facts for each in record.environments] == 3 * [{"uptime_s": 2}]
    assert tuple((each.environment, each.repetition) for each in samples) == record.order
    assert [each.position for each in samples] == list(range(9))
    assert sum("warm-up-0" in line for line in world.story) == 3
    assert world.alive == 0


def test_the_same_seed_runs_in_the_same_order(tmp_path: Path) -> None:
    stories = []
    for seed in (1, 1, 2):
        world = World()
        run(RunFolder.create(tmp_path, "x"), world, seed=seed)
        stories.append(world.story)
    assert stories[0] == stories[1] != stories[2]


def test_reboot_each_gives_every_repetition_a_machine_of_its_own(folder: RunFolder) -> None:
    world = World()
    run(folder, world, reboot="each")
    samples = load(folder.path)[1]
    for label in {each.environment for each in samples}:
        boots = [each.boot for each in samples if each.environment == label]
        assert len(set(boots)) == len(boots) == 3
    assert world.alive == 0


def test_a_machine_that_contradicts_its_host_has_no_samples(folder: RunFolder) -> None:
    world = World()
    world.host_wall_s = 0.9
    run(folder, world, specs=("native",))
    record, samples = load(folder.path)
    assert not samples
    assert not any(each.believed for each in record.failures)
    found = compare(record, samples, "runs/x")
    flags = [flag for flag in found.flags if flag.kind == "not-believed"]
    assert [flag.environment for flag in flags] == ["native", "native#aa"]
    assert "1 s to what took 0.91 s" in flags[0].message


def test_the_hosts_time_is_taken_where_a_machine_tells_less(folder: RunFolder) -> None:
    world = World()
    world.host_wall_s = 9.0
    run(folder, world, specs=("native",))
    record, samples = load(folder.path)
    assert {(each.wall_s, each.host_wall_s, each.told_wall_s) for each in samples} == {
        (9.0, 9.0, 1.0)
    }
    assert all(each.value == 9.0 for each in samples if each.metric == "wall_s")
    flags = [each for each in compare(record, samples, "runs/x").flags if each.kind == "host-time"]
    assert "at worst 1 s of 9 s" in flags[0].message


def test_until_adds_rounds_and_the_record_has_them(folder: RunFolder) -> None:
    """The mock's time is the same in every run; the fifth round is the first that may end the
    run."""
    campaign = run(folder, World(), workload=Timed(), until_percent=2.0)
    record, samples = load(folder.path)
    assert record.until_percent == 2.0 and record.state == "complete"
    assert tuple((each.environment, each.repetition) for each in samples) == record.order
    assert {each.round for each in samples} == set(range(5))
    assert len(campaign.samples) == len(record.order) >= 15


def test_an_environment_that_keeps_failing_does_not_keep_the_others_running(
    folder: RunFolder,
) -> None:
    def after_one(label: str, run: int) -> None:
        if label.startswith("uml") and run > 1:
            raise VtaxError("no more")

    run(folder, World(after_one), workload=Timed(), until_percent=2.0)
    rounds = max(each.round or 0 for each in load(folder.path)[1]) + 1
    assert rounds <= 5


def test_until_ends_with_the_budget_too(folder: RunFolder) -> None:
    now = iter(range(1000))
    campaign = ComparisonCampaign(
        request(workload=Timed(), budget_s=11.0, until_percent=0.001),
        folder,
        Listener(),
        World().start,
        clock=lambda: float(next(now)),
    )
    assert campaign.run().state == "budget"
    assert len(load(folder.path)[1]) == 10


def test_the_budget_ends_the_run_between_repetitions(folder: RunFolder) -> None:
    now = iter(range(100))
    campaign = ComparisonCampaign(
        request(budget_s=4.0), folder, Listener(), World().start, clock=lambda: float(next(now))
    )
    record = campaign.run()
    assert record.state == "budget"
    assert len(load(folder.path)[1]) == 3


def test_a_lost_machine_costs_one_repetition(folder: RunFolder) -> None:
    def once(label: str, run: int) -> None:
        if label.startswith("uml") and run == 2 and not lost:
            lost.append(label)
            raise MachineLostError("the uml machine died; its console ends: panic")

    lost: list[str] = []
    world = World(once)
    campaign = run(folder, world)
    assert [failure.environment for failure in campaign.failures] == ["uml:mem=1G"]
    assert "panic" in campaign.failures[0].message
    assert len(campaign.samples) == 8
    assert {each.boot for each in campaign.samples if each.environment == "uml:mem=1G"} == {0, 1}
    assert world.alive == 0


def test_a_machine_that_keeps_dying_is_given_up(folder: RunFolder) -> None:
    def always(label: str, run: int) -> None:
        if label.startswith("uml") and run > 0:
            raise MachineLostError("died")

    campaign = run(folder, World(always), repetitions=4)
    messages = [failure.message for failure in campaign.failures]
    assert messages == ["died", "died"] + 2 * ["not run: its machine failed twice in a row"]


def test_a_workload_that_fails_is_a_failure_not_the_end(folder: RunFolder) -> None:
    def fail(label: str, run: int) -> None:
        if label.startswith("uml") and run == 1:
            raise VtaxError("HPL residual check failed")

    campaign = run(folder, World(fail))
    assert [failure.message for failure in campaign.failures] == ["HPL residual check failed"]
    assert load(folder.path)[0].failures == tuple(campaign.failures)


def test_reboot_each_also_after_a_failure(folder: RunFolder) -> None:
    def fail(label: str, run: int) -> None:
        if label.startswith("uml") and run == 1:
            raise VtaxError("HPL residual check failed")

    world = World(fail)
    campaign = run(folder, world, reboot="each")
    assert len(campaign.failures) == 3
    # One boot is the probe, and there is one for each repetition.
    assert world.story.count("start uml-mem-1G") == 4
    assert world.alive == 0


def test_a_warm_up_that_fails_is_its_environments_failure(folder: RunFolder) -> None:
    def fail(label: str, run: int) -> None:
        if label.startswith("uml"):
            raise VtaxError("hpcc was killed")

    world = World(fail)
    campaign = run(folder, world)
    record, samples = load(folder.path)
    assert record.state == "complete" and len(samples) == 6
    failures = {(each.environment, each.repetition, each.message) for each in campaign.failures}
    assert failures == {("uml:mem=1G", number, "hpcc was killed") for number in range(3)}
    assert world.alive == 0


def test_a_first_warm_up_that_fails_costs_the_first_repetition(folder: RunFolder) -> None:
    def once(label: str, run: int) -> None:
        if label.startswith("uml") and run == 0:
            raise VtaxError("hpcc was killed")

    campaign = run(folder, World(once))
    assert [(each.repetition, each.message) for each in campaign.failures] == [
        (0, "hpcc was killed")
    ]
    assert len(load(folder.path)[1]) == 8


def test_warm_ups_that_all_fail_end_the_run(folder: RunFolder) -> None:
    def fail(_label: str, _run: int) -> None:
        raise VtaxError("hpcc was killed")

    world = World(fail)
    campaign = run(folder, world)
    record, samples = load(folder.path)
    assert record.state == "failed" and samples == []
    assert len(campaign.failures) == 3
    assert sum("warm-up" in line for line in world.story) == 3
    assert world.alive == 0


def test_two_runs_of_the_same_order_do_not_exchange_samples(tmp_path: Path) -> None:
    runs = [RunFolder.create(tmp_path, "x") for _ in range(2)]
    for each in runs:
        run(each, World())
    records = [load(each.path)[0] for each in runs]
    assert records[0].order == records[1].order
    (runs[0].path / SAMPLES).replace(runs[1].path / SAMPLES)
    first, second = (each.run_id for each in records)
    with pytest.raises(VtaxError, match=f"its run is {first}, that of run.json is {second}"):
        load(runs[1].path)


@pytest.mark.parametrize("when", [2, 3])
def test_ctrl_c_keeps_what_is_finished_and_ends_every_machine(folder: RunFolder, when: int) -> None:
    def interrupt(label: str, run: int) -> None:
        if label.startswith("uml") and run == when:
            raise KeyboardInterrupt

    world = World(interrupt)
    campaign = run(folder, world)
    record, samples = load(folder.path)
    assert record.state == "interrupted"
    assert samples == campaign.samples and 0 < len(samples) < 9
    assert world.alive == 0


def test_a_machine_that_does_not_boot_ends_the_run_before_it_begins(folder: RunFolder) -> None:
    world = World()

    def start(environment: Environment, work: Path, cpus: Sequence[int]) -> MachineLike:
        if environment.is_guest:
            raise MachineLostError("the uml machine ended while booting")
        return world.start(environment, work, cpus)

    with pytest.raises(VtaxError, match="environment 'uml:mem=1G': the uml machine ended"):
        ComparisonCampaign(request(), folder, Listener(), start).run()
    assert world.alive == 0


def test_samples_that_cannot_be_saved_end_the_run_and_every_machine(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_samples: Any) -> None:
        raise VtaxError("cannot save samples: No space left on device")

    world = World()
    monkeypatch.setattr(folder, "append", full)
    with pytest.raises(VtaxError, match="No space left"):
        ComparisonCampaign(request(), folder, Listener(), world.start).run()
    assert world.alive == 0


def test_the_library_is_told_with_its_version_and_kernels() -> None:
    found = {
        "requested": "libblas.so.3",
        "path": "/lib/libblas.so.3",
        "version": "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH",
        "core": "SkylakeX",
    }
    assert _library({"library": found}) == {
        "libblas.so.3": "/lib/libblas.so.3 (OpenBLAS 0.3.21, SkylakeX)"
    }
    assert _library({"library": found | {"version": None, "core": None}}) == {
        "libblas.so.3": "/lib/libblas.so.3"
    }
    assert _library({"library": None, "reason": "needs none"}) == {}


class Linked(Counting):
    """A workload whose BLAS is looked up in every machine."""

    def libraries(self) -> Sequence[str]:
        return ("vtax-dgemm",)


def test_a_machine_that_dies_while_its_blas_is_asked_for_ends_the_run(folder: RunFolder) -> None:
    def dies(label: str, run: int) -> None:
        if label.startswith("uml") and run == 0:
            raise MachineLostError("the uml machine died; its console ends: panic")

    world = World(dies)
    with pytest.raises(VtaxError, match="environment 'uml:mem=1G': the uml machine died"):
        run(folder, world, workload=Linked())
    assert world.alive == 0
    assert read_record(folder.path).state == "failed"


def test_a_machine_that_dies_so_when_it_is_started_again_costs_one_repetition(
    folder: RunFolder,
) -> None:
    def dies(label: str, run: int) -> None:
        if label.startswith("uml") and run == 3:
            raise MachineLostError("the uml machine died")

    campaign = run(folder, World(dies), workload=Linked())
    assert [failure.environment for failure in campaign.failures] == ["uml:mem=1G"]
    assert read_record(folder.path).state == "complete"
