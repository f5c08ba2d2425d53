"""A program that makes the clock of its machine run at another rate."""

from __future__ import annotations

_SCRIPT = """
import ctypes

class Timex(ctypes.Structure):  # struct timex of linux/timex.h
    _fields_ = [("modes", ctypes.c_uint), ("unused", ctypes.c_uint), ("values", ctypes.c_long * 24)]

timex = Timex(modes=0x4000)  # ADJ_TICK
timex.values[10] = TICK
libc = ctypes.CDLL(None, use_errno=True)
code = libc.adjtimex(ctypes.byref(timex))
raise SystemExit(0 if code >= 0 else f"adjtimex: {ctypes.get_errno()}")
"""


def fast_clock(tick_us: int) -> str:
    """Python code that sets the length of a 100 Hz tick (adjtimex(2)): 10,000 us are right."""
    return _SCRIPT.replace("TICK", str(tick_us))
