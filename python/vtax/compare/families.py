"""Which family a metric belongs to, by its name: metrics that are read together stand together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """A group of metrics that stress the machine in the same way."""

    title: str
    meaning: str
    """Says what the family stresses, in a line."""
    pattern: re.Pattern[str]


def _family(title: str, meaning: str, pattern: str) -> Family:
    return Family(title, meaning, re.compile(pattern, re.IGNORECASE))


# The first match wins: a STREAM bandwidth is of STREAM, a ring bandwidth is communication.
FAMILIES: Sequence[Family] = (
    _family("HPL", "solves a dense linear system: arithmetic from cache, hardly any kernel", "hpl"),
    _family("DGEMM", "multiplies dense matrices: arithmetic from cache", "dgemm"),
    _family("PTRANS", "transposes a matrix across processes: memory and messages", "ptrans"),
    _family(
        "RandomAccess",
        "updates random words of a large table: address translation and TLB misses",
        r"randomaccess|gups?\b",
    ),
    _family("STREAM", "streams long vectors: memory bandwidth", r"stream|\btriad|\bcopy\b"),
    _family("FFT", "Fourier transform: mixed arithmetic and strided memory", "fft"),
    _family(
        "Latency and bandwidth",
        "messages between processes: kernel entries, copies and wake-ups",
        r"latency|bandwidth|pingpong|ring",
    ),
    _family(
        "Whole program",
        "the command from start to end, by its own clock and CPU accounting",
        r"wall|cpu|tsc_s|elapsed|user|system|(^|_)time|run_s",
    ),
)
OTHER = _family("Other metrics", "as the workload reports them", "")


def family_of(metric: str) -> Family:
    return next((family for family in FAMILIES if family.pattern.search(metric)), OTHER)


def grouped(metrics: Iterable[str]) -> list[tuple[Family, list[str]]]:
    """The metrics by family, families in their fixed order, metrics in the order given."""
    members: dict[str, list[str]] = {}
    for metric in dict.fromkeys(metrics):
        members.setdefault(family_of(metric).title, []).append(metric)
    return [
        (family, members[family.title]) for family in (*FAMILIES, OTHER) if family.title in members
    ]


def counted_once(metrics: Sequence[str], processes: int | None) -> frozenset[str]:
    """The metrics without those that repeat what another one says.

    HPL's time and rate are one measurement. With one process, a kernel that HPCC runs in all
    processes at once (`Star`) is the same as in a single process.
    """
    known = frozenset(metrics)
    twice = {"HPL_time"} if "HPL_Tflops" in known else set()
    if processes == 1:
        stars = [metric for metric in known if metric.startswith("Star")]
        twice |= {star for star in stars if star.replace("Star", "Single", 1) in known}
    return known - twice
