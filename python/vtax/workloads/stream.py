"""Memory bandwidth: copy, scale, add and triad over long vectors, by vtax-agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vtax.core.checks.model import Check
from vtax.core.errors import MisuseError
from vtax.core.formats.model import WORKING_SET, Better
from vtax.core.units import format_bytes, parse_size
from vtax.workloads.arguments import Parser, refuse_patterns, whole_number
from vtax.workloads.base import Command, MachineShape, Metric, Outcome, ResultFolder
from vtax.workloads.outcomes import (
    PROGRAM_METRICS,
    json_result,
    positive,
    program_metrics,
    require_success,
)
from vtax.workloads.registry import register

STREAM_PROGRAM = "vtax-agent"
"""Its folder is on the PATH of every machine."""

DEFAULT_BYTES = 64 << 20
"""The size of each of the three arrays, the same in every environment. STREAM's rule is four times
the last cache; a cloud host's cache is shared and of unknown share, so this is a compromise that
also fits small guests. A result above the machine's memory bandwidth says that --bytes is too
small."""
DEFAULT_TIMES = 10
"""As in STREAM: the best of ten runs counts, and the first is left out."""

_USABLE_SHARE = 0.7
_KERNELS = ("copy", "scale", "add", "triad")


@register
@dataclass(frozen=True, slots=True)
class Stream:
    """Memory bandwidth by the four STREAM kernels, one thread."""

    name: ClassVar[str] = "stream"
    checks: ClassVar[Sequence[type[Check]]] = ()

    array_bytes: int = DEFAULT_BYTES
    times: int = DEFAULT_TIMES

    @classmethod
    def from_args(cls, args: Sequence[str], metric_patterns: Sequence[str] = ()) -> Self:
        refuse_patterns(cls.name, metric_patterns)
        options = _parser().parse_args(list(args))
        return cls(array_bytes=options.bytes, times=options.times)

    def parameters(self) -> dict[str, Any]:
        return {
            "array_bytes": self.array_bytes,
            "times": self.times,
            WORKING_SET: 3 * self.array_bytes,
        }

    def label(self) -> str:
        return f"stream 3 x {format_bytes(self.array_bytes)}"

    def command(self, shape: MachineShape) -> Command:
        needed = 3 * self.array_bytes
        if needed > _USABLE_SHARE * shape.memory_bytes:
            largest = int(_USABLE_SHARE * shape.memory_bytes / 3) >> 20
            raise MisuseError(
                f"stream: three arrays of {format_bytes(self.array_bytes)} are more than "
                f"{100 * _USABLE_SHARE:.0f} % of the machine's {format_bytes(shape.memory_bytes)}",
                f"use --bytes {largest}M or less, or give the guest more with mem=",
            )
        return Command(
            argv=(
                *(STREAM_PROGRAM, "stream", "--json"),
                *("--bytes", str(self.array_bytes), "--times", str(self.times)),
            ),
            # Only a hanging program reaches it: ten arrays are read or written each time, and an
            # emulated CPU moves some 100 MB/s.
            timeout_s=120.0 + 10.0 * self.array_bytes * (self.times + 2) / 1e7,
        )

    def metrics(self, outcome: Outcome, folder: ResultFolder) -> Sequence[Metric]:
        program = f"{STREAM_PROGRAM} stream"
        require_success(program, outcome, folder)
        result = json_result(program, folder)
        own = tuple(
            Metric(
                f"stream_{kernel}", "GB/s", "higher", positive(program, result, f"{kernel}_gb_s")
            )
            for kernel in _KERNELS
        )
        return (*own, *program_metrics(outcome))

    def needs(self) -> Sequence[str]:
        return (STREAM_PROGRAM,)

    def libraries(self) -> Sequence[str]:
        return ()

    def expected_metrics(self, shape: MachineShape) -> Sequence[tuple[str, str, Better]]:
        own: tuple[tuple[str, str, Better], ...] = tuple(
            (f"stream_{kernel}", "GB/s", "higher") for kernel in _KERNELS
        )
        return (*own, *PROGRAM_METRICS)


def _parser() -> Parser:
    parser = Parser(
        Stream.name,
        "Measure memory bandwidth with the four STREAM kernels.",
        "vtax compare --in native --in uml:mem=1G -- stream --bytes 128M",
    )
    parser.add_argument(
        "--bytes", type=parse_size, default=DEFAULT_BYTES, metavar="SIZE",
        help=f"each of three arrays (default {format_bytes(DEFAULT_BYTES)})",
    )  # fmt: skip
    parser.add_argument(
        "--times", type=whole_number(2, 10_000), default=DEFAULT_TIMES, metavar="K",
        help="rounds (default %(default)s)",
    )  # fmt: skip
    return parser
