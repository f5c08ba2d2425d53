"""How all benches measure: interleaved rounds, ratios and medians with 95 % intervals.

The intervals are those that vtax reports for workloads.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeVar

from vtax.core import binaries
from vtax.core.statistics.rounds import log_ratio, one_each
from vtax.core.statistics.statistics import Estimate, derived_seed, median_estimate

VTAX = [sys.executable, "-m", "vtax.main"]
SEED = 1

Value = TypeVar("Value")
Verdict = Literal["met", "missed", "within noise", "too few rounds"]


def rounds(count: int, contenders: Sequence[Callable[[], Value]]) -> list[tuple[Value, ...]]:
    """Values of each contender over `count` shuffled rounds, after one that is not counted."""
    source = random.Random(SEED)
    values: list[list[Value]] = [[] for _ in contenders]
    for _ in range(count + 1):
        for index in source.sample(range(len(contenders)), len(contenders)):
            values[index].append(contenders[index]())
    return [tuple(each[1:]) for each in values]


def seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def quiet(argv: Sequence[str]) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the ends of its 95 % interval; ends are None for too few rounds."""

    n: int
    median: float
    low: float | None
    high: float | None

    def verdict(self, limit: float) -> Verdict:
        """Whether the quantity is at most `limit`, as far as the interval can tell."""
        if self.low is None or self.high is None:
            return "too few rounds"
        if self.high <= limit:
            return "met"
        return "missed" if self.low > limit else "within noise"

    def text(self, unit: str, digits: int = 2) -> str:
        ends = "one round" if self.n == 1 else "too few rounds for an interval"
        if self.low is not None and self.high is not None:
            ends = f"{self.low:.{digits}f} to {self.high:.{digits}f}"
        return f"{self.median:.{digits}f} {unit} ({ends})"


def interval(values: Sequence[float], name: str) -> Interval:
    """The median of at least one value; `name` seeds its bootstrap."""
    found = estimate(values, name)
    if found is None:
        return Interval(len(values), median(values), None, None)
    return around(found, len(values))


def estimate(values: Sequence[float], name: str) -> Estimate | None:
    return median_estimate(values, [0] * len(values), derived_seed(SEED, name), log=False)


def around(found: Estimate, n: int) -> Interval:
    half = found.half_width()
    return Interval(n, found.value, found.value - half, found.value + half)


def ratio(own: Sequence[float], base: Sequence[float]) -> tuple[float, float, float] | None:
    """The ratio of two contenders' times and its interval; None: too few rounds, or a time that is
    lost in the noise."""
    if min(*own, *base) <= 0:
        return None
    found = log_ratio(one_each(own), one_each(base))
    if found is None:
        return None
    low, high = found.value - found.half_width(), found.value + found.half_width()
    return math.exp(found.value), math.exp(low), math.exp(high)


def ratio_text(found: tuple[float, float, float] | None) -> str:
    if found is None:
        return "no ratio: too few rounds, or lost in the noise"
    return "{:.3g}x [{:.3g}, {:.3g}]".format(*found)


def versions() -> dict[str, str]:
    """The versions of what is compared, and of what it ran on."""
    facts = json.loads(subprocess.check_output([binaries.find("vtax-agent"), "facts"]))
    lines = {
        "machine": f"{facts['cpu']['model']}, {len(facts['affinity'])} CPUs, "
        f"{facts['virtualization']['kind']}, Linux {facts['kernel']['release']}",
        "python": sys.version.split()[0],
    }
    for name, argv in {
        "qemu": ["qemu-system-x86_64", "--version"],
        "uml": ["linux.uml", "--version"],
        "bubblewrap": ["bwrap", "--version"],
    }.items():
        if shutil.which(argv[0]):
            lines[name] = subprocess.check_output(argv, text=True).splitlines()[0]
    return lines


def about(more: dict[str, str] | None = None) -> None:
    """Print the versions, a line each."""
    for name, version in (versions() | (more or {})).items():
        print(f"{name}: {version}")
