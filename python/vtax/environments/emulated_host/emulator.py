"""The process of the emulated host: its command line, its sockets, its console."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vtax.core.errors import VtaxError
from vtax.environments import link, qemu_program, sandbox
from vtax.environments.agent import MachineLostError
from vtax.environments.channel import Channel
from vtax.environments.console import ConsoleTail
from vtax.environments.emulated_host import ports
from vtax.environments.emulated_host.qmp import Qmp
from vtax.environments.emulated_host.traces import PARAMETER
from vtax.environments.hiding import View
from vtax.environments.machine import spawn

CPU = "EPYC"
"""For this CPU QEMU emulates AMD's SVM with nested paging, and no PKU, which does not work with
shadow paging."""
MAX_STATE_BYTES = 64 << 20
"""The limit of a saved state without memory; 0.4 MB is usual."""
STATE_TIMEOUT_S = 30.0
STATE = "state"
KEPT = "out"
"""A name in the work folder that stands for a folder of the real host's."""
NO_INITRAMFS = bytes(4)


@dataclass(frozen=True, slots=True)
class Emulated:
    """The emulated host's hardware and what it boots."""

    memory_bytes: int
    smp: int
    guests: int
    icount: int | None
    kernel: Path
    modules: tuple[str, ...]
    view: View
    """The host's files that its guests do not see."""
    qemu: qemu_program.Emulator
    cpu: str = CPU
    is_measured: bool = False
    """Whether programs are measured in it, and not in a guest: then its root is the real host's
    tree, and its agent waits to be let in."""
    image: Path | None = None
    """Disk image, which the emulated host sees read-only."""
    image_format: str = "raw"
    ram: Path | None = None
    """File with the emulated host's memory; None: anonymous memory, which cannot be saved."""
    kept: Path | None = None
    """Folder of the real host's that programs in the emulated host write (tree.py)."""
    network_pid: int | None = None
    """The process whose network namespace QEMU is in, with a tap for the machine's network card
    there; None: no network."""
    saved: bool = False
    """Whether `ram` is of a saved machine: then it is mapped privately, so that the file stays as
    it is."""


@dataclass(frozen=True, slots=True)
class Descriptors:
    """What the emulated host's QEMU inherits."""

    host: int
    monitor: int
    guests: Sequence[int]
    initramfs: int

    def all(self) -> tuple[int, ...]:
        return (self.host, self.monitor, self.initramfs, *self.guests)


def command(machine: Emulated, work: Path, cpus: Sequence[int], fds: Descriptors) -> list[str]:
    """The command line, including the box."""
    read_only = {machine.kernel: _inside("kernel"), **machine.qemu.read_only}
    if machine.image:
        read_only[machine.image] = _inside("image")
    # QEMU opens the file for writing although a private mapping never does.
    writable = {machine.ram: _inside("ram")} if machine.ram else {}
    if machine.kept:
        writable[machine.kept] = sandbox.WORK / KEPT
    box = sandbox.Box(
        work, machine.view, read_only, writable,
        devices=(link.TUN_DEVICE,) if machine.network_pid else (),
        environment=machine.qemu.environment, has_tree=True, namespace_pid=machine.network_pid,
    )  # fmt: skip
    return sandbox.pinned(cpus, sandbox.command(box, _qemu(machine, fds)))


def _qemu(machine: Emulated, fds: Descriptors) -> list[str]:
    size = f"{machine.memory_bytes >> 20}M"
    # Counting instructions needs one thread for all CPUs.
    threads = "single" if machine.icount is not None else "multi"
    line = [str(machine.qemu.program), *machine.qemu.options]
    line += ["-accel", f"tcg,thread={threads}", "-cpu", machine.cpu]
    line += ["-smp", str(machine.smp), "-m", size]
    if machine.ram:
        share = "off" if machine.saved else "on"
        line += ["-machine", "q35,memory-backend=ram", "-object"]
        line += [f"memory-backend-file,id=ram,size={size},mem-path={_inside('ram')},share={share}"]
    else:
        line += ["-machine", "q35"]
    if machine.icount is not None:
        line += ["-icount", f"shift={machine.icount},sleep=off"]
    line += qemu_program.BARE
    line += ["-chardev", f"socket,id=monitor,fd={fds.monitor}", "-mon", "monitor,mode=control"]
    initramfs = Path(f"/proc/self/fd/{fds.initramfs}")
    line += machine.qemu.boot(_inside("kernel"), initramfs, _parameters(machine))
    line += qemu_program.export("host", sandbox.TREE, "readonly=on,multidevs=remap")
    line += qemu_program.export("work", sandbox.WORK, "multidevs=remap")
    line += ["-device", "virtio-serial-pci"]
    line += _port("agent", fds.host, qemu_program.CHANNEL, 1)
    for number, fd in enumerate(fds.guests):
        line += _port(f"guest{number}", fd, ports.name(number), number + 2)
    if machine.image:
        drive = f"file={_inside('image')},format={machine.image_format},readonly=on"
        line += ["-drive", f"if=none,id=image,{drive}", "-device", "virtio-blk-pci,drive=image"]
    if machine.network_pid:
        line += ["-netdev", f"{link.tap_network()},id=link"]
        line += ["-device", "virtio-net-pci,netdev=link,romfile="]
    return [*line, "-incoming", "defer"] if machine.saved else line


def _port(name: str, fd: int, port: str, number: int) -> list[str]:
    device = f"virtserialport,chardev={name},name={port},nr={number}"
    return ["-chardev", f"socket,id={name},fd={fd}", "-device", device]


def _parameters(machine: Emulated) -> list[str]:
    own = ["vtax.lower=initramfs", "vtax.host=9p:host"]
    measured = ["vtax.lower=9p:host", "vtax.wait=1"]
    return [
        *qemu_program.KERNEL,
        # Nothing corrects the emulated clock, and the kernel's check takes it for unstable under
        # load.
        "tsc=reliable",
        PARAMETER,
        *(measured if machine.is_measured else own),
        "vtax.work=9p:work",
        f"vtax.channel=virtio:{qemu_program.CHANNEL}",
        f"vtax.modules={':'.join(machine.modules)}",
        *machine.qemu.parameters,
    ]


def _inside(name: str) -> Path:
    return sandbox.WORK.parent / name


class Emulator:
    """A running emulated host. Whoever makes it has to kill it.

    The host boots `initramfs`; a saved machine has that in its memory.
    """

    def __init__(
        self, machine: Emulated, initramfs: bytes, work: Path, cpus: Sequence[int]
    ) -> None:
        pairs = [socket.socketpair() for _ in range(2 + machine.guests)]
        ours = [each[0] for each in pairs]
        theirs = [each[1] for each in pairs]
        host, monitor, *guests = (each.fileno() for each in theirs)
        # The file has no name: otherwise 130 MB would remain after kill -9.
        archive = os.memfd_create("initramfs")
        fds = Descriptors(host, monitor, guests, archive)
        try:
            _write(archive, initramfs or NO_INITRAMFS)
            self.argv: Sequence[str] = command(machine, work, cpus, fds)
            self._process = spawn(self.argv, fds.all())
        except BaseException:
            for each in ours:
                each.close()
            raise
        finally:
            os.close(archive)
            for each in theirs:
                each.close()
        assert self._process.stdout is not None
        self.console = ConsoleTail(self._process.stdout)
        host_socket, monitor_socket, *guest_sockets = ours
        self.host = Channel(host_socket, parts=False)
        self.guests = [Channel(each, parts=False) for each in guest_sockets]
        self._monitor_socket = monitor_socket
        self._monitor: Qmp | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        """Send QEMU a signal. Raises MachineLostError when it has ended."""
        try:
            sandbox.signal_inside(self.pid, number)
        except (OSError, IndexError):
            raise MachineLostError("the emulated machine ended") from None

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def monitor(self) -> Qmp:
        """QEMU's monitor; raises VtaxError when it does not answer."""
        self._monitor = self._monitor or Qmp(self._monitor_socket)
        return self._monitor

    def save(self) -> bytes:
        """Stop the machine and return its state; its memory stays in its file."""
        monitor = self.monitor()
        monitor.execute("stop")
        monitor.wait_for("STOP", STATE_TIMEOUT_S)
        _keep_memory_in_its_file(monitor)
        # Save as fast as possible; QEMU's default is for a network that others use.
        monitor.execute("migrate-set-parameters", {"max-bandwidth": 0})
        with _state_channel(monitor) as ours:
            reader = _Reader(ours)
            monitor.execute("migrate", {"uri": f"fd:{STATE}"})
            monitor.wait_for("MIGRATION", STATE_TIMEOUT_S, status="completed")
            # QEMU ends the stream by closing it, at the latest when the process ends.
            monitor.execute("quit")
            self.wait(STATE_TIMEOUT_S)
            return reader.result(STATE_TIMEOUT_S)

    def restore(self, state: bytes) -> None:
        """Bring the machine to a saved state and let it run."""
        monitor = self.monitor()
        _keep_memory_in_its_file(monitor)
        with _state_channel(monitor) as ours:
            # Write in a thread: the state is larger than a socket's buffer.
            threading.Thread(target=_send, args=(ours, state), daemon=True).start()
            monitor.execute("migrate-incoming", {"uri": f"fd:{STATE}"})
            monitor.wait_for("MIGRATION", STATE_TIMEOUT_S, status="completed")
        monitor.execute("cont")
        monitor.wait_for("RESUME", STATE_TIMEOUT_S)

    def wait(self, timeout_s: float) -> None:
        """Wait for the machine to power itself off."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def kill(self) -> None:
        """End the machine and all that is in it. Its process is the root of its box."""
        self.host.close()
        for each in self.guests:
            each.close()
        self._monitor_socket.close()
        if self.alive:
            self._process.kill()
        self._process.wait()
        self.console.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _keep_memory_in_its_file(monitor: Qmp) -> None:
    wanted = ("x-ignore-shared", "events")
    capabilities = [{"capability": name, "state": True} for name in wanted]
    monitor.execute("migrate-set-capabilities", {"capabilities": capabilities})


@contextlib.contextmanager
def _state_channel(monitor: Qmp) -> Iterator[socket.socket]:
    """A socket whose other end QEMU has under the name STATE.

    It is a socket and not the file itself: QEMU will drop support for files as migration
    descriptors.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            monitor.execute("getfd", {"fdname": STATE}, descriptors=[theirs.fileno()])
        yield ours


class _Reader:
    """Reads a socket to its end in a thread, up to the limit."""

    def __init__(self, sock: socket.socket) -> None:
        self._content = bytearray()
        self._thread = threading.Thread(target=self._read, args=(sock,), daemon=True)
        self._thread.start()

    def _read(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while len(self._content) <= MAX_STATE_BYTES and (data := sock.recv(1 << 20)):
                self._content += data

    def result(self, timeout_s: float) -> bytes:
        self._thread.join(timeout_s)
        if self._thread.is_alive() or len(self._content) > MAX_STATE_BYTES:
            raise VtaxError("the emulated host's saved state does not end")
        return bytes(self._content)


def _write(descriptor: int, content: bytes) -> None:
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)


def _send(sock: socket.socket, content: bytes) -> None:
    # A QEMU that does not read the stream to its end says why over its monitor.
    with contextlib.suppress(OSError):
        sock.settimeout(STATE_TIMEOUT_S)
        sock.sendall(content)


def svm_obstacle(models: str, accelerators: str) -> str | None:
    """Why QEMU cannot emulate the host, given what `-cpu help` and `-accel help` print."""
    words = set(models.split())
    missing = [word for word in (CPU, "svm", "npt") if word not in words]
    missing += ["tcg"] if "tcg" not in accelerators.split() else []
    if not missing:
        return None
    return f"cannot emulate an AMD host with SVM (it knows no {', '.join(missing)})"


def require_svm(program: Path) -> None:
    """Raise VtaxError unless QEMU emulates a CPU with SVM and nested paging."""
    models, accelerators = (_help(program, option) for option in ("-cpu", "-accel"))
    if obstacle := svm_obstacle(models, accelerators):
        raise VtaxError(f"{program} {obstacle}", "apt-get install qemu-system-x86")


def _help(program: Path, option: str) -> str:
    argv = [str(program), option, "help"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False).stdout
