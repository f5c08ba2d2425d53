"""A Xen host to log in to: an emulated dom0 with Debian's tree, behind an OpenSSH server.

The server runs here. What a client asks it to run runs in dom0: its input and output go over one
virtio port, and its errors over another.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread

from ssh_server import SshServer
from vtax.environments import guest_kernel
from vtax.environments.agent import Agent
from vtax.environments.base import allowed_cpus
from vtax.environments.emulated_host import ports
from vtax.environments.emulated_host.emulator import Emulator
from vtax.environments.emulated_host.host import EmulatedHost
from vtax.environments.emulated_host.started import Booting, Hellos, StartedHost
from vtax.environments.guest_kernel import GuestKernel
from vtax.environments.kernel_image import ModuleTree
from vtax.environments.lab import tree
from vtax.environments.xen import Xen, boot, dom0, parts
from vtax.environments.xen.recipe import XenRecipe

CONNECTIONS = 2
EXIT = "exit of the command: "
RELAY = f"""\
import base64, os, socket, sys
from threading import Thread
with socket.socket(socket.AF_UNIX) as to:
    to.connect({{path!r}})
    port, errors = socket.recv_fds(to, 1, 2)[1]
port, errors = socket.socket(fileno=port), socket.socket(fileno=errors)
port.sendall(base64.b64encode(os.environb[b"SSH_ORIGINAL_COMMAND"]) + b"\\n")
def out():
    while data := port.recv(65536):
        os.write(1, data)
def typed():
    while data := os.read(0, 65536):
        port.sendall(data)
    port.shutdown(socket.SHUT_RDWR)
for each in (out, typed):
    Thread(target=each, daemon=True).start()
for line in errors.makefile():
    if line.startswith({EXIT!r}):
        os._exit(int(line.removeprefix({EXIT!r})))
    os.write(2, line.encode())
"""


class _Recipe(XenRecipe):
    """dom0 with its toolstack, and with no guests at their ports."""

    def booting(self, ram: Path | None) -> Booting:
        def start(emulator: Emulator, agent: Agent) -> Hellos:
            hello = agent.hello(60)
            return Hellos(hello, boot.start_domus(emulator, EmulatedHost(agent), ()))

        return replace(super().booting(ram), boot=start)


@dataclass
class XenHost:
    """A running host. `spec` is what vtax reaches it by."""

    dom0: EmulatedHost
    server: SshServer
    listener: socket.socket
    wires: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)

    @property
    def spec(self) -> str:
        return f"xen:host={self.server.spec}"

    def xl(self, *words: str) -> str:
        """What the toolstack says."""
        line = f"{parts.VARIABLES}; xl {' '.join(words)}"
        return self.dom0.must(dom0.shell(line), "ask the toolstack")

    def serve(self) -> None:
        """Give each connection the next pair of ports."""
        while self.wires:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            pair = self.wires.pop(0)
            socket.send_fds(client, [b"x"], [each.fileno() for each in pair])
            for each in (client, *pair):
                each.close()


@contextmanager
def xen_host(folder: Path) -> Iterator[XenHost]:
    xen = Xen(guests=2 * CONNECTIONS, memory_bytes=192 << 20, snapshot=False)
    (folder / "work").mkdir()
    started = StartedHost(_Recipe.of(xen), folder / "work", allowed_cpus())
    try:
        host = started.host
        host.enter()
        kernel = guest_kernel.prepare(None)
        for name, content in ModuleTree(kernel.tree).closure(["overlay"]):
            host.push(f"/run/{name}.ko", content)
            host.must(["busybox", "insmod", f"/run/{name}.ko"], "load a module")
        host.must(dom0.shell(_root_script(kernel)), "put Debian's tree together")
        for number in range(CONNECTIONS):
            host.must(dom0.shell(_answer_script(number)), "answer", leave=True)
        path = folder / "wires"
        relay = folder / "relay.py"
        relay.write_text(RELAY.format(path=str(path)))
        with (
            socket.socket(socket.AF_UNIX) as listener,
            SshServer(folder / "server", f"ForceCommand {sys.executable} {relay}") as server,
        ):
            listener.bind(str(path))
            listener.listen()
            running = XenHost(host, server, listener)
            running.wires = list(_wires(started.emulator))
            Thread(target=running.serve, daemon=True).start()
            yield running
    finally:
        started.kill()


def _wires(emulator: Emulator) -> Iterator[tuple[socket.socket, socket.socket]]:
    both = [socket.socket(fileno=os.dup(each._socket.fileno())) for each in emulator.guests]
    for each in emulator.guests:
        each.close()
    yield from zip(both[::2], both[1::2], strict=True)


def _root_script(kernel: GuestKernel) -> str:
    """Debian's tree, with Xen's programs where its packages have them."""
    root, programs = tree.ROOT, f"usr/lib/xen-{parts.VERSION}"
    lines = [tree.root_script(None, kernel)]
    lines += [f"mkdir -p {root}/{programs} {root}/usr{parts.LIBRARIES}"]
    lines += [f"mount --bind /{programs} {root}/{programs}"]
    lines += [f"mount --bind {parts.LIBRARIES} {root}/usr{parts.LIBRARIES}"]
    # xl starts QEMU with its own variables, and so with the same libraries.
    for each in parts.PROGRAMS:
        if not each.startswith(programs):
            lines += [f"mkdir -p {root}/{Path(each).parent}", f"cp /{each} {root}/{each}"]
            lines += [f"chmod 755 {root}/{each}"]
    lines += _wrapper(f"{root}/usr/local/sbin/xenstore-read", "/usr/bin/xenstore-read")
    lines += _wrapper(f"{root}/usr/local/sbin/xl", f"/{programs}/bin/xl")
    lines += [f"mkdir -p {root}/usr/share/qemu/keymaps; : >> {root}/{parts.KEYMAP}"]
    for each in ("run/xen", "run/xenstored", "var/lib/xen", "var/log/xen", "etc/xen"):
        lines += [f"mkdir -p {root}/{each}", f"mount --bind /{each} {root}/{each}"]
    return "\n".join([*lines, f"mount -t xenfs xenfs {root}/proc/xen"])


def _wrapper(path: str, program: str) -> Sequence[str]:
    text = f'#!/bin/sh\\nexport LD_LIBRARY_PATH={parts.LIBRARIES}\\nexec {program} "$@"\\n'
    return [f"mkdir -p {Path(path).parent}", f"printf '{text}' > {path}", f"chmod 755 {path}"]


def _answer_script(number: int) -> str:
    """Run one command that comes over a port, and say how it ended."""
    port, errors = (ports.device(2 * number + each) for each in (0, 1))
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    answer = [f"exec 3<>{port} 4>{errors}", "read -r line <&3"]
    answer += ['asked="$(echo "$line" | base64 -d)"']
    answer += [f'PATH={path} chroot {tree.ROOT} /bin/sh -c "$asked" <&3 >&3 2>&4']
    answer += [f'echo "{EXIT}$?" >&4']
    return "(\n" + "\n".join(answer) + "\n) >/dev/null 2>&1 &"
