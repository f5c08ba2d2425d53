"""How far the clock of another machine is from this one's, by asking its agent for the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vtax.core.errors import VtaxError

UNSEEN_SHARE, UNSEEN_S = 0.01, 0.02
"""How much less than this machine's time the other machine's may be, as a share and in seconds. If
it lacks more, this machine was busy or the other's clock is wrong, and this machine's time is
taken."""
ROUNDS = 50
"""How often to ask; the shortest round trip is taken. Each takes 0.1 to 2 ms."""


def least_s(host_s: float) -> float:
    """The shortest time that another machine may give to what took `host_s` here."""
    return host_s * (1 - UNSEEN_SHARE) - UNSEEN_S


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One question for the time; all three values in nanoseconds of CLOCK_MONOTONIC."""

    before_ns: int
    there_ns: int
    after_ns: int

    @property
    def length_ns(self) -> int:
        return self.after_ns - self.before_ns


@dataclass(frozen=True, slots=True)
class Skew:
    """The other machine's clock less this one's."""

    offset_ns: int
    within_ns: int
    """The true offset is no further from `offset_ns` than this: half of the round trip."""


def estimate(trips: Iterable[RoundTrip]) -> Skew:
    """The skew by the shortest round trip: the other clock was read somewhere within it.

    Raises ValueError without any round trip.
    """
    shortest = min(trips, key=lambda trip: trip.length_ns)
    middle = (shortest.before_ns + shortest.after_ns) // 2
    # Round up: the middle may have been rounded down.
    return Skew(shortest.there_ns - middle, (shortest.length_ns + 1) // 2)


def measure(
    ask: Callable[[], int], rounds: int = ROUNDS, now: Callable[[], int] = time.monotonic_ns
) -> Skew:
    """Ask for the time `rounds` times; `ask` returns the other machine's CLOCK_MONOTONIC in ns."""
    trips = []
    for _ in range(rounds):
        before = now()
        there = ask()
        trips.append(RoundTrip(before, there, now()))
    return estimate(trips)


def time_in(answer: dict[str, object]) -> int:
    """The time in an agent's answer to `clock` (crates/agent/PROTOCOL.md).

    Raises VtaxError when the answer has no time.
    """
    there = answer.get("monotonic_ns")
    if not isinstance(there, int) or isinstance(there, bool) or there < 0:
        raise VtaxError(f"the machine's answer to 'time' has no time: {str(answer)[:80]}")
    return there
