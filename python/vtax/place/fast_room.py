"""Whether the fast cores have room for the threads that are to be kept to them.

A thread that runs a guest is kept off slower cores only while the faster cores can carry all that
is kept there: eight busy vCPUs on two favoured cores would each have a quarter of a core. Where
they cannot, the next slower kind is added, and in the end all kinds. What threads ask for is the
CPU time that they had and the time that they waited for a CPU; a core's further hardware thread is
worth a part of a core (`HostCores.worth`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

CROWDED = 1.05
"""Threads may ask for this multiple of what cores are worth, so that idle threads decide
nothing."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A thread, and the sets of CPUs that it could be kept to: the narrowest first, its own CPUs
    last."""

    id: str
    asks: float
    """Cores' worth of CPU time, 0 to 1."""
    choices: tuple[frozenset[int], ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a thread is kept."""

    cpus: frozenset[int]
    crowded: str | None = None
    """Why the thread is not kept to the narrowest of its choices."""


def kept(
    wishes: Sequence[Wish],
    worth: Callable[[Collection[int]], float],
    named: Callable[[Collection[int]], str],
) -> Mapping[str, Kept]:
    """Where each thread is kept, by thread. All threads that have a wider choice leave a crowded
    set."""
    level = {each.id: 0 for each in wishes}
    why: dict[str, str] = {}
    while True:
        now = {each.id: each.choices[level[each.id]] for each in wishes}
        crowded = {
            cpus: asked
            for cpus in {*now.values()}
            if (asked := sum(each.asks for each in wishes if now[each.id] <= cpus))
            > CROWDED * worth(cpus)
        }
        wider = False
        for each in wishes:
            over = [cpus for cpus in crowded if now[each.id] <= cpus]
            if not over or level[each.id] + 1 == len(each.choices):
                continue
            most = max(over, key=len)
            work = f"{crowded[most]:.3g} cores' work would run on {named(most)}"
            why.setdefault(each.id, f"{work}, worth {worth(most):.3g}")
            level[each.id] += 1
            wider = True
        if not wider:
            return {each.id: Kept(now[each.id], why.get(each.id)) for each in wishes}
