"""LU factorisation (dgetrf) by LAPACK: what the tuned GEMM gives to a program that never calls it.

    apt-get install liblapack3      # the reference LAPACK
    .venv/bin/python bench/lapack.py --rounds 9

The reference LAPACK calls GEMM by its name, so it takes that of the library that is preloaded:
libvtaxblas.so with the processor model's parameters, before the reference BLAS and before OpenBLAS,
whose triangular solver it keeps. OpenBLAS's own dgetrf, which calls its kernels inside, is beside
them. One thread on one CPU; each factorisation is checked.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from interleaved import about, interval, ratio, ratio_text, rounds

from vtax.core import binaries

SIZES = (500, 1000, 2000)
OWN = "OpenBLAS's own"
TUNED = "libvtaxblas, OpenBLAS"


def contenders(triplet: Path) -> Mapping[str, tuple[str, Mapping[str, str]]]:
    """The library with dgetrf, and variables, by name."""
    reference = str(triplet / "lapack" / "liblapack.so.3")
    preloaded = {"LD_PRELOAD": str(binaries.find("libvtaxblas.so"))}
    plain = {"LD_LIBRARY_PATH": str(triplet / "blas")}
    fast = {"LD_LIBRARY_PATH": str(triplet / "openblas-pthread")}
    return {
        "reference BLAS": (reference, plain),
        "libvtaxblas, reference BLAS": (reference, plain | preloaded),
        "OpenBLAS": (reference, fast),
        TUNED: (reference, fast | preloaded),
        OWN: ("libopenblas.so.0", {}),
    }


def factorised(library: str, size: int) -> float:
    """GFLOP/s of the second of two factorisations of the same random matrix.

    Raises SystemExit where the factors are not those of the matrix: their product may differ from
    it by a rounding for each row (Higham, Accuracy and Stability, theorem 9.3, with a growth of the
    factors that random matrices stay below).
    """
    original = np.random.default_rng(1).uniform(-0.5, 0.5, (size, size))
    order = ctypes.c_int(size)
    pivots, info = np.zeros(size, np.intc), ctypes.c_int()
    dgetrf = ctypes.CDLL(library).dgetrf_
    seconds = 0.0
    for _ in range(2):
        factors = np.asfortranarray(original)
        begin = time.perf_counter()
        dgetrf(
            ctypes.byref(order), ctypes.byref(order), ctypes.c_void_p(factors.ctypes.data),
            ctypes.byref(order), ctypes.c_void_p(pivots.ctypes.data), ctypes.byref(info),
        )  # fmt: skip
        seconds = time.perf_counter() - begin
    product = (np.tril(factors, -1) + np.eye(size)) @ np.triu(factors)
    for row, other in reversed(list(enumerate(pivots - 1))):
        product[[row, other]] = product[[other, row]]
    error = np.abs(product - original).max()
    if info.value or not error < size * size * np.finfo(float).eps:
        raise SystemExit(f"{library}: wrong factors (info {info.value}, error {error:.2g})")
    return 2 / 3 * size**3 / seconds / 1e9


def measured(library: str, variables: Mapping[str, str], size: int, cpu: str) -> float:
    own = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    argv = ["taskset", "-c", cpu, sys.executable, __file__, "--factor", library, "--size", size]
    ended = subprocess.run(
        list(map(str, argv)), env={**own, "OPENBLAS_NUM_THREADS": "1", **variables},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(ended.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--factor", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.factor:
        print(factorised(options.factor, options.size))
        return
    triplet = Path("/usr/lib", f"{os.uname().machine}-linux-gnu")
    if not (triplet / "lapack" / "liblapack.so.3").exists():
        print("not measured: there is no reference LAPACK; apt-get install liblapack3")
        return
    about()
    cpu = str(max(os.sched_getaffinity(0)))
    for size in SIZES:
        tried = contenders(triplet)
        actions = [partial(measured, *one, size, cpu) for one in tried.values()]
        found = dict(zip(tried, rounds(options.rounds, actions), strict=True))
        for name, values in found.items():
            print(f"{size} rows, {name}: {interval(values, name).text('GFLOP/s')}")
        for name in ("OpenBLAS", OWN):
            text = ratio_text(ratio(found[TUNED], found[name]))
            print(f"{size} rows, {TUNED} by {name}: {text}")


if __name__ == "__main__":
    main()
