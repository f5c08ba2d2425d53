"""HPCC's problem: preset sizes, the file hpccinf.txt, and the memory and time it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from vtax.core.errors import MisuseError
from vtax.core.units import format_bytes
from vtax.workloads.base import MachineShape

PRESETS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        # Everything runs and is checked, in about 0.3 s natively: for tests.
        "tiny": (400,),
        # About 1.8 s natively. From 1449 on the tables of RandomAccess have 2**21 words (16 MiB),
        # beyond any TLB and most caches; at 2000 they are no larger, while HPL and DGEMM take 2.4
        # times as long, which an emulated CPU feels.
        "small": (1500,),
        # The axis of figures 2 to 4 of the paper on HPC Challenge in virtualized environments: the
        # text names 1000 as the smallest size and 4000 as one between; 10000 as the end is this
        # study's reading, because the scan has lost the figures.
        "paper": tuple(range(1000, 10001, 1000)),
    }
)
"""HPL's problem sizes N of each preset."""

THRESHOLD = 16.0
"""A scaled residual must stay below this: HPL's and HPCC's own value."""

SMALLEST_N = 100
LARGEST_N = 1_000_000
MOST_SIZES = 20
"""HPL_MAX_PARAM of HPL's source."""
DEFAULT_BLOCK = 80
"""The block size of the hpccinf.txt that ships with HPCC."""

USABLE_SHARE = 0.8
"""The share of a machine's memory that HPCC may use: the kernel, the page cache of the binaries and
the tmpfs need the rest."""
# Measured at 15 to 24 MiB: code, Open MPI's buffers and shared memory, OpenBLAS's scratch space.
_RANK_BYTES = 40 << 20
# HPCC sizes all kernels so that their arrays fit in what HPL's matrix takes; panels come on top.
_MATRIX_SHARE = 1.1


def grid(processes: int) -> tuple[int, int]:
    """The squarest P x Q = processes with P <= Q, which HPL's authors recommend."""
    rows = next(p for p in range(math.isqrt(processes), 0, -1) if processes % p == 0)
    return rows, processes // rows


def input_file(sizes: Sequence[int], processes: int, block: int) -> bytes:
    """The content of hpccinf.txt. HPCC reads by line number; single spaces separate words, as HPL's
    parser of number lists needs."""
    rows, columns = grid(processes)
    lines = [
        "HPLinpack benchmark input file",
        "written by vtax",
        "HPL.out output file name (ignored)",
        "8 device out (ignored)",
        f"{len(sizes)} # of problem sizes (N)",
        f"{' '.join(map(str, sizes))} Ns",
        "1 # of NBs",
        f"{block} NBs",
        "0 PMAP process mapping (0=Row-,1=Column-major)",
        "1 # of process grids (P x Q)",
        f"{rows} Ps",
        f"{columns} Qs",
        f"{THRESHOLD} threshold",
        "1 # of panel fact",
        "2 PFACTs (0=left, 1=Crout, 2=Right)",
        "1 # of recursive stopping criterium",
        "4 NBMINs (>= 1)",
        "1 # of panels in recursion",
        "2 NDIVs",
        "1 # of recursive panel fact.",
        "1 RFACTs (0=left, 1=Crout, 2=Right)",
        "1 # of broadcast",
        "1 BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)",
        "1 # of lookahead depth",
        "1 DEPTHs (>=0)",
        "2 SWAP (0=bin-exch,1=long,2=mix)",
        "64 swapping threshold",
        "0 L1 in (0=transposed,1=no-transposed) form",
        "0 U in (0=transposed,1=no-transposed) form",
        "1 Equilibration (0=no,1=yes)",
        "8 memory alignment in double (> 0)",
        "##### this line (no. 32) is ignored #####",
        "0 additional problem sizes for PTRANS",
        "0 values of N",
        "0 additional blocking sizes for PTRANS",
        "0 values of NB",
    ]
    return ("\n".join(lines) + "\n").encode()


def memory_needed(largest: int, processes: int) -> int:
    """The bytes that all processes need together for the largest N."""
    return int(8 * largest**2 * _MATRIX_SHARE) + processes * _RANK_BYTES


def require_memory(sizes: Sequence[int], processes: int, shape: MachineShape) -> None:
    """Raise MisuseError, naming the largest N that fits, when the problem is too large."""
    largest = max(sizes)
    usable = int(shape.memory_bytes * USABLE_SHARE)
    needed = memory_needed(largest, processes)
    if needed <= usable:
        return
    left = usable - processes * _RANK_BYTES
    fits = math.isqrt(int(left / (8 * _MATRIX_SHARE))) if left > 0 else 0
    remedy = f"the largest N that fits is {fits}" if fits >= SMALLEST_N else "no N fits"
    raise MisuseError(
        f"hpcc: N={largest} with {processes} process{'es' if processes > 1 else ''} needs "
        f"{format_bytes(needed)}, more than {100 * USABLE_SHARE:.0f} % of the machine's "
        f"{format_bytes(shape.memory_bytes)}",
        f"{remedy}: use --sizes, or give the guest more with mem=",
    )


def time_limit_s(sizes: Sequence[int]) -> float:
    """A time limit that only a hanging run reaches, even on an emulated CPU: 0.05 Gflop/s (QEMU's
    TCG was seen at 0.2), 1 MB/s for the memory kernels, and HPCC's own time bounds."""
    arithmetic = sum(2.0 * size**3 for size in sizes) / 5e7
    return 600.0 + arithmetic + 8.0 * max(sizes) ** 2 / 1e6
