"""The agent's channel: every wait ends, and nothing that comes back is trusted."""

import fcntl
import itertools
import json
import resource
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtax.core.errors import VtaxError
from vtax.environments.channel import (
    AgentError,
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
    ForgedAnswerError,
)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Channel, socket.socket]]:
    """A channel whose requests have the numbers 1, 2, 3 ..., so that answers can lie ready."""
    numbers = itertools.count(1)
    monkeypatch.setattr("vtax.environments.channel.secrets.randbits", lambda _: next(numbers))
    ours, theirs = socket.socketpair()
    with Channel(ours) as channel, theirs:
        yield channel, theirs


def test_the_late_answer_to_a_request_that_was_given_up_is_dropped(
    pair: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = pair
    with pytest.raises(ChannelTimeoutError):
        channel.request("ping", 0.05)
    theirs.sendall(b'{"id": 1, "ok": {"late": 1}}\n{"id": 2, "ok": {"x": 2}}\n')
    assert channel.request("ping", 1) == {"x": 2}
    assert json.loads(theirs.recv(1000).splitlines()[1]) == {"id": 2, "op": "ping"}


@pytest.mark.parametrize("number", ["99", "2", '"1"', "[1]", "1.5"])
def test_an_answer_to_no_request_is_forged(
    pair: tuple[Channel, socket.socket], number: str
) -> None:
    channel, theirs = pair
    theirs.sendall(b'{"id": %s, "ok": {}}\n' % number.encode())
    with pytest.raises(ForgedAnswerError, match="writes answers"):
        channel.request("ping", 1)


def test_a_descriptor_may_have_any_number() -> None:
    """A campaign of many machines has more than 1024, the most that select() takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3000:
        pytest.skip(f"no process here may have more than {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    try:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            number = fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD_CLOEXEC, 2500)
            with Channel(socket.socket(fileno=number)) as channel:
                assert number >= 2500
                theirs.sendall(b'{"hello": {"x": 1}}\n')
                assert channel.hello(1) == {"x": 1}
                with pytest.raises(ChannelTimeoutError):
                    channel.hello(0.02)
                theirs.shutdown(socket.SHUT_WR)
                with pytest.raises(ChannelClosedError):
                    channel.hello(1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_numbers_cannot_be_guessed() -> None:
    ours, theirs = socket.socketpair()
    with Channel(ours) as channel, theirs:
        for _ in range(2):
            with pytest.raises(ChannelTimeoutError):
                channel.request("ping", 0.01)
        numbers = [json.loads(line)["id"] for line in theirs.recv(1000).splitlines()]
    assert len(set(numbers)) == 2 and max(numbers) > 1 << 40


def test_the_agents_error_is_passed_on(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    theirs.sendall(b'{"id": 1, "error": {"kind": "spawn", "message": "no such program"}}\n')
    with pytest.raises(AgentError, match="no such program") as caught:
        channel.request("run", 1)
    assert caught.value.kind == "spawn"


def test_silence_ends_in_a_timeout(pair: tuple[Channel, socket.socket]) -> None:
    with pytest.raises(ChannelTimeoutError):
        pair[0].hello(0.05)


def test_half_a_line_then_the_end(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    theirs.sendall(b'{"id": 1, "ok"')
    theirs.close()
    with pytest.raises(ChannelClosedError):
        channel.hello(1)


def test_an_endless_line_is_refused(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    writer = threading.Thread(target=_flood, args=(theirs,), daemon=True)
    writer.start()
    with pytest.raises(VtaxError, match="over the channel's limit"):
        channel.hello(10)


def _flood(sock: socket.socket) -> None:
    try:
        sock.sendall(b"x" * (4 << 20))
    except OSError:
        return


def test_a_long_request_goes_in_short_frames(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    frames: list[bytes] = []

    def agent() -> None:
        whole = ""
        with theirs.makefile("rwb") as stream:
            for line in stream:
                frames.append(line)
                frame = json.loads(line)
                whole += frame["part"]
                if frame.get("last"):
                    break
                stream.write(b'{"part": %d}\n' % len(whole))
                stream.flush()
            argv = json.loads(whole)["argv"]
            stream.write(json.dumps({"id": 1, "ok": {"argv": argv}}).encode() + b"\n")

    thread = threading.Thread(target=agent, daemon=True)
    thread.start()
    argv = ['"\\\u00e9' * 3000]
    assert channel.request("run", 5, argv=argv) == {"argv": argv}
    assert len(frames) > 3 and max(map(len, frames)) <= 2048


def test_an_agent_that_knows_no_parts_is_an_error(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    theirs.sendall(b'{"id": null, "error": {"kind": "request", "message": "no id"}}\n')
    with pytest.raises(AgentError, match="no id"):
        channel.request("run", 5, argv=["x" * 5000])


def test_a_request_without_end_is_refused(pair: tuple[Channel, socket.socket]) -> None:
    with pytest.raises(VtaxError, match="over the channel's 1 MiB"):
        pair[0].request("run", 5, argv=["x" * (1 << 20)])


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_garbage_is_a_vtax_error_or_ignored(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with Channel(ours) as channel, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(VtaxError):
            channel.request("ping", 1)
