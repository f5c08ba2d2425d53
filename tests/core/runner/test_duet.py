"""Two steps at once on machines that boot nothing; and threads that move from CPU to CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mock_machines import Mock, World
from process_watch import eventually
from vtax.core.errors import VtaxError
from vtax.core.runner import duet
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Done, Keeper, Listener, Plan, Runner, Step, Variant
from vtax.environments import build
from vtax.environments.agent import Finished, MachineLostError
from vtax.environments.capabilities import RecordOutside
from vtax.environments.process_tree import keep_on
from vtax.workloads.base import Command

TWO = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")


@dataclass
class Kept(Keeper):
    """Keeps what is finished, and what failed with its message."""

    done_: list[Done] = field(default_factory=list)
    failed_: dict[str, str] = field(default_factory=dict)
    refuses: str = ""

    def read(self, this: Repetition) -> None:
        if this.folder == self.refuses:
            raise VtaxError("exit code 1")

    def done(self, done: Done) -> None:
        self.done_.append(done)

    def failed(self, step: Step, error: VtaxError) -> None:
        self.failed_[step.folder] = error.message


def plan(folder: Path, rounds: int) -> Plan:
    steps = [
        Step(
            label, number, Command(("work",)), f"{label}{number}", folder, round=number,
            cpus=((number + at) % 2,),
        )
        for number in range(rounds)
        for at, label in enumerate("ab")
    ]  # fmt: skip
    variants = []
    for label in "ab":
        work = folder / label
        work.mkdir()
        variants.append(Variant(label, build("native:cpus=1"), work))
    return Plan(variants, steps, {}, duet=True)


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, ...]]]:
    """Where machines were moved; they offer what a duet needs."""
    found: list[tuple[str, tuple[int, ...]]] = []

    def move(machine: Any, cpus: Any) -> None:
        found.append((machine.label, tuple(cpus)))

    monkeypatch.setattr(duet, "move", move)
    own = RecordOutside({"processes": ()})
    monkeypatch.setattr(
        Mock, "offer", lambda _self, wanted: own if wanted is RecordOutside else None
    )
    return found


def run(folder: Path, rounds: int, behaviour: Callable[[str, int], None], **own: Any) -> Kept:
    kept = Kept(**own)
    world = World(behaviour)
    Runner(plan(folder, rounds), kept, Listener(), world.start).run()
    assert world.alive == 0
    return kept


def test_both_run_at_the_same_time_on_their_own_cpus(tmp_path: Path, moves: list[Any]) -> None:
    meeting = threading.Barrier(2)
    # Each waits for the other: neither would end if one ran after the other.

    def meet(_label: str, _run: int) -> None:
        meeting.wait(10)

    kept = run(tmp_path, 3, meet)
    assert [done.position for done in kept.done_] == [0, 1, 2, 3, 4, 5]
    assert not kept.failed_ and all(done.beside is not None for done in kept.done_)
    begun = list(dict.fromkeys(moves[2:]))  # the first two are of the start
    assert set(begun) == {("a", (0,)), ("b", (1,)), ("a", (1,)), ("b", (0,))}


@pytest.mark.parametrize("lost", [False, True])
def test_where_one_fails_neither_counts(tmp_path: Path, moves: list[Any], lost: bool) -> None:
    failing = iter([False, True])

    def behaviour(label: str, _run: int) -> None:
        if label == "b" and next(failing, False):
            raise MachineLostError("it died") if lost else VtaxError("cannot start")

    kept = run(tmp_path, 4, behaviour)
    assert [done.step.folder for done in kept.done_] == ["a0", "b0", "a2", "b2", "a3", "b3"]
    said = "it died" if lost else "cannot start"
    assert kept.failed_ == {"b1": said, "a1": "not counted: 'b' failed beside it"}


def test_a_result_that_is_refused_takes_the_other_with_it(tmp_path: Path, moves: list[Any]) -> None:
    kept = run(tmp_path, 2, lambda _label, _run: None, refuses="a0")
    assert [done.step.folder for done in kept.done_] == ["a1", "b1"]
    assert kept.failed_ == {"a0": "exit code 1", "b0": "not counted: 'a' failed beside it"}


def test_one_that_is_not_ready_does_not_leave_the_other_waiting(
    tmp_path: Path, moves: list[Any]
) -> None:
    begin = time.monotonic()
    (tmp_path / "here").mkdir()
    own = plan(tmp_path / "here", 1)
    # A folder that is there already cannot be made: its repetition fails before it is ready.
    (tmp_path / "here" / "b" / "b0").write_text("in the way")
    kept = Kept()
    Runner(own, kept, Listener(), World().start).run()
    assert time.monotonic() - begin < 10 and set(kept.failed_) == {"a0", "b0"}
    assert not kept.done_


def finished(began_s: float | None, wall_s: float) -> Finished:
    from tested_machines import OUTCOME

    return Finished(OUTCOME, wall_s, wall_s + 0.01, began_s=began_s)


def test_the_overlap_is_the_time_in_which_both_ran() -> None:
    first, second = finished(100.0, 2.0), finished(100.5, 3.0)
    assert duet.overlap(first, second) == duet.Overlap(1.5, -0.5)
    assert duet.overlap(second, first) == duet.Overlap(1.5, 0.5)
    assert duet.overlap(first, finished(103.0, 1.0)) == duet.Overlap(0.0, -3.0)
    assert duet.overlap(first, finished(None, 1.0)) is None


@TWO
def test_all_threads_of_a_tree_move_and_what_they_start() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    code = (
        "import subprocess, sys, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.readline()\n"
        "print(subprocess.check_output(['grep', 'Cpus_allowed_list', '/proc/self/status'],"
        " text=True).split()[1], flush=True)\n"
        "child.kill()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin and parent.stdout
        child = int(parent.stdout.readline())
        own = Path(f"/proc/{parent.pid}/task")
        assert eventually(lambda: len(list(own.iterdir())) == 2)
        threads = [child, *(int(each.name) for each in own.iterdir())]
        for cpu in (allowed[-1], allowed[-2]):
            keep_on(parent.pid, [cpu])
            assert {frozenset(os.sched_getaffinity(each)) for each in threads} == {frozenset({cpu})}
        assert set(os.sched_getaffinity(0)) == set(allowed)
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline().strip() == str(allowed[-2])


def test_a_machine_elsewhere_is_not_moved() -> None:
    assert duet.can_move(build("native")) and duet.can_move(build("uml"))
    for spec in ("ssh:host", "slurm:batch", "lab"):
        assert not duet.can_move(build(spec)), spec
