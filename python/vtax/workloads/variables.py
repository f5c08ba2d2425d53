"""Environment variables: which of them change a result, and what a machine gets.

A thread count or a CPU type forced on a BLAS, an allocator's tunables or a preloaded library
changes results by more than the virtualization does. A run without ``--keep-env`` is free
of them; what was taken away is recorded in run.json.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from vtax.errors import MisuseError

PREFIXES: tuple[str, ...] = (
    # BLAS libraries: threads, CPU type, block sizes
    "OPENBLAS_", "GOTO_", "BLIS_", "ATLAS_", "MKL_", "VECLIB_", "FLEXIBLAS", "AOCL_",
    # OpenMP runtimes: threads, binding, waiting
    "OMP_", "GOMP_", "KMP_", "LIBOMP_", "ACC_",
    # MPI, its launchers and topology: transports, binding, huge messages
    "OMPI_", "PMIX_", "PRTE_", "PMI_", "MPICH_", "MPIR_", "HYDRA_", "I_MPI_", "FI_", "UCX_",
    "HWLOC_", "OPAL_", "ORTE_",
    # The C library, its allocator and the dynamic linker
    "MALLOC_", "GLIBC_", "LD_", "JEMALLOC_", "TCMALLOC_", "MIMALLOC_", "HUGETLB_",
    # Run times of languages
    "NUMEXPR_", "NUMBA_", "JULIA_", "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG", "RAYON_",
    "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "PYTHON",
)  # fmt: skip
"""A variable whose name begins so changes results."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# No home: a file like ~/.openmpi/mca-params.conf changes results without leaving a trace in the
# environment, and a world-writable stand-in like /tmp would let another user supply that file.
NO_HOME = "/nonexistent"


def changes_results(name: str) -> bool:
    """Whether a variable of this name can change a measured result."""
    return name.startswith(PREFIXES)


def split(environ: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(variables that change no result, variables that do), each sorted by name."""
    harmless: dict[str, str] = {}
    changing: dict[str, str] = {}
    for name in sorted(environ):
        (changing if changes_results(name) else harmless)[name] = environ[name]
    return harmless, changing


def require_utf8(variables: Mapping[str, str]) -> None:
    """Raise MisuseError when one cannot be sent to a machine or recorded."""
    for name, value in variables.items():
        if readable(name + value) != name + value:
            raise MisuseError(
                f"environment variable {readable(name)} is not UTF-8", "unset or change it"
            )


def readable(text: str) -> str:
    """Text of the system's with each byte that is not UTF-8 as its number."""
    return os.fsencode(text).decode(errors="backslashreplace")


def base_environment(environ: Mapping[str, str], keep_env: bool) -> dict[str, str]:
    """The environment of the workload's processes, the same in every machine.

    The user's PATH, a UTF-8 locale with a decimal point, no home folder. With `keep_env` also the
    user's home folder and every variable that changes results. All others stay out in any case:
    among them are tokens and sockets, which are no business of a guest's.
    """
    base = {
        "PATH": environ.get("PATH") or DEFAULT_PATH,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "HOME": NO_HOME,
        "TMPDIR": "/tmp",
    }
    if keep_env:
        base["HOME"] = environ.get("HOME") or os.sep
        base |= split(environ)[1]
    return base
