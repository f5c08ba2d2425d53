"""Interrupts a process at even times of its own running, and does nothing with them.

    record_timer.py PID NANOSECONDS        until SIGINT

This is the least that any recorder with rows of that length can cost where time is the reference:
a perf event that overflows without a buffer, so that the kernel takes the timer's interrupt and
sets the timer again, and no more.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys

PERF_EVENT_OPEN = 298
"""The number of the system call on x86-64."""
PERF_TYPE_SOFTWARE = 1
PERF_COUNT_SW_CPU_CLOCK = 0
ATTRIBUTE_BYTES = 64
"""PERF_ATTR_SIZE_VER0 of linux/perf_event.h."""


def attribute(period_ns: int) -> bytes:
    """struct perf_event_attr: type, size, config, sample_period, and 0 for the rest."""
    head = struct.pack(
        "<IIQQ", PERF_TYPE_SOFTWARE, ATTRIBUTE_BYTES, PERF_COUNT_SW_CPU_CLOCK, period_ns
    )
    return head.ljust(ATTRIBUTE_BYTES, b"\0")


def main() -> None:
    pid, period_ns = int(sys.argv[1]), int(sys.argv[2])
    # Block signals before there is anything to end, so that none is missed.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    library = ctypes.CDLL(None, use_errno=True)
    any_cpu, no_group, no_flags = -1, -1, 0
    event = library.syscall(
        ctypes.c_long(PERF_EVENT_OPEN), attribute(period_ns), pid, any_cpu, no_group, no_flags
    )
    if event < 0:
        raise SystemExit(f"perf_event_open: {os.strerror(ctypes.get_errno())}")
    signal.sigwait([signal.SIGINT])


if __name__ == "__main__":
    main()
