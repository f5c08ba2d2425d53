"""The process of a machine in a domain: it joins vtax's channel to a port of the domain.

It attaches the port, lets the guest agent start a shell that reads it, and takes the port away
again when vtax is gone, also after SIGKILL, or when that shell has ended.
"""

from __future__ import annotations

import contextlib
import queue
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

from vtax.core.errors import VtaxError
from vtax.environments.libvirt.domain import Domain, alias

CLOSE_S = 3.0
"""Time for the agent to end its command and itself after the end of its input. It is less than what
vtax waits for this process."""
END_S = 1.0
SHOWN = 4096
_CHANNEL = """\
<channel type='unix'>
  <source mode='bind'/><target type='virtio' name='{port}'/><alias name='{alias}'/>
</channel>
"""
_OPEN = """\
n=0
while [ $n -lt 100 ]; do
    for at in /sys/class/virtio-ports/*; do
        [ "$(cat "$at/name" 2>/dev/null)" = "$0" ] || continue
        [ -e "/dev/${at##*/}" ] && exec /bin/sh -c "$1" <>"/dev/${at##*/}" >&0
    done
    n=$((n + 1)); sleep 0.1
done
echo "vtax: the guest has no virtio-serial port $0" >&2; exit 1
"""
"""The guest's shell: it waits until its kernel has the port $0, which becomes the standard input
and output of $1."""
_TIED = ("setpriv", "--pdeathsig", "KILL", "--")
"""What comes before a command line that ends with this process, however it ends."""
_VTAX, _GUEST, _DOMAIN = "vtax", "guest", "domain"
"""Whose side has ended."""


def main() -> None:
    name, connect, port, script = sys.argv[1:]
    domain = Domain(name, connect or None)
    try:
        sys.exit(_serve(domain, port, script))
    except VtaxError as error:
        print(f"vtax: {error}", file=sys.stderr)
        sys.exit(1)


def _serve(domain: Domain, port: str, script: str) -> int:
    """Serve until one of the sides has ended; returns the exit code of the guest's shell."""
    ends: queue.SimpleQueue[str] = queue.SimpleQueue()
    near = socket.socket(fileno=0)
    with _watched(domain, port, ends), _attached(domain, port), _reached(domain, port) as far:
        pid = domain.execute("-c", _OPEN, port, script)
        _copying(near, far, ends, _VTAX)
        _copying(far, near, ends, _DOMAIN)
        end = ends.get()
        if end == _VTAX:
            with contextlib.suppress(OSError, queue.Empty):
                far.shutdown(socket.SHUT_RDWR)
                while end != _GUEST:
                    end = ends.get(timeout=CLOSE_S)
        domain.require_running()
        try:
            code, _, said = domain.ended(pid, END_S)
        except VtaxError:
            raise domain.fault("the port is closed, and its guest agent does not say why") from None
        print(said[-SHOWN:], file=sys.stderr)
        return code


@contextlib.contextmanager
def _attached(domain: Domain, port: str) -> Iterator[None]:
    """The port, as long as the block lasts."""
    xml = _CHANNEL.format(port=port, alias=alias(port))
    domain.ask("attach-device", "--file=/dev/stdin", "--live", stdin=xml)
    try:
        yield
    finally:
        with contextlib.suppress(VtaxError):
            domain.run(domain.detach(port))


@contextlib.contextmanager
def _reached(domain: Domain, port: str) -> Iterator[socket.socket]:
    """A connection with the port's socket."""
    reach = domain.reach()
    path = next((path for name, path, _ in domain.ports() if name == port), "")
    if not reach:
        with socket.socket(socket.AF_UNIX) as far:
            try:
                far.connect(path)
            except OSError as error:
                remedy = "run vtax as root, or as the user whom QEMU runs as"
                raise domain.fault(f"cannot reach {path}: {error.strerror}", remedy) from None
            yield far
        return
    far, theirs = socket.socketpair()
    line = [*_TIED, *reach, shlex.join(["nc", "-U", path])]
    both = theirs.fileno()
    with far, subprocess.Popen(line, stdin=both, stdout=both) as process:
        theirs.close()
        try:
            yield far
        finally:
            code = process.poll()
            process.kill()
    if code:
        remedy = f"try: {shlex.join([*reach, 'nc', '-U', path])}"
        raise domain.fault(f"the connection with its port ended with exit code {code}", remedy)


@contextlib.contextmanager
def _watched(domain: Domain, port: str, ends: queue.SimpleQueue[str]) -> Iterator[None]:
    """Tell when the guest closes the port, which QEMU does not tell on the port's socket.

    QEMU tells each port at most one change in a second.
    """
    options = ("--event=VSERPORT_CHANGE", "--loop")
    line = [*_TIED, *domain.line("qemu-monitor-event", *options)]
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:

        def read() -> None:
            assert process.stdout is not None
            closed = f'"id":"{alias(port)}"'.encode(), b'"open":false'
            for event in process.stdout:
                if all(part in event for part in closed):
                    ends.put(_GUEST)

        threading.Thread(target=read, daemon=True).start()
        try:
            yield
        finally:
            process.kill()


def _copying(
    source: socket.socket, target: socket.socket, ends: queue.SimpleQueue[str], end: str
) -> None:
    """Copy what comes from a socket to another one, and tell when it has ended."""

    def copy() -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        ends.put(end)

    threading.Thread(target=copy, daemon=True).start()


if __name__ == "__main__":
    main()
