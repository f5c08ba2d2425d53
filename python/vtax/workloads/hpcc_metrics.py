"""Which of HPCC's summary values are metrics, in which unit, and which direction is better."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from vtax.core.errors import VtaxError
from vtax.core.formats.model import Better
from vtax.workloads.base import Metric
from vtax.workloads.hpcc_output import Output, Value, number

Described = tuple[str, str, Better]
"""(name, unit, better)."""

_KERNELS = ("Copy", "Scale", "Add", "Triad")
_SCOPES = ("Single", "Star")


def _rates(unit: str, *names: str) -> tuple[Described, ...]:
    return tuple((name, unit, "higher") for name in names)


_ALWAYS: tuple[Described, ...] = (
    *_rates("Gflop/s", "SingleDGEMM_Gflops", "StarDGEMM_Gflops"),
    *_rates("GB/s", "PTRANS_GBs"),
    *_rates(
        "GUP/s",
        "MPIRandomAccess_GUPs",
        "MPIRandomAccess_LCG_GUPs",
        *(f"{scope}RandomAccess{kind}_GUPs" for kind in ("", "_LCG") for scope in _SCOPES),
    ),
    *_rates("GB/s", *(f"{scope}STREAM_{kernel}" for scope in _SCOPES for kernel in _KERNELS)),
    *_rates("Gflop/s", "MPIFFT_Gflops", *(f"{scope}FFT_Gflops" for scope in _SCOPES)),
)

# For several sizes HPCC reports the best. The rate can still be compared; the time cannot, because
# the best size may be another one in another environment.
_ONE_SIZE: tuple[Described, ...] = (("HPL_time", "s", "lower"),)

# PTRANS_time is left out on purpose: HPCC repeats the transposition five times, reports the
# slowest rate as PTRANS_GBs and the time of the *last* (pdtransdriver.c), so that the two do not
# belong together.

_MESSAGES: tuple[Described, ...] = (
    *(
        (name, "\N{MICRO SIGN}s", "lower")
        for name in (
            "MinPingPongLatency_usec",
            "AvgPingPongLatency_usec",
            "MaxPingPongLatency_usec",
            "NaturallyOrderedRingLatency_usec",
            "RandomlyOrderedRingLatency_usec",
        )
    ),
    *_rates(
        "GB/s",
        "MinPingPongBandwidth_GBytes",
        "AvgPingPongBandwidth_GBytes",
        "MaxPingPongBandwidth_GBytes",
        "NaturallyOrderedRingBandwidth_GBytes",
        "RandomlyOrderedRingBandwidth_GBytes",
    ),
)


def described(sizes: Sequence[int], processes: int | None) -> tuple[Described, ...]:
    """The metrics of a run, in display order; one process alone sends no messages."""
    hpl: tuple[Described, ...] = (("HPL_Tflops", "Tflop/s", "higher"),)
    if len(sizes) == 1:
        hpl += _ONE_SIZE
    else:
        hpl += tuple((_by_size(size), "Gflop/s", "higher") for size in sizes)
    return (*hpl, *_ALWAYS, *(() if processes == 1 else _MESSAGES))


def metrics(output: Output, sizes: Sequence[int]) -> Iterator[Metric]:
    """The measured values of a run; what HPCC did not measure is absent.

    Raises VtaxError when a value is impossible, or HPL has none.
    """
    by_size = {_by_size(size): rate for size, rate in output.hpl_gflops.items()}
    for name, unit, better in described(sizes, None):
        value = by_size[name] if name in by_size else number(output.summary, name)
        if _is_measured(name, value):
            assert value is not None
            yield Metric(name, unit, better, value, _ran_s(name, value, output.summary))
        elif name == "HPL_Tflops":
            raise VtaxError("hpcc: HPL did not run: the summary has no HPL_Tflops")


def _ran_s(name: str, value: float, summary: Mapping[str, Value]) -> float | None:
    """How long the kernel behind a metric ran: as HPCC says, or its work over its rate.

    The counts of operations are from HPCC's sources (tstdgemm.c, stream.c, tstfft.c and others: 2
    n^3, 8 bytes for each access, 5 n log2 n, 4 updates a word). None: HPCC does not say.
    """

    def size(key: str) -> float:
        return number(summary, key) or 0.0

    def spectrum(key: str) -> float:
        n = size(key)
        return 5.0 * n * math.log2(n) / 1e9 if n > 1 else 0.0

    if name in ("HPL_Tflops", "HPL_time"):
        return number(summary, "HPL_time")
    if name.startswith("MPIRandomAccess"):
        return number(summary, name.replace("_GUPs", "_time"))
    kernel = name.removeprefix("Single").removeprefix("Star")
    work = {
        "DGEMM_Gflops": 2.0 * size("DGEMM_N") ** 3 / 1e9,
        "MPIFFT_Gflops": spectrum("MPIFFT_N"),
        "FFT_Gflops": spectrum("FFT_N"),
        "RandomAccess_GUPs": 4.0 * size("RandomAccess_N") / 1e9,
        "RandomAccess_LCG_GUPs": 4.0 * size("RandomAccess_LCG_N") / 1e9,
        **{
            f"STREAM_{each}": accesses * 8.0 * size("STREAM_VectorSize") / 1e9
            for each, accesses in zip(_KERNELS, (2, 2, 3, 3), strict=True)
        },
    }.get(kernel)
    return work / value if work else None


def _is_measured(name: str, value: float | None) -> bool:
    """Whether HPCC measured a value: -1 is its "not run"; 0 is a time below the clock's resolution.

    RandomAccess has other signs of this: it takes -1 s for the time, or divides no updates by 0 s.
    """
    if value is None or value in (-1, 0):
        return False
    if name.endswith("_GUPs") and not value > 0:
        return False
    if not math.isfinite(value) or value < 0:
        raise VtaxError(f"hpcc: {name}={value} cannot be a measurement")
    return True


def _by_size(size: int) -> str:
    return f"HPL_N{size}_Gflops"
