"""What a login shell prints before the agent, and remote folders in which no program may run."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tested_machines import GUEST_ENVIRONMENT
from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.environments import build, ssh
from vtax.environments.channel import Channel, ChannelClosedError
from vtax.environments.machine import MachineLostError

NOISE = 64 << 10
HELLO = b'{"hello": {"agent": "0.1.0", "protocol": 1, "said": "{\\"a\\": [1]}"}}\n'

PIECES = st.sampled_from(
    [b"welcome", b"\n", b"{", b"}", b'{"a": 1}', b"[1]", b'"', b"\\", b"\r\n", b"\x1b[1m", b"\xff"]
) | st.binary(max_size=30)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PIECES, max_size=12).map(b"".join), st.booleans())
def test_hello_is_found_behind_whatever_was_printed(noise: bytes, carriage: bool) -> None:
    ours, theirs = socket.socketpair()
    with Channel(ours) as channel, theirs:
        theirs.sendall(noise + (HELLO.replace(b"\n", b"\r\n") if carriage else HELLO))
        assert channel.hello(5, NOISE)["said"] == '{"a": [1]}'
        assert bytes(channel.noise) == noise
        theirs.sendall(b'{"id": 0, "error": {"kind": "k", "message": "what follows is kept"}}\n')
        with pytest.raises(VtaxError):
            channel.request("ping", 5)


@given(st.lists(PIECES, max_size=12).map(b"".join))
def test_what_came_instead_of_hello_is_kept(noise: bytes) -> None:
    ours, theirs = socket.socketpair()
    with Channel(ours) as channel, theirs:
        theirs.sendall(noise)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ChannelClosedError):
            channel.hello(5, NOISE)
        assert bytes(channel.noise) == noise


@pytest.mark.parametrize("line", [b"x\n", b"{" * 1000 + b"\n", b"x" * (2 << 20)])
def test_noise_is_bounded(line: bytes) -> None:
    ours, theirs = socket.socketpair()

    def print_on() -> None:
        with theirs:
            try:
                for _ in range(1 + (2 << 20) // len(line)):
                    theirs.sendall(line)
            except OSError:
                return

    with Channel(ours) as channel:
        threading.Thread(target=print_on, daemon=True).start()
        with pytest.raises(VtaxError):
            channel.hello(30, NOISE)
        assert len(channel.noise) <= 2 << 20


def login(folder: Path, monkeypatch: pytest.MonkeyPatch, before: str, then: str) -> None:
    """An `ssh` first on PATH that drops options and host."""
    tools = folder / "tools"
    tools.mkdir()
    program = tools / "ssh"
    program.write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift 2\n' + before + "\n" + then + "\n"
    )
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    ssh._probe.cache_clear()


SHELL = 'exec /bin/sh -c "$*"'


@pytest.mark.parametrize(
    "before",
    [
        "printf welcome",
        "echo welcome; printf 'last login: {}'",
        "printf '\\033[1mhi\\033[0m {\"motd\": {}} '",
        "head -c 60000 /dev/zero | tr '\\0' '{'",
        "printf '{\"motd\": 1}\\n'",
        "echo to standard error >&2",
    ],
)
def test_a_login_that_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    login(tmp_path, monkeypatch, before, SHELL)
    work = tmp_path / "work"
    work.mkdir()
    Exchange(work, "r0").create({})
    with build("ssh:nowhere").start(work, []) as machine:
        done = machine.run(["echo", "it runs"], GUEST_ENVIRONMENT, "r0", 60.0)
        assert done.outcome.exit_code == 0
    assert Exchange(work, "r0").read_text("stdout") == "it runs\n"


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("echo This account is not available.; exit 1", "This account is not available"),
        ("printf 'choose 1 or 2: '; read answer; exit 0", "choose 1 or 2:"),
        ("echo closed >&2; exit 255", "closed"),
    ],
)
def test_a_login_that_gives_no_shell_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, said: str
) -> None:
    login(tmp_path, monkeypatch, ":", then)
    with pytest.raises(VtaxError, match=said):
        build("ssh:nowhere").check()


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("echo Only one session is allowed.; exit 1", "printed 'Only one session is allowed.'"),
        ('exec /bin/sh -c "$*" </dev/null', "the agent did not come whole there"),
    ],
)
def test_what_was_printed_instead_of_the_agent_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, said: str
) -> None:
    """The first question is answered, and the second login is refused."""
    first = f'case "$*" in cat*) {SHELL};; esac'
    login(tmp_path, monkeypatch, first, then)
    with pytest.raises(MachineLostError, match=said) as caught:
        build("ssh:nowhere").start(tmp_path, [])
    assert "dir=" not in str(caught.value)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("below", [".", "deeper/still"])
def test_a_folder_mounted_noexec_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    login(tmp_path, monkeypatch, "printf welcome", SHELL)
    with mounted(tmp_path / "mounted", "noexec,size=16M") as folder:
        (folder / below).mkdir(parents=True, exist_ok=True)
        words = rf"{folder} is mounted noexec; choose another folder with dir="
        with pytest.raises(MachineLostError, match=words):
            build(f"ssh:nowhere,dir={folder / below}").start(tmp_path, [])
        assert not list(folder.rglob("vtax-*"))


def test_a_folder_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login(tmp_path, monkeypatch, ":", SHELL)
    words = pytest.raises(MachineLostError, match=r"no room for the agent in .*; choose .* dir=")
    with mounted(tmp_path / "mounted", "size=64k") as folder, words:
        build(f"ssh:nowhere,dir={folder}").start(tmp_path, [])
