"""What the workloads need."""

from __future__ import annotations

from pathlib import Path

from vtax.doctor.host import Host
from vtax.doctor.model import Check, Finding, register

_LIBRARY_FOLDERS = ("/usr/local/lib", "/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib")


@register
class Agent(Check):
    """Runs inside every machine under measurement; comes with vtax."""

    name = "agent"
    purpose = "every measurement"

    def find(self, host: Host) -> Finding:
        program = host.agent()
        if program is None:
            return self.missing(
                "vtax-agent is not part of this installation", "make setup, or pip install ."
            )
        output = host.run([program, "--version"])
        if output.code != 0:
            return self.missing(f"{program} does not run: {output.last_error}", "make setup")
        return self.ok(output.first_line)


@register
class Hpcc(Check):
    """HPC Challenge, from the distribution, so that every environment runs the same binary."""

    name = "hpcc"
    purpose = "workload hpcc"

    def find(self, host: Host) -> Finding:
        program = host.which("hpcc")
        if program is None:
            return self.missing("hpcc is not installed", host.install("hpcc", "HPC Challenge"))
        return self.ok(program)


@register
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
                host.install("--reinstall openmpi-bin", "Open MPI anew"),
            )
        return self.ok(f"{program}: {output.first_line}")


@register
class Blas(Check):
    """The library that decides HPL and DGEMM: the reference one is many times slower."""

    name = "blas"
    purpose = "workloads hpcc and dgemm"

    def find(self, host: Host) -> Finding:
        remedy = host.install("libopenblas0-pthread", "OpenBLAS")
        for pattern in _LIBRARY_FOLDERS:
            for folder in host.glob(pattern):
                resolved = host.resolve(folder / "libblas.so.3")
                if not host.exists(str(resolved)):
                    continue
                if _is_reference(resolved):
                    return self.degraded(
                        f"libblas.so.3 is the reference BLAS ({resolved}): many times slower",
                        remedy,
                    )
                return self.ok(str(resolved))
        return self.missing("no libblas.so.3", remedy)


def _is_reference(library: Path) -> bool:
    """Debian keeps each implementation in a folder of its own; the reference one is `blas`."""
    tuned = ("openblas", "mkl", "blis", "atlas", "flexiblas", "armpl")
    return not any(name in str(library).lower() for name in tuned)
