"""`--param NAME=random:...`: each round of a comparison draws a value, the same for all of it.

So the value is part of the block that a round is: pairs within rounds cancel its effect, and the
result is about the whole set of values instead of one of them. What a round draws follows from the
run's seed and the round's number alone: neither the end of a run nor what else it does shifts it.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vtax.compare.sweep.parameters import (
    Values,
    filled,
    named,
    require_different,
    require_once,
    require_used,
)
from vtax.core.errors import MisuseError
from vtax.workloads.base import Workload

PREFIX = "random:"
MOST = 10_000
"""Draws before a value may come again; `--reps` takes no more rounds."""
_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A name, and what its values are drawn from."""

    name: str
    source: str
    """As the user wrote it: `1..100`, or `a,b,c`."""
    values: Sequence[int] | Sequence[str]

    def value(self, seed: int, number: int) -> str:
        """The value of a round. None comes again before all others have come (or 10,000)."""
        size = min(len(self.values), MOST)
        turn, place = divmod(number, size)
        return _turn(self.values, size, f"{seed} {self.name} {turn}")[place]


@functools.lru_cache(maxsize=64)
def _turn(values: Sequence[object], size: int, seed: str) -> Sequence[str]:
    """Values in a random order; they are a tuple or a range, which can be keys of the cache."""
    return list(map(str, random.Random(seed).sample(values, size)))


@dataclass(frozen=True, slots=True)
class Drawing:
    """What each round draws, and the workload with it."""

    parameters: tuple[Drawn, ...]
    seed: int
    words: tuple[str, ...]
    """The command with its placeholders."""
    fixed: Values
    """The values of other parameters."""
    workload: Callable[[Sequence[str]], Workload]
    """Makes the workload of a command. Raises MisuseError for what is none."""

    @property
    def name(self) -> str:
        """The command, in words."""
        return " ".join(self.words)

    @property
    def sources(self) -> dict[str, str]:
        """What each parameter is drawn from."""
        return {each.name: each.source for each in self.parameters}

    def values(self, number: int) -> Values:
        """What a round draws."""
        return {each.name: each.value(self.seed, number) for each in self.parameters}

    def of_round(self, number: int) -> Workload:
        """The workload of a round."""
        return self.workload(filled(self.words, {**self.fixed, **self.values(number)}))


def is_drawn(text: str) -> bool:
    """Whether the text of a `--param` says that its value is drawn."""
    return text.partition("=")[2].startswith(PREFIX)


def parse(texts: Sequence[str], words: Sequence[str], specs: Sequence[str]) -> tuple[Drawn, ...]:
    """The drawn parameters among all `--param` of a command in these environments.

    Raises MisuseError for what is none, and for a program or machine that would be drawn.
    """
    require_once(texts)
    found = tuple(map(_parsed, filter(is_drawn, texts)))
    for each in found:
        for what, where in (("the program", words[:1]), ("an environment", specs)):
            if any(f"{{{each.name}}}" in word for word in where):
                raise MisuseError(
                    f"--param {each.name}: {what} cannot be drawn in each round",
                    f"compare at each: --param {each.name}=VALUE,VALUE",
                )
    require_used((each.name for each in found), words)
    return found


def _parsed(text: str) -> Drawn:
    name, listed = named(text)
    source = listed.removeprefix(PREFIX)
    if ends := _RANGE.fullmatch(source):
        whole = range(int(ends[1]), int(ends[2]) + 1)
        if len(whole) > 1:
            return Drawn(name, source, whole)
    values = tuple(source.split(","))
    if ends or len(values) < 2 or not all(values):
        raise MisuseError(
            f"--param {text}: it is not {PREFIX}FIRST..LAST or {PREFIX}VALUE,VALUE",
            f"e.g. seed={PREFIX}1..1000000",
        )
    require_different(text, values)
    return Drawn(name, source, values)
