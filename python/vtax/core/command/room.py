"""Whether this process has what vtax needs to begin: a working folder, memory and threads.

Libraries that run out of any of these end the process with a traceback or without a word, at the
latest when the results of hours are to be saved.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Sequence

from vtax.core.errors import VtaxError

SLACK_BYTES = 512 << 20
"""Memory for reports, beyond what the libraries take when they are loaded."""
PROBE_S = 120.0
PROBE_CPU_S = 10
"""CPU time; loading takes about one second. OpenBLAS asks for its buffers without end where it gets
none."""
_PROBE = f"""
import mmap, resource
resource.setrlimit(resource.RLIMIT_CPU, ({PROBE_CPU_S}, {PROBE_CPU_S}))
held = mmap.mmap(-1, {SLACK_BYTES})
import numpy, polars, scipy.optimize, scipy.stats
polars.DataFrame({{"n": [1.0]}}).lazy().select(polars.col("n").sum()).collect()
numpy.ones((64, 64)) @ numpy.ones((64, 64))
"""
_LIMITS = {"ulimit -v": resource.RLIMIT_AS, "ulimit -d": resource.RLIMIT_DATA}
NO_THREADS = VtaxError(
    "no more threads can be started here",
    "raise the limit of processes (ulimit -u, or the container's), or end some",
)
NO_FILES = VtaxError("no more files can be opened here", "raise the limit, e.g. ulimit -n 1024")
NO_FOLDER = VtaxError("the working folder has been removed", "cd to one that is there")


def require(words: Sequence[str]) -> None:
    """Raise VtaxError where a command that begins with `words` could not work."""
    if not words or words[0] == "doctor" or {"--help", "-h", "--version"} & set(words):
        return
    if not has_folder():
        raise NO_FOLDER
    require_memory()
    require_threads()


def has_folder() -> bool:
    """Whether the working folder is there."""
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return False
    return True


def out_of_memory() -> VtaxError:
    """The error for memory that is used up, with the limit if there is one."""
    limits = _limits()
    if not limits:
        return VtaxError("no memory is left for vtax", "end other programs")
    name, value = next(iter(limits.items()))
    return VtaxError(
        f"memory is limited to {value >> 20} MiB here ({name}), which is too little for vtax",
        f"raise it: {name} unlimited",
    )


def require_memory() -> None:
    """Where memory is limited, load all libraries in a process of their own, which may die of
    it."""
    if not _limits():
        return
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, timeout=PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        raise out_of_memory() from None
    if tried.returncode != 0:
        raise out_of_memory()


def require_threads() -> None:
    """Start as many threads as libraries may start, and end them."""
    ended = threading.Event()
    threads = [threading.Thread(target=ended.wait, daemon=True) for _ in range(_threads())]
    started = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
    except (RuntimeError, MemoryError):
        raise NO_THREADS from None
    finally:
        ended.set()
        for thread in started:
            thread.join()


def _threads() -> int:
    """How many threads to try: each of two libraries starts one for every CPU; the rest are
    vtax's."""
    return 2 * (os.cpu_count() or 1) + 8


def _limits() -> dict[str, int]:
    found = {name: resource.getrlimit(which)[0] for name, which in _LIMITS.items()}
    return {name: value for name, value in found.items() if value != resource.RLIM_INFINITY}
