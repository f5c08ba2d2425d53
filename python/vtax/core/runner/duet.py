"""Two repetitions at once, each on its own CPUs: a duet.

What disturbs this machine from outside then hits both, and falls out of their ratio (Bulej, Horký,
Tůma, Farquet & Prokopec, *Duet Benchmarking*, ICPE 2020). Their pairs are iterations of a harness;
here they are whole commands, which begin together and need not end together.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import ClassVar

from vtax.core.errors import VtaxError
from vtax.core.runner.repetition import Repetition
from vtax.environments.agent import Finished
from vtax.environments.base import Environment, MachineLike
from vtax.environments.capabilities import Capability, RecordOutside
from vtax.environments.process_environment import ProcessEnvironment
from vtax.environments.process_tree import keep_on

START_S = 30.0
"""The most that one waits for the other to be ready, while instruments begin."""


def swapped(seed: int, number: int) -> bool:
    """Whether the two have changed places in this round: in two of each four rounds, at random.

    Not by turns: a program of somebody else moves to the CPU of the one that ends first, and would
    meet the other one there in the next round, and so on.
    """
    block, at = divmod(number, 4)
    return random.Random(f"{seed} duet {block}").sample((False, False, True, True), 4)[at]


def can_move(environment: Environment) -> bool:
    """Whether its machines are processes of this host, which can be kept on other CPUs."""
    is_process = isinstance(environment, ProcessEnvironment) and not environment.is_remote
    return is_process and RecordOutside in environment.offered()


def move(machine: MachineLike, cpus: Sequence[int]) -> None:
    """Keep all threads of a machine on these CPUs from now on, and what they start.

    The machine must be idle. Raises VtaxError when the kernel refuses.
    """
    outside = machine.offer(RecordOutside)
    if outside is None or outside.host is not None or "processes" not in outside.target:
        raise VtaxError("it is no process of this machine that could be moved to other CPUs")
    try:
        for first in outside.target["processes"]:
            keep_on(first, cpus)
    except OSError as error:
        listed = ",".join(map(str, cpus))
        raise VtaxError(f"cannot be moved to CPU {listed}: {error.strerror}") from None


@dataclass(slots=True)
class Together:
    """The last instrument of both repetitions: neither command begins before both are ready."""

    start: threading.Barrier
    begun: bool = False
    name: ClassVar[str] = "duet"

    @property
    def needs(self) -> type[Capability]:
        return RecordOutside

    @contextlib.contextmanager
    def around(self, repetition: Repetition) -> Iterator[None]:
        try:
            self.start.wait(START_S)
        except threading.BrokenBarrierError:
            raise VtaxError("not run: nothing ran beside it") from None
        self.begun = True
        yield


def at_once(
    actions: Sequence[Callable[[Together], None]], stop: Callable[[], None]
) -> Sequence[VtaxError | None]:
    """Carry out all actions at once, and return the error of each; each gets what it waits with.

    `stop` is called after Ctrl-C, and must make the actions end.
    """
    start = threading.Barrier(len(actions))

    def carry_out(action: Callable[[Together], None]) -> VtaxError | None:
        together = Together(start)
        try:
            action(together)
        except VtaxError as error:
            if not together.begun:
                start.abort()
            return error
        return None

    with ThreadPoolExecutor(len(actions)) as pool:
        running = [pool.submit(carry_out, each) for each in actions]
        try:
            wait(running)
        except BaseException:
            start.abort()
            stop()
            raise
    return [each.result() for each in running]


@dataclass(frozen=True, slots=True)
class Overlap:
    """How far a command of a pair ran at the same time as the other one, by the host's clock."""

    seconds: float
    """How long both ran."""
    later_s: float
    """How much later than the other one it began."""


def overlap(own: Finished, other: Finished) -> Overlap | None:
    """When the commands of a pair ran; None: it is not known when they began."""
    if own.began_s is None or other.began_s is None:
        return None
    later_s = own.began_s - other.began_s
    end_s = min(own.began_s + own.host_wall_s, other.began_s + other.host_wall_s)
    return Overlap(max(0.0, end_s - max(own.began_s, other.began_s)), later_s)
