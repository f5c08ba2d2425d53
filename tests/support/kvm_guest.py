"""A virtual machine of this machine's own KVM, as small as one can be, for tests.

Its guest runs in real mode and does nothing but write to a port, so each KVM_RUN is one access and
one return to the program. Where KVM cannot run such a guest, it emulates it, so the guest works
with implementations of KVM that run no ordinary kernel. As a program, this file obeys lines on
stdin.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import mmap
import os
import selectors
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from vtax.environments import sandbox

DEVICE = Path("/dev/kvm")
# The requests, from linux/kvm.h.
KVM_CREATE_VM = 0xAE01
KVM_GET_VCPU_MMAP_SIZE = 0xAE04
KVM_CREATE_VCPU = 0xAE41
KVM_RUN = 0xAE80
KVM_SET_USER_MEMORY_REGION = 0x4020AE46
KVM_SET_REGS = 0x4090AE82
KVM_GET_SREGS = 0x8138AE83
KVM_SET_SREGS = 0x4138AE84
REGISTERS = 18
"""Number of registers in `struct kvm_regs`; RIP and RFLAGS are the last two."""
SREGS_BYTES = 0x138
CS_SELECTOR = 12
"""Offset in `struct kvm_sregs`, which begins with CS: its base (8 bytes), limit and selector."""
EXIT_REASON = 8
"""Offset in `struct kvm_run`."""
KVM_EXIT_IO = 2
MEMORY_BYTES = 0x10000
START = 0x1000
FLAGS = 2
"""The bit of RFLAGS that is always set."""
# mov dx, 0x3f8; mov al, 'A'; again: out dx, al; jmp again
CODE = bytes.fromhex("baf803 b041 ee ebfd")
ROUND = 10_000
WORK_S = 0.02
ANSWER_TIMEOUT_S = 60.0


class Machine:
    """A virtual machine with one CPU, in this process."""

    def __init__(self) -> None:
        """Make the machine; raises OSError where KVM refuses."""
        self._kvm = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
        self._vm = fcntl.ioctl(self._kvm, KVM_CREATE_VM, 0)
        self._memory = mmap.mmap(-1, MEMORY_BYTES)
        self._memory[: len(CODE)] = CODE
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        region = struct.pack("IIQQQ", 0, 0, START, MEMORY_BYTES, address)
        fcntl.ioctl(self._vm, KVM_SET_USER_MEMORY_REGION, region)
        self._cpu = fcntl.ioctl(self._vm, KVM_CREATE_VCPU, 0)
        self._run = mmap.mmap(self._cpu, fcntl.ioctl(self._kvm, KVM_GET_VCPU_MMAP_SIZE, 0))
        special = bytearray(fcntl.ioctl(self._cpu, KVM_GET_SREGS, bytes(SREGS_BYTES)))
        struct.pack_into("=Q", special, 0, 0)
        struct.pack_into("=H", special, CS_SELECTOR, 0)
        fcntl.ioctl(self._cpu, KVM_SET_SREGS, bytes(special))
        registers = [0] * (REGISTERS - 2) + [START, FLAGS]
        fcntl.ioctl(self._cpu, KVM_SET_REGS, struct.pack(f"={REGISTERS}Q", *registers))

    def loops(self, count: int) -> None:
        """Let the guest write to the port `count` times; raises OSError when it does anything
        else."""
        for _ in range(count):
            fcntl.ioctl(self._cpu, KVM_RUN, 0)
            (reason,) = struct.unpack_from("=I", self._run, EXIT_REASON)
            if reason != KVM_EXIT_IO:
                raise OSError(f"the guest left with reason {reason}, not with a port access")


class Guest:
    """A process with a virtual machine that obeys commands; a context manager that ends it."""

    def __init__(self, cpu: int | None = None) -> None:
        """Start the process on `cpu`; None: on any CPU."""
        line = [sys.executable, str(Path(__file__).resolve())]
        self._process = subprocess.Popen(
            line if cpu is None else sandbox.pinned([cpu], line),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.tell("hello")

    @property
    def pid(self) -> int:
        return self._process.pid

    def create(self) -> None:
        """Make the virtual machine."""
        self.tell("create")

    def loops(self, count: int) -> None:
        """Let the guest do `count` port accesses; return when they are done."""
        self.tell(f"loops {count}")

    def work_outside(self) -> None:
        """Use the processor for WORK_S, by the process's own clock, outside the guest."""
        self.tell("work")

    def forever(self) -> None:
        """Let the guest run until the process is killed."""
        self._say("forever")

    def kill(self) -> None:
        """Kill the process as `kill -9` does; return when it is gone."""
        self._process.kill()
        self._process.wait()

    def tell(self, order: str) -> None:
        """Have an order carried out; raises OSError with the process's own words."""
        self._say(order)
        answer = self._line(order)
        if answer != "done\n":
            raise OSError(answer.strip() or "the process of the virtual machine ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _line(self, order: str) -> str:
        """The next line of the process, or a part of it when the process ends."""
        assert self._process.stdout is not None
        content = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not content.endswith(b"\n"):
                assert selector.select(ANSWER_TIMEOUT_S), f"no answer to {order}"
                part = os.read(self._process.stdout.fileno(), 4096)
                if not part:
                    break
                content += part
        return content.decode()

    def _say(self, order: str) -> None:
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), f"{order}\n".encode())


@functools.cache
def obstacle() -> str | None:
    """Why this machine's KVM runs no such guest, found by trying."""
    if not DEVICE.exists():
        return f"{DEVICE} does not exist"
    try:
        with Guest() as guest:
            guest.create()
            guest.loops(1)
    except OSError as error:
        return f"{DEVICE}: {error}"
    return None


def _serve() -> None:
    """Carry out orders until stdin is closed."""
    orders = os.fdopen(0, "rb", buffering=0)
    machine: Machine | None = None
    while words := orders.readline().decode().split():
        try:
            match words:
                case ["create"]:
                    machine = Machine()
                case ["loops", count] if machine is not None:
                    machine.loops(int(count))
                case ["forever"] if machine is not None:
                    while True:
                        machine.loops(ROUND)
                case ["work"]:
                    _work()
                case ["hello"]:
                    pass
                case _:
                    print(f"not now: {' '.join(words)}", flush=True)
                    continue
        except OSError as error:
            print(error, flush=True)
            continue
        print("done", flush=True)


def _work() -> None:
    end = time.process_time() + WORK_S
    while time.process_time() < end:
        pass


if __name__ == "__main__":
    _serve()
