"""The BLAS that the system resolves, as `vtax doctor` finds it."""

from __future__ import annotations

from pathlib import Path

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding

_LIBRARY_FOLDERS = ("/usr/local/lib", "/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib")


class Blas(Check):
    """The library that decides HPL and DGEMM: the reference BLAS is many times slower."""

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
    """Whether it is the reference BLAS: Debian keeps each implementation in a folder of its own,
    this one in `blas`."""
    tuned = ("openblas", "mkl", "blis", "atlas", "flexiblas", "armpl")
    return not any(name in str(library).lower() for name in tuned)
