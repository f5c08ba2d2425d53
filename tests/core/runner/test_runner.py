"""The loop on machines that boot nothing: shared machines, states, instruments, failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mock_machines import Mock, World
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Done, Keeper, Listener, Plan, Runner, Step, Variant
from vtax.environments import build
from vtax.environments.base import MachineLike
from vtax.environments.capabilities import C, Capability, Pause
from vtax.workloads.base import Command, Metric


@dataclass
class Kept(Keeper):
    """Keeps what is finished."""

    done_: list[Done] = field(default_factory=list)

    def read(self, this: Repetition) -> None:
        this.metrics.insert(0, Metric("own", "1", "higher", 1.0))

    def done(self, done: Done) -> None:
        self.done_.append(done)


@dataclass
class Watching:
    """An instrument that tells the story of its repetitions."""

    story: list[str]
    name: ClassVar[str] = "watching"

    @property
    def needs(self) -> type[Capability]:
        return Pause

    @contextmanager
    def around(self, repetition: Repetition) -> Iterator[None]:
        self.story.append(f"begin {repetition.folder}")
        try:
            yield
        finally:
            self.story.append(f"end {repetition.folder}")
        repetition.metrics.append(Metric("watched", "1", "higher", 2.0))


def step(variant: str, number: int, folder: Path) -> Step:
    return Step(variant, number, Command(("work",)), f"{variant}-{number}", folder / "out")


def offering(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the world's machines offer Pause."""

    def offer(_self: Any, wanted: type[C]) -> C | None:
        pause = Pause(lambda: None, lambda: None)
        return pause if isinstance(pause, wanted) else None

    monkeypatch.setattr(Mock, "offer", offer)


def entering(state: list[str], wanted: str) -> Callable[[MachineLike], bool]:
    def enter(_machine: MachineLike) -> bool:
        changed = state[0] != wanted
        state[0] = wanted
        return changed

    return enter


def test_variants_share_a_machine_and_warm_up_after_each_change(tmp_path: Path) -> None:
    world, kept, state = World(), Kept(), ["a"]
    variants = [Variant(n, build("native"), tmp_path, (), entering(state, n)) for n in "ab"]
    steps = [step(label, n, tmp_path) for n, label in enumerate("abba")]
    plan = Plan(variants, steps, {}, warm_up=True)
    assert Runner(plan, kept, Listener(), world.start).run() == "complete"
    assert [line.partition(" ")[2] for line in world.story[1:-1]] == [
        *("warm-up-0", "a-0", "warm-up-1", "b-1", "b-2", "warm-up-2", "a-3"),
    ]
    assert sum(line.startswith("start") for line in world.story) == 1
    assert world.alive == 0
    assert [done.position for done in kept.done_] == [0, 1, 2, 3]


def test_an_instrument_is_around_repetitions_and_not_around_warm_ups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, kept = World(), Kept()
    offering(world, monkeypatch)
    variant = Variant("a", build("native"), tmp_path, (Watching(world.story),))
    plan = Plan([variant], [step("a", 0, tmp_path)], {}, warm_up=True)
    Runner(plan, kept, Listener(), world.start).run()
    name = tmp_path.name
    assert world.story[1:-1] == [f"{name} warm-up-0", "begin a-0", f"{name} a-0", "end a-0"]
    metrics = kept.done_[0].repetition.metrics
    assert [metric.name for metric in metrics] == ["own", "watched"]


@pytest.mark.parametrize("end", [KeyboardInterrupt, VtaxError("the workload failed")])
def test_an_instrument_ends_however_the_repetition_does(
    end: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_label: str, _run: int) -> None:
        raise end

    world = World(fail)
    offering(world, monkeypatch)
    variant = Variant("a", build("native"), tmp_path, (Watching(world.story),))
    with pytest.raises(end if isinstance(end, type) else type(end)):
        plan = Plan([variant], [step("a", 0, tmp_path)], {})
        Runner(plan, Kept(), Listener(), world.start).run()
    assert "end a-0" in world.story
    assert world.alive == 0


def test_a_need_that_a_machine_does_not_meet_is_that_steps_failure(tmp_path: Path) -> None:
    world = World()
    variant = Variant("a", build("native"), tmp_path, (Watching(world.story),))
    with pytest.raises(VtaxError, match="does not offer 'pause'"):
        plan = Plan([variant], [step("a", 0, tmp_path)], {})
        Runner(plan, Kept(), Listener(), world.start).run()
    assert world.alive == 0


def test_a_misuse_found_at_boot_stays_one(tmp_path: Path) -> None:
    def start(*_: Any) -> MachineLike:
        raise MisuseError("no such image")

    plan = Plan([Variant("a", build("native"), tmp_path)], [step("a", 0, tmp_path)], {})
    with pytest.raises(MisuseError, match="environment 'a': no such image"):
        Runner(plan, Kept(), Listener(), start).run()


def test_a_fresh_step_boots_unless_the_machine_is_unused(tmp_path: Path) -> None:
    world, kept = World(), Kept()
    steps = [
        replace(step("a", number, tmp_path), fresh=fresh)
        for number, fresh in enumerate((True, False, True, True))
    ]
    plan = Plan([Variant("a", build("native"), tmp_path)], steps, {}, warm_up=True)
    Runner(plan, kept, Listener(), world.start).run()
    assert [done.boot for done in kept.done_] == [0, 0, 1, 2]
    name = tmp_path.name
    assert world.story[:5] == [
        *(f"start {name}", f"{name} warm-up-0", f"{name} a-0", f"{name} a-1", f"close {name}")
    ]
    assert world.alive == 0
