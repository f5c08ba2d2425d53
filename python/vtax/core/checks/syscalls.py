"""The few questions that only trying a system call can answer; no effect outlives its call."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
from dataclasses import dataclass
from pathlib import Path

# Numbers of the system calls, from the kernel's tables; other machines are answered with ENOSYS.
_NUMBERS = {"x86_64": (298, 321), "aarch64": (241, 280)}

_PERF_TYPE_HARDWARE = 0
_PERF_COUNT_HW_CPU_CYCLES = 0
_PERF_FORMAT_TIMES = 0x3  # time enabled, time running
# disabled is not set; exclude_kernel and exclude_hv are, since an ordinary user may count no more.
_PERF_FLAGS = 1 << 5 | 1 << 6
_PERF_ATTR_SIZE = 112

_BPF_MAP_CREATE = 0
_BPF_MAP_TYPE_ARRAY = 2
_BPF_ATTR_SIZE = 72

_KVM_GET_API_VERSION = 0xAE00


@dataclass(frozen=True, slots=True)
class Count:
    """A hardware counter that was tried: the errno of opening it, or what it counted."""

    error: int
    value: int = 0
    running_ns: int = 0


def _call(index: int, *arguments: object) -> int:
    """The call's result, or the negative errno."""
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        return -errno.ENOSYS
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    result = int(libc.syscall(ctypes.c_long(numbers[index]), *arguments))
    return result if result >= 0 else -ctypes.get_errno()


def count_cycles() -> Count:
    """Count this thread's own cycles over a short loop."""
    head = struct.pack(
        "IIQQQQQ",
        _PERF_TYPE_HARDWARE,
        _PERF_ATTR_SIZE,
        _PERF_COUNT_HW_CPU_CYCLES,
        0,  # sample period
        0,  # sample type
        _PERF_FORMAT_TIMES,
        _PERF_FLAGS,
    )
    attributes = ctypes.create_string_buffer(head, _PERF_ATTR_SIZE)
    this_thread, any_cpu, no_group = ctypes.c_int(0), ctypes.c_int(-1), ctypes.c_int(-1)
    close_on_exec = ctypes.c_ulong(8)
    counter = _call(0, attributes, this_thread, any_cpu, no_group, close_on_exec)
    if counter < 0:
        return Count(-counter)
    try:
        sum(range(20_000))
        value, _, running = struct.unpack("QQQ", os.read(counter, 24))
        return Count(0, value, running)
    except (OSError, struct.error):  # a pinned-out counter reads as end of file
        return Count(0)
    finally:
        os.close(counter)


def try_bpf() -> int:
    """Make an eBPF map of one element, to see whether bpf(2) is allowed. Returns 0 or the errno."""
    attributes = ctypes.create_string_buffer(
        struct.pack("IIII", _BPF_MAP_TYPE_ARRAY, 4, 8, 1), _BPF_ATTR_SIZE
    )
    command, size = ctypes.c_int(_BPF_MAP_CREATE), ctypes.c_uint(_BPF_ATTR_SIZE)
    descriptor = _call(1, command, attributes, size)
    if descriptor < 0:
        return -descriptor
    os.close(descriptor)
    return 0


def kvm_version(device: Path) -> int:
    """The answer to KVM_GET_API_VERSION (12 since Linux 2.6.22). Raises OSError."""
    descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(descriptor, _KVM_GET_API_VERSION)
    finally:
        os.close(descriptor)
