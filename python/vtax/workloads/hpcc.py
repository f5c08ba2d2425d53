"""The HPC Challenge suite: HPL, DGEMM, PTRANS, RandomAccess, STREAM, FFT and message kernels."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.formats.model import WORKING_SET, Better
from vtax.workloads.arguments import Parser, refuse_patterns, whole_number
from vtax.workloads.base import Command, MachineShape, Metric, Outcome, ResultFolder
from vtax.workloads.blas import Blas
from vtax.workloads.hpcc_input import (
    DEFAULT_BLOCK,
    LARGEST_N,
    MOST_SIZES,
    PRESETS,
    SMALLEST_N,
    input_file,
    require_memory,
    time_limit_s,
)
from vtax.workloads.hpcc_metrics import described, metrics
from vtax.workloads.hpcc_output import read_output
from vtax.workloads.outcomes import (
    PROGRAM_METRICS,
    STDERR,
    STDOUT,
    program_metrics,
    require_success,
)
from vtax.workloads.registry import register

DEFAULT_PRESET = "small"

_ENVIRONMENT = {
    # The root of a guest is nobody on the host, and mpirun refuses root otherwise.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Settings as exclusions, which Open MPI 4 and 5 both take: what a version lacks is
    # no error, and the shared-memory transport (`vader` in 4, `sm` in 5) is left whatever
    # its name. Without this a machine with other network hardware would use other transports.
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "^openib,ofi,tcp,ucx,uct,ugni,usnic,portals4,smcuda",
    # All ranks are local: version 4 must not look for ssh, which a lean system does not have.
    # (`plm isolated` would do in version 4 only; version 5 has no such component.)
    "OMPI_MCA_plm": "^rsh",
    # One thread for each rank; by default there is one rank for each CPU.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


_ALONE = {
    # One process needs no launcher, which does not work everywhere: gVisor has no interface that
    # mpirun 4.1 would listen on. (Open MPI 5 has neither component, so it takes no notice.)
    "OMPI_MCA_ess_singleton_isolated": "1",
    "OMPI_MCA_plm": "isolated",
}


class Installed(Check):
    """HPC Challenge, from the distribution, so that every environment runs the same binary."""

    name = "hpcc"
    purpose = "workload hpcc"

    def find(self, host: Host) -> Finding:
        program = host.which("hpcc")
        if program is None:
            return self.missing("hpcc is not installed", host.install("hpcc", "HPC Challenge"))
        return self.ok(program)


class Mpi(Check):
    """hpcc is an MPI program."""

    name = "mpi"
    purpose = "workload hpcc"

    def find(self, host: Host) -> Finding:
        program = host.which("mpirun")
        if program is None:
            return self.missing("mpirun is not installed", host.install("openmpi-bin", "Open MPI"))
        output = host.run([program, "--version"])
        if output.code != 0:
            return self.missing(
                f"{program} does not run: {output.last_error}",
                host.install("--reinstall openmpi-bin", "Open MPI again"),
            )
        return self.ok(f"{program}: {output.first_line}")


@register
@dataclass(frozen=True, slots=True)
class Hpcc:
    """HPC Challenge over Open MPI on one machine."""

    name: ClassVar[str] = "hpcc"
    checks: ClassVar[Sequence[type[Check]]] = (Installed, Mpi, Blas)

    sizes: tuple[int, ...]
    """HPL's N. HPCC sizes its other kernels by the largest N."""
    preset: str | None = None
    processes: int | None = None
    """None: one process for each CPU of the machine."""
    block: int = DEFAULT_BLOCK

    @classmethod
    def from_args(cls, args: Sequence[str], metric_patterns: Sequence[str] = ()) -> Self:
        refuse_patterns(cls.name, metric_patterns)
        options = _parser().parse_args(list(args))
        preset = None if options.sizes else options.preset or DEFAULT_PRESET
        sizes = PRESETS[preset] if preset else options.sizes
        return cls(sizes=sizes, preset=preset, processes=options.np, block=options.nb)

    def parameters(self) -> dict[str, Any]:
        return {
            "preset": self.preset,
            "sizes": list(self.sizes),
            "np": self.processes,
            "nb": self.block,
            # HPCC sizes its other arrays by HPL's largest matrix.
            WORKING_SET: 8 * max(self.sizes) ** 2,
        }

    def label(self) -> str:
        return f"hpcc {self.preset or 'N=' + ','.join(map(str, self.sizes))}"

    def command(self, shape: MachineShape) -> Command:
        processes = self.processes or shape.cpus
        require_memory(self.sizes, processes, shape)
        alone = processes == 1
        return Command(
            # `--oversubscribe` in a form that Open MPI 4 and 5 both take. vtax itself binds
            # processes: a guest of one CPU has nothing to bind to.
            argv=("hpcc",)
            if alone
            else (
                *("mpirun", "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"),
                *("-np", str(processes), "hpcc"),
            ),
            environment=_ENVIRONMENT | (_ALONE if alone else {}),
            files={"hpccinf.txt": input_file(self.sizes, processes, self.block)},
            timeout_s=time_limit_s(self.sizes),
        )

    def metrics(self, outcome: Outcome, folder: ResultFolder) -> Sequence[Metric]:
        require_success(self.name, outcome, folder)
        messages = f"{folder.read_text(STDOUT)}\n{folder.read_text(STDERR)}"
        output = read_output(folder.read_text("hpccoutf.txt"), messages, self.sizes)
        return (*metrics(output, self.sizes), *program_metrics(outcome))

    def needs(self) -> Sequence[str]:
        return ("mpirun", "hpcc")

    def libraries(self) -> Sequence[str]:
        return ("hpcc",)

    def expected_metrics(self, shape: MachineShape) -> Sequence[tuple[str, str, Better]]:
        return (*described(self.sizes, self.processes or shape.cpus), *PROGRAM_METRICS)


def _sizes(text: str) -> tuple[int, ...]:
    convert = whole_number(SMALLEST_N, LARGEST_N)
    sizes = tuple(convert(word) for word in text.split(","))
    if len(sizes) > MOST_SIZES:
        raise argparse.ArgumentTypeError(f"HPL takes at most {MOST_SIZES} sizes")
    if len(set(sizes)) < len(sizes):
        raise argparse.ArgumentTypeError(f"'{text}' has a size twice")
    return sizes


def _parser() -> Parser:
    parser = Parser(
        Hpcc.name,
        "Run the HPC Challenge suite.",
        "vtax compare --in native --in uml:mem=1G -- hpcc --preset small -np 1",
    )
    problem = parser.add_mutually_exclusive_group()
    presets = ", ".join(f"{name}: N={_brief(sizes)}" for name, sizes in PRESETS.items())
    problem.add_argument(
        "--preset", choices=tuple(PRESETS), help=f"problem (default {DEFAULT_PRESET}; {presets})"
    )
    problem.add_argument("--sizes", type=_sizes, metavar="N,N,...", help="HPL's problem sizes")
    parser.add_argument(
        "-np", "--np", type=whole_number(1, 4096), metavar="P",
        help="MPI processes (default: the machine's CPUs)",
    )  # fmt: skip
    parser.add_argument(
        "--nb", type=whole_number(1, 4096), default=DEFAULT_BLOCK, metavar="NB",
        help="HPL's block size (default %(default)s)",
    )  # fmt: skip
    return parser


def _brief(sizes: Sequence[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]}..{sizes[-1]}"
