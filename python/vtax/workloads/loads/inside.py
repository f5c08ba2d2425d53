"""Loads without a link: programs again and again, and those that compute, as references."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from vtax.workloads.base import Command
from vtax.workloads.dgemm import DGEMM_PROGRAM, Dgemm
from vtax.workloads.loads.base import (
    GRACE_S,
    Load,
    LoadResult,
    bounded,
    positive,
    unreadable,
)
from vtax.workloads.stream import STREAM_PROGRAM

DATA = "data"
DATA_BYTES = 256 << 10
ROUND_S = 120.0
"""The most time of one round on an emulated processor."""
_ROUNDS = """\
end=$(($(date +%s) + $1)); shift; date +%s.%N
while :; do
    "$@" >/dev/null || exit; date +%s.%N
    [ "$(date +%s)" -lt "$end" ] || break
done
"""
_TIME = re.compile(r"[0-9]{1,12}\.[0-9]{9}")


@dataclass(frozen=True)
class Rounds(Load):
    """A program again and again, on one CPU; its start counts, as it does in use."""

    name: str
    about: str
    needs: tuple[str, ...]  # type: ignore[misc]
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    def command(self, seconds: int) -> Command:
        line = ("sh", "-c", _ROUNDS, "sh", str(seconds), *self.argv)
        return Command(line, self.environment, self.files, seconds + ROUND_S + GRACE_S)

    def read(self, stdout: str) -> LoadResult:
        lines = bounded(self.name, stdout).split()
        if len(lines) < 2 or not all(_TIME.fullmatch(line) for line in lines):
            raise unreadable(self.name, stdout)
        times = [float(line) for line in lines]
        took = positive(self.name, "the duration", times[-1] - times[0])
        rounds = len(times) - 1
        return LoadResult(rounds / took, "rounds/s", requests=rounds)


def _text() -> bytes:
    """Lines that compress to about a fifth, the same everywhere."""
    lines = (f"{n * n % 9973} requests at {n * 7919 % 86400} s\n" for n in range(12_000))
    return "".join(lines).encode()[:DATA_BYTES]


def references() -> tuple[Load, ...]:
    """Loads of programs that use no service of the host."""
    product = (DGEMM_PROGRAM, "--size", "300", "--times", "5")
    return (
        Rounds("dgemm", "products of matrices, one thread", (DGEMM_PROGRAM,), product,
               Dgemm().environment(1)),
        Rounds("stream", "the four STREAM kernels, one thread", (STREAM_PROGRAM,),
               (STREAM_PROGRAM, "stream", "--bytes", "8M", "--times", "5")),
        Rounds("gzip", "compression of 256 KiB of text", ("gzip",), ("gzip", "-c", DATA),
               files={DATA: _text()}),
    )  # fmt: skip
