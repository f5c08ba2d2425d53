"""The real agent, as a client of crates/agent/PROTOCOL.md sees it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vtax.core import binaries
from vtax.core.errors import VtaxError
from vtax.environments import guest_kernel, initramfs
from vtax.environments.channel import AgentError, Channel

PATIENCE_S = 20.0
BOOT_PATIENCE_S = 120.0
"""An emulated boot takes a few seconds on an idle machine."""


@contextmanager
def serving() -> Iterator[Channel]:
    """An agent on this machine; it ends with the block."""
    ours, theirs = socket.socketpair()
    with theirs:
        argv = [str(binaries.find("vtax-agent")), "serve", "--channel", f"fd:{theirs.fileno()}"]
        agent = subprocess.Popen(argv, pass_fds=[theirs.fileno()])
    try:
        with Channel(ours) as channel:
            channel.hello(PATIENCE_S)
            yield channel
        assert agent.wait(PATIENCE_S) == 0
    finally:
        agent.kill()
        agent.wait()


def run(channel: Channel, folder: Path, script: str, **fields: Any) -> dict[str, Any]:
    return channel.request(
        "run",
        PATIENCE_S,
        argv=["sh", "-c", script],
        env={"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
        cwd=str(folder),
        stdout="stdout",
        stderr="stderr",
        timeout_s=PATIENCE_S / 2,
        output_limit_bytes=1 << 20,
        **fields,
    )


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.binary(min_size=1, max_size=5000), piece=st.integers(1, 3000))
def test_what_is_pushed_is_pulled(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, piece: int
) -> None:
    path = str(tmp_path_factory.mktemp("push") / "folder" / "file")
    with serving() as channel:
        for offset in range(0, len(data), piece):
            part = base64.b64encode(data[offset : offset + piece]).decode()
            size = channel.request("push", PATIENCE_S, path=path, data=part, offset=offset)["size"]
            assert size == min(offset + piece, len(data))
        answer = channel.request("pull", PATIENCE_S, path=path, offset=0, limit=512 << 10)
    assert base64.b64decode(answer["data"]) == data == Path(path).read_bytes()
    assert (answer["size"], answer["eof"]) == (len(data), True)


def test_what_is_left_running_ends_with_the_session(tmp_path: Path) -> None:
    with serving() as channel:
        run(channel, tmp_path, "(setsid sleep 1000 & echo $! >left)", leave=True)
        left = int((tmp_path / "left").read_text())
        run(channel, tmp_path, "(setsid sleep 1000 & echo $! >other)")
        assert alive(left)
        assert not alive(int((tmp_path / "other").read_text()))
    assert not alive(left)


def test_counters_have_their_fields_on_any_machine() -> None:
    with serving() as channel:
        try:
            counters = channel.request("counters", PATIENCE_S)
        except AgentError as error:
            pytest.skip(str(error))
    fields = {"monotonic_s", "module", "mode", "source", "counters", "gauges", "guests"}
    assert set(counters) == fields
    assert abs(counters["monotonic_s"] - time.monotonic()) < PATIENCE_S
    assert set(counters["gauges"]) <= set(counters["counters"])


def lines(sock: socket.socket) -> Iterator[dict[str, Any]]:
    with sock.makefile("rb") as stream:
        for line in stream:
            yield json.loads(line)


@contextmanager
def booted(folder: Path, parameters: str) -> Iterator[tuple[socket.socket, Path]]:
    """A booted guest whose initramfs is its root; the channel and its console."""
    kernel = guest_kernel.prepare()
    image = folder / "initramfs"
    folders = ("proc", "sys", "dev", "bin")
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox-static is missing")
    # The archive of the environment qemu has the modules; a second archive adds to it.
    more = initramfs.newc({"bin/busybox": Path(busybox).read_bytes()}, folders)
    image.write_bytes(kernel.initramfs.read_bytes() + more)
    console = folder / "console"
    ours, theirs = socket.socketpair()
    argv = ["qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-cpu", "max", "-m", "512M"]
    argv += ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none"]
    argv += ["-serial", f"file:{console}", "-kernel", str(kernel.kernel), "-initrd", str(image)]
    line = "console=ttyS0 quiet panic=-1 vtax.channel=virtio:org.vtax.agent"
    argv += ["-append", f"{line} vtax.modules={':'.join(kernel.modules)} {parameters}"]
    argv += ["-fsdev", f"local,id=work,path={folder},security_model=none"]
    argv += ["-device", "virtio-9p-pci,fsdev=work,mount_tag=work", "-device", "virtio-serial-pci"]
    argv += ["-chardev", f"socket,id=agent,fd={theirs.fileno()}"]
    argv += ["-device", "virtserialport,chardev=agent,name=org.vtax.agent"]
    with ExitStack() as stack:
        stack.enter_context(closing(ours))
        with theirs:
            guest = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        stack.callback(guest.wait)
        stack.callback(guest.kill)
        ours.settimeout(BOOT_PATIENCE_S)
        yield ours, console
        guest.wait(BOOT_PATIENCE_S)


def needs_a_guest() -> None:
    if shutil.which("qemu-system-x86_64") is None:
        pytest.skip("QEMU is missing")
    try:
        guest_kernel.prepare()
    except VtaxError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_a_guest_waits_uses_its_initramfs_and_mounts_when_entered(tmp_path: Path) -> None:
    needs_a_guest()
    with booted(tmp_path, "vtax.lower=initramfs vtax.work=9p:work vtax.wait=1") as (sock, console):
        frames = lines(sock)

        def ask(frame: dict[str, Any]) -> dict[str, Any]:
            sock.sendall(json.dumps(frame).encode() + b"\n")
            return next(frames)

        assert set(next(frames)) == {"waiting"}
        assert ask({"id": 1, "op": "ping"})["error"]["kind"] == "request"
        assert "hello" in ask({"enter": True})
        mounts = {"op": "pull", "path": "/proc/mounts", "limit": 1 << 16}
        before = base64.b64decode(ask({"id": 2, **mounts})["ok"]["data"]).decode()
        assert "rootfs / " in before
        assert "/sys/kernel/debug debugfs" in before
        assert " 9p " not in before
        entered = {"mounted": ["/run/vtax/work"]}
        assert ask({"id": 3, "op": "enter"})["ok"] == entered
        assert ask({"id": 4, "op": "enter"})["ok"] == entered
        push = {"op": "push", "path": "/run/vtax/work/from-guest", "data": "aGVsbG8="}
        assert ask({"id": 5, **push})["ok"] == {"size": 5}
        assert ask({"id": 6, "op": "counters"})["ok"]["source"] is None
        assert ask({"id": 7, "op": "halt"})["ok"] == {}
    assert (tmp_path / "from-guest").read_bytes() == b"hello"
    assert "vtax-agent:" not in console.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("vtax.lower=initramfs vtax.wait=yes", "parameters: vtax.wait=yes is not of a known form"),
        (
            "vtax.lower=initramfs vtax.modules=/absent.ko?npt=1",
            "module /absent.ko: No such file or directory",
        ),
    ],
)
def test_a_guest_that_cannot_start_says_why_and_powers_off(
    tmp_path: Path, parameters: str, message: str
) -> None:
    needs_a_guest()
    with booted(tmp_path, parameters) as (sock, console):
        assert sock.recv(1) == b"", "nothing is served"
    assert f"vtax-agent: init: {message}" in console.read_text()
