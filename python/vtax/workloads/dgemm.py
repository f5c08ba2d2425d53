"""Matrix multiplication through the BLAS that the system resolves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vtax.core.checks.model import Check
from vtax.core.errors import MisuseError
from vtax.core.formats.model import Better
from vtax.core.units import format_bytes
from vtax.workloads.arguments import Parser, refuse_patterns, whole_number
from vtax.workloads.base import Command, MachineShape, Metric, Outcome, ResultFolder
from vtax.workloads.blas import Blas
from vtax.workloads.outcomes import (
    PROGRAM_METRICS,
    json_result,
    positive,
    program_metrics,
    require_success,
)
from vtax.workloads.registry import register

DGEMM_PROGRAM = "vtax-dgemm"
"""vtax's own program; its folder is on the PATH of every machine."""

DEFAULT_SIZE = 800
"""1.02 Gflop for each product: some 15 ms natively, and 2 to 5 s on an emulated CPU."""
DEFAULT_TIMES = 5

_USABLE_SHARE = 0.8
# The code, and the buffers that a BLAS allocates for packing, about 32 MiB for each thread.
_PROCESS_BYTES = 32 << 20
_THREAD_BYTES = 32 << 20

# The metric's name, unit and direction, and its key in the program's JSON.
_METRICS: tuple[tuple[str, str, Better, str], ...] = (
    ("dgemm_gflops", "Gflop/s", "higher", "best_gflops"),
    ("dgemm_median_gflops", "Gflop/s", "higher", "median_gflops"),
    ("dgemm_best_s", "s", "lower", "best_s"),
)


@register
@dataclass(frozen=True, slots=True)
class Dgemm:
    """Matrix multiplication in double precision, several times in one process."""

    name: ClassVar[str] = "dgemm"
    checks: ClassVar[Sequence[type[Check]]] = (Blas,)

    size: int = DEFAULT_SIZE
    times: int = DEFAULT_TIMES
    threads: int | None = None
    """None: one thread for each CPU of the machine."""

    @classmethod
    def from_args(cls, args: Sequence[str], metric_patterns: Sequence[str] = ()) -> Self:
        refuse_patterns(cls.name, metric_patterns)
        options = _parser().parse_args(list(args))
        return cls(size=options.size, times=options.times, threads=options.threads)

    def parameters(self) -> dict[str, Any]:
        return {"size": self.size, "times": self.times, "threads": self.threads}

    def label(self) -> str:
        return f"dgemm N={self.size}"

    def command(self, shape: MachineShape) -> Command:
        threads = self.threads or shape.cpus
        self._require_memory(threads, shape)
        return Command(
            argv=(DGEMM_PROGRAM, "--size", str(self.size), "--times", str(self.times)),
            environment=self.environment(threads),
            # Only a hanging program reaches it: QEMU's TCG was seen at 0.2 Gflop/s. The program
            # may warm up and verify, hence the two more.
            timeout_s=120.0 + 2.0 * self.size**3 * (self.times + 2) / 5e7,
        )

    def environment(self, threads: int) -> dict[str, str]:
        """Variables that tell any BLAS how many threads to use."""
        variables = ("OPENBLAS", "OMP", "MKL", "BLIS")
        return {f"{name}_NUM_THREADS": str(threads) for name in variables}

    def metrics(self, outcome: Outcome, folder: ResultFolder) -> Sequence[Metric]:
        require_success(DGEMM_PROGRAM, outcome, folder)
        result = json_result(DGEMM_PROGRAM, folder)
        own = tuple(
            Metric(name, unit, better, positive(DGEMM_PROGRAM, result, key))
            for name, unit, better, key in _METRICS
        )
        return (*own, *program_metrics(outcome))

    def needs(self) -> Sequence[str]:
        return (DGEMM_PROGRAM,)

    def libraries(self) -> Sequence[str]:
        return (DGEMM_PROGRAM,)

    def expected_metrics(self, shape: MachineShape) -> Sequence[tuple[str, str, Better]]:
        return (*((name, unit, better) for name, unit, better, _ in _METRICS), *PROGRAM_METRICS)

    def _require_memory(self, threads: int, shape: MachineShape) -> None:
        needed = 3 * 8 * self.size**2 + _PROCESS_BYTES + threads * _THREAD_BYTES
        if needed > _USABLE_SHARE * shape.memory_bytes:
            raise MisuseError(
                f"dgemm: N={self.size} needs {format_bytes(needed)}, more than "
                f"{100 * _USABLE_SHARE:.0f} % of the machine's {format_bytes(shape.memory_bytes)}",
                "use a smaller --size, or give the guest more with mem=",
            )


def _parser() -> Parser:
    parser = Parser(
        Dgemm.name,
        "Multiply two square matrices of doubles through the system's BLAS.",
        "vtax compare --in native --in uml:mem=1G -- dgemm --size 1000",
    )
    parser.add_argument(
        "--size", type=whole_number(1, 100_000), default=DEFAULT_SIZE, metavar="N",
        help="rows and columns (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--times", type=whole_number(1, 10_000), default=DEFAULT_TIMES, metavar="K",
        help="products in one repetition (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=whole_number(1, 4096), metavar="T",
        help="threads of the BLAS (default: the machine's CPUs)",
    )  # fmt: skip
    return parser
