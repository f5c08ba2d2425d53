"""Programs that run at any size: the driver of `vtax memory`, and a command line with `{size}`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.model import Better
from vtax.workloads.base import Command, MachineShape, Outcome, ResultFolder
from vtax.workloads.command import CommandLine
from vtax.workloads.dgemm import DGEMM_PROGRAM, Dgemm
from vtax.workloads.outcomes import json_result, positive, require_success

PLACE = "{size}"
MOST_SIZES = 1000
LARGEST = 46_340
"""The largest matrix that vtax-dgemm takes; a command's size may be any."""
_RANGE = re.compile(r"([0-9]+)-([0-9]+)(?::([0-9]+))?")


class SizedProgram(Protocol):
    """A program that can run at each size."""

    @property
    def name(self) -> str:
        """The name of its metric; the next two are of the same metric."""
        ...

    @property
    def unit(self) -> str: ...

    @property
    def better(self) -> Better: ...

    def argv(self) -> tuple[str, ...]:
        """The command line, with PLACE for the size."""
        ...

    def command(self, size: int, shape: MachineShape) -> Command: ...

    def value(self, outcome: Outcome, wall_s: float, folder: ResultFolder) -> float:
        """The metric of a run; `wall_s` is the program's own time. Raises VtaxError when the run
        failed."""
        ...

    def needs(self) -> Sequence[str]:
        """Programs that must be on the machine's PATH."""
        ...


@dataclass(frozen=True, slots=True)
class SizedDgemm:
    """One product of square matrices that were filled at random, in a process of its own."""

    most_columns: int | None = None
    """Multiply by the first N columns only, while the matrices lie in memory whole; None: by
    all."""
    name: ClassVar[str] = "dgemm"
    unit: ClassVar[str] = "Mflop/s"
    better: ClassVar[Better] = "higher"

    def argv(self) -> tuple[str, ...]:
        return (DGEMM_PROGRAM, "--times", "1", "--cold", "--size", PLACE)

    def command(self, size: int, shape: MachineShape) -> Command:
        threads = Dgemm(size, 1, shape.cpus).environment(shape.cpus)
        only = () if self.most_columns is None else ("--columns", str(min(size, self.most_columns)))
        return Command((*_placed(self.argv(), size), *only), threads)

    def value(self, outcome: Outcome, wall_s: float, folder: ResultFolder) -> float:
        require_success(DGEMM_PROGRAM, outcome, folder)
        result = json_result(DGEMM_PROGRAM, folder)
        return 1000 * positive(DGEMM_PROGRAM, result, "best_gflops")

    def needs(self) -> Sequence[str]:
        return (DGEMM_PROGRAM,)


@dataclass(frozen=True, slots=True)
class SizedCommand:
    """A command line; its metric is its wall time, or what `--metric` finds in its output."""

    program: CommandLine
    name: str
    unit: str
    better: Better

    def argv(self) -> tuple[str, ...]:
        return self.program.argv

    def command(self, size: int, shape: MachineShape) -> Command:
        return Command(_placed(self.program.argv, size), in_user_folder=True)

    def value(self, outcome: Outcome, wall_s: float, folder: ResultFolder) -> float:
        if not self.program.patterns:
            require_success(self.program.argv[0], outcome, folder)
            return wall_s
        metric = self.program.metrics(outcome, folder)[0]
        found = metric.value
        if metric.unit != self.unit:
            raise VtaxError(
                f"metric '{self.name}': the output has the unit '{metric.unit}'",
                f"write --metric '{self.name}:{metric.unit}:{metric.better}=...'",
            )
        if found <= 0:
            raise VtaxError(f"metric '{self.name}': {found:g} is not above 0")
        return found

    def needs(self) -> Sequence[str]:
        return () if PLACE in self.program.argv[0] else (self.program.argv[0],)


def parse(argv: Sequence[str], patterns: Sequence[str]) -> SizedProgram:
    """The program of a command line; without one, the DGEMM driver.

    Raises MisuseError when no word has `{size}`, or for more than one pattern.
    """
    if not argv:
        if patterns:
            raise MisuseError("--metric is for a command", "give one after --")
        return SizedDgemm()
    if not any(PLACE in word for word in argv):
        raise MisuseError(
            f"no word of the command has {PLACE}: every size would run the same",
            f"write for example: -- ./my-program {PLACE}",
        )
    if len(patterns) > 1:
        raise MisuseError("--metric is given twice", "the cliff is looked for in one metric")
    program = CommandLine.from_args(argv, patterns)
    for own in program.patterns:
        if own.better is None:
            raise MisuseError(
                f"metric '{own.name}': what is better, higher or lower, is not known",
                f"write --metric '{own.name}:lower=...', or higher",
            )
        return SizedCommand(program, own.name, own.unit, own.better)
    return SizedCommand(program, "wall_s", "s", "lower")


def parse_sizes(text: str) -> tuple[int, ...]:
    """The sizes of `100-4000:100`, `64,128,256` or both joined by commas, ascending.

    Raises MisuseError when a size is no whole number above 0, when they do not ascend, and when
    there are fewer than two or more than a thousand.
    """
    sizes: list[int] = []
    for part in text.split(","):
        sizes += _sizes_of(text, part.strip())
    if min(sizes) < 1:
        raise MisuseError(f"--sizes {text}: a size must be at least 1")
    if any(b <= a for a, b in itertools.pairwise(sizes)):
        raise MisuseError(f"--sizes {text}: sizes must ascend", _EXAMPLE)
    if len(sizes) < 2:
        raise MisuseError(f"--sizes {text}: one size has no cliff", _EXAMPLE)
    return tuple(sizes)


_EXAMPLE = "write for example --sizes 100-4000:100 or --sizes 64,128,256"


def _sizes_of(text: str, part: str) -> Sequence[int]:
    if part.isdecimal() and part.isascii():
        return (int(part),)
    if (match := _RANGE.fullmatch(part)) is None:
        raise MisuseError(f"--sizes {text}: '{part}' is neither a size nor FIRST-LAST:STEP",
                          _EXAMPLE)  # fmt: skip
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step < 1 or last < first:
        raise MisuseError(f"--sizes {text}: '{part}' has no sizes", _EXAMPLE)
    if (last - first) // step >= MOST_SIZES:
        raise MisuseError(f"--sizes {text}: more than {MOST_SIZES} sizes", "take a larger step")
    return range(first, last + 1, step)


def _placed(argv: Sequence[str], size: int) -> tuple[str, ...]:
    return tuple(word.replace(PLACE, str(size)) for word in argv)
