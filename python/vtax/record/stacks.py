"""The stacks of recordings, and the difference of two: shares of time by stacks of frames.

A recording's stacks are weighted by the lengths of the rows that they stand for, in nanoseconds, so
their sum is the time recorded (`stacks.folded`, docs/record.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.files import read_bounded
from vtax.core.recorder.intervals import MAX_SITES_BYTES, STACKS
from vtax.core.recorder.ways import Scale

DEEPEST = 500
"""Frames of a stack; the recorder's are no deeper than a hundred."""
Stack = tuple[str, ...]
"""The mode, the program, and the frames, the outermost first."""
Weights = Mapping[Stack, float]


@dataclass(frozen=True, slots=True)
class Pair:
    """What a stack, or a frame with all below it, weighs in the first and the second recording."""

    first: float
    second: float

    def __add__(self, other: Pair) -> Pair:
        return Pair(self.first + other.first, self.second + other.second)

    @property
    def difference(self) -> float:
        """The second less the first."""
        return self.second - self.first

    @property
    def mean(self) -> float:
        """The mean of both, by which a graph shows what either has."""
        return (self.first + self.second) / 2

    @property
    def lean(self) -> float:
        """From -1 (only in the first) to 1 (only in the second)."""
        return self.difference / (self.first + self.second)


@dataclass(slots=True)
class Frame:
    """A frame of a graph with the frames that it called."""

    total: Pair = Pair(0.0, 0.0)
    called: dict[str, Frame] = field(default_factory=dict)


def load(run: Path) -> Weights:
    """The stacks of a recording in nanoseconds.

    Raises MisuseError when it has none, VtaxError when they cannot be understood.
    """
    found: dict[Stack, float] = {}
    for stack, weight in by_line(run):
        found[stack] = found.get(stack, 0.0) + weight
    if not sum(found.values()):
        raise VtaxError(f"{run / STACKS} has no stack: nothing ran while it was recorded")
    return found


def by_line(run: Path) -> Sequence[tuple[Stack, int]]:
    """The stacks of a recording and what they weigh, in the order of the file: column `stack` of a
    row is an index of it.

    Raises MisuseError when there is no file, VtaxError when it cannot be understood.
    """
    path = run / STACKS
    try:
        lines = read_bounded(path, MAX_SITES_BYTES).decode(errors="replace").splitlines()
        return [parse(line) for line in lines]
    except FileNotFoundError:
        raise MisuseError(f"'{run}' has no stacks", "record it with vtax record --stacks") from None
    except (OSError, ValueError) as error:
        raise VtaxError(f"{path} cannot be used: {error}") from None


def parse(line: str) -> tuple[Stack, int]:
    """A folded stack ``outer;...;inner WEIGHT``. A line of another form, or with more than DEEPEST
    frames, raises ValueError."""
    text, _, weight = line.rpartition(" ")
    stack = tuple(text.split(";", DEEPEST))
    if len(stack) > DEEPEST:
        raise ValueError(f"a stack has more than {DEEPEST} frames")
    return stack, int(weight)


def scaled(weights: Weights, scale: Scale) -> Weights:
    """Shares of the sum, or seconds from nanoseconds."""
    whole = sum(weights.values()) if scale is Scale.SHARE else 1e9
    return {stack: weight / whole for stack, weight in weights.items()}


def compared(first: Weights, second: Weights) -> Mapping[Stack, Pair]:
    """Each stack of either with its weights in both; 0 where it is not."""
    stacks = sorted({*first, *second})
    return {each: Pair(first.get(each, 0.0), second.get(each, 0.0)) for each in stacks}


def tree(pairs: Mapping[Stack, Pair]) -> Frame:
    """The graph of all stacks; the root stands for all of them."""
    root = Frame()
    for stack, pair in pairs.items():
        at = root
        at.total += pair
        for name in stack:
            at = at.called.setdefault(name, Frame())
            at.total += pair
    return root


def innermost(pairs: Mapping[Stack, Pair]) -> Sequence[tuple[str, Pair]]:
    """What each innermost frame weighs by itself, the largest difference first."""
    found: dict[str, Pair] = {}
    for stack, pair in pairs.items():
        found[stack[-1]] = found.get(stack[-1], Pair(0.0, 0.0)) + pair
    return sorted(found.items(), key=lambda one: (-abs(one[1].difference), -one[1].mean))


def folded(pairs: Mapping[Stack, Pair]) -> str:
    """Lines ``stack FIRST SECOND`` as difffolded.pl writes them and flamegraph.pl reads them."""
    lines = (f"{';'.join(stack)} {p.first:.9f} {p.second:.9f}\n" for stack, p in pairs.items())
    return "".join(lines)
