"""The client of crates/agent/PROTOCOL.md: one JSON object per line over a socket."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.readable import readable

MAX_FRAME_BYTES = 1 << 20
SHORT_FRAME_BYTES = 2048
"""A longer frame would stop a serial line of UML for good (crates/agent/PROTOCOL.md)."""
PART_PATIENCE_S = 30.0
PART_BYTES = 900
"""Characters of a part; ASCII, of which the worst characters need two bytes when they are quoted
again."""


class ChannelClosedError(VtaxError):
    """The machine ended, or closed its side, while an answer was due."""


class ChannelTimeoutError(VtaxError):
    """No answer within the time allowed."""


class NoFrameError(VtaxError):
    """What came is no frame of the protocol, so that what follows cannot be told apart either."""


class ForgedAnswerError(VtaxError):
    """An answer to a request that nobody made: the agent did not write it."""

    def __init__(self) -> None:
        super().__init__("a program in the machine writes answers for vtax's agent")


class AgentError(VtaxError):
    """The agent answered with an error; `kind` is as in crates/agent/PROTOCOL.md."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


@dataclass(slots=True)
class Span:
    """When a command was asked for, began, ended and was answered for, by this machine's clock.

    The agent announces each step once, the first before the command can do anything. An
    announcement that comes twice, or out of turn, is not the agent's.
    """

    asked_s: float = 0.0
    began_s: float | None = None
    ended_s: float | None = None
    answered_s: float = 0.0

    @property
    def host_wall_s(self) -> float:
        """The time from the command's beginning to its end."""
        if self.began_s is None or self.ended_s is None:
            raise ForgedAnswerError
        return self.ended_s - self.began_s

    @property
    def longest_s(self) -> float:
        """The time that the command ran within, whatever delayed its announcements."""
        return self.answered_s - self.asked_s

    def announced(self, frame: Mapping[str, Any], came_s: float) -> bool:
        """Whether this frame announces a step instead of answering; raises ForgedAnswerError as
        above."""
        if frame.get("begins") is True and self.began_s is None:
            self.began_s = came_s
        elif frame.get("ended") is True and None is not self.began_s and self.ended_s is None:
            self.ended_s = came_s
        elif "error" in frame or ("ok" in frame and self.ended_s is not None):
            self.answered_s = came_s
            return False
        else:
            raise ForgedAnswerError
        return True


class Channel:
    """Requests and answers, one at a time. Every wait is bounded.

    `parts` is off for a channel that carries whole frames of 1 MiB, such as virtio-serial;
    `acknowledges` is `Launch.acknowledged`.
    """

    def __init__(
        self, sock: socket.socket, *, parts: bool = True, acknowledges: bool = False
    ) -> None:
        self._socket = sock
        self._acknowledges = acknowledges
        self._parts = parts
        self._buffer = bytearray()
        self._came_s = 0.0
        """When the last bytes arrived."""
        self._unanswered: set[int] = set()
        self._sending = threading.Lock()
        self.noise = bytearray()
        """Bytes that came before hello and were not the agent's."""

    def send_raw(self, data: bytes, timeout_s: float) -> None:
        """Send bytes that do not form a frame."""
        if data:
            self._send_bytes(data, time.monotonic() + timeout_s)

    def renew(self) -> None:
        """Send an empty line, which renews the agent's lease; never waits and never fails.

        Another thread may call this. A line that cannot be sent at once is not sent: either a
        request is being sent, which renews the lease too, or the network takes nothing.
        """
        if self._sending.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):
                    self._socket.send(b"\n", socket.MSG_DONTWAIT)
            finally:
                self._sending.release()

    def hello(self, timeout_s: float, noise_bytes: int = 0) -> dict[str, Any]:
        """Wait for the line that the agent sends when it is ready.

        Something else may have printed up to `noise_bytes` before that, also at the beginning of
        the agent's own line.
        """
        return self._first("hello", timeout_s, noise_bytes)

    def waiting(self, timeout_s: float, noise_bytes: int = 0) -> dict[str, Any]:
        """Wait for the line of a guest that stops before it makes its root (`vtax.wait=1`)."""
        return self._first("waiting", timeout_s, noise_bytes)

    def _first(self, what: str, timeout_s: float, noise_bytes: int) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        left = noise_bytes
        while left > 0:
            try:
                line = self._receive_line(deadline, f"the agent's {what}")
            except VtaxError:
                self.noise += self._buffer
                raise
            if (at := _frame_at(line, what)) is not None:
                self.noise += line[:at]
                self._buffer[:0] = line[at:] + b"\n"
                break
            self.noise += line + b"\n"
            left -= len(line) + 1
        return self._announced(what, deadline - time.monotonic())

    def let_in(self, timeout_s: float, noise_bytes: int = 0) -> dict[str, Any]:
        """Let a waiting guest make its root, set its wall clock, and wait for its hello."""
        line = json.dumps({"enter": True, "realtime_s": time.time()})
        self._send(line, time.monotonic() + timeout_s)
        return self.hello(timeout_s, noise_bytes)

    def request(
        self,
        op: str,
        patience_s: float,
        *,
        watch: Callable[[], float] | None = None,
        span: Span | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Send one request and wait at most `patience_s` for its answer.

        `watch` is called meanwhile, and returns after how many seconds to call it again. For a
        request with `announce`, `span` gets the times of its command. Raises AgentError with the
        agent's own message, ChannelClosedError, ChannelTimeoutError, NoFrameError,
        ForgedAnswerError.
        """
        deadline = time.monotonic() + patience_s
        # Programs in the machine cannot know it, so they cannot answer for the agent.
        number = secrets.randbits(63)
        self._unanswered.add(number)
        if span is not None:
            span.asked_s = time.monotonic()
        self._send_whole(json.dumps({"id": number, "op": op, **fields}), deadline)
        while True:
            frame = self._receive(deadline, f"the answer to '{op}'", watch)
            answered = frame.get("id")
            if answered == number:
                if span is not None and span.announced(frame, self._came_s):
                    if self._acknowledges:
                        self.renew()
                    continue
                self._unanswered.remove(number)
                return _unwrap(frame)
            # A late answer to an earlier request is dropped, and so is a frame that answers no
            # request.
            if answered is not None and answered not in list(self._unanswered):
                raise ForgedAnswerError

    def close(self) -> None:
        # Another thread may wait for an answer: closing alone would not end its wait.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _announced(self, what: str, timeout_s: float) -> dict[str, Any]:
        frame = self._receive(time.monotonic() + timeout_s, f"the agent's {what}")
        if "error" in frame:
            _unwrap(frame)
        announced = frame.get(what)
        if not isinstance(announced, dict):
            raise NoFrameError(f"the machine's first message is no {what} of vtax-agent")
        return announced

    def _send_whole(self, request: str, deadline: float) -> None:
        """Send a request, in parts if need be; each part is answered before the next is sent."""
        if len(request) >= MAX_FRAME_BYTES:
            raise VtaxError(f"a request of {len(request)} bytes is over the channel's 1 MiB")
        if not self._parts or len(request) < SHORT_FRAME_BYTES:
            return self._send(request, deadline)
        parts = [request[i : i + PART_BYTES] for i in range(0, len(request), PART_BYTES)]
        for part in parts[:-1]:
            self._send(json.dumps({"part": part}), deadline)
            self._await_part(min(deadline, time.monotonic() + PART_PATIENCE_S))
        return self._send(json.dumps({"part": parts[-1], "last": True}), deadline)

    def _await_part(self, deadline: float) -> None:
        while "part" not in (frame := self._receive(deadline, "the answer to a part")):
            if "error" in frame:
                _unwrap(frame)

    def _send(self, line: str, deadline: float) -> None:
        self._send_bytes(line.encode() + b"\n", deadline)

    def _send_bytes(self, data: bytes, deadline: float) -> None:
        try:
            # A socket that was closed takes no time-out either.
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            with self._sending:
                self._socket.sendall(data)
        except TimeoutError:
            raise ChannelTimeoutError("the machine does not take requests") from None
        except OSError as error:
            raise ChannelClosedError(f"the machine is gone ({error.strerror})") from None

    def _receive(
        self, deadline: float, what: str, watch: Callable[[], float] | None = None
    ) -> dict[str, Any]:
        line = self._receive_line(deadline, what, watch)
        try:
            return foreign_json.parse_object(line)
        except ValueError:
            raise NoFrameError(f"{what} is not a JSON object: {line[:80]!r}") from None

    def _receive_line(
        self, deadline: float, what: str, watch: Callable[[], float] | None = None
    ) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > MAX_FRAME_BYTES:
                raise NoFrameError(f"{what} is over the channel's limit of 1 MiB")
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise ChannelTimeoutError(f"{what} did not come in time")
            pause = min(remaining, watch()) if watch else remaining
            if self._readable(what, pause):
                self._buffer += self._read(what)
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        return line

    def _readable(self, what: str, pause_s: float) -> bool:
        try:
            return readable(self._socket, pause_s)
        except ValueError:
            # The number of that request is -1.
            raise ChannelClosedError(f"{what} did not come: the channel is closed") from None

    def _read(self, what: str) -> bytes:
        try:
            data = self._socket.recv(65536)
            self._came_s = time.monotonic()
        except OSError as error:
            raise ChannelClosedError(f"{what} did not come: {error.strerror}") from None
        if not data:
            raise ChannelClosedError(f"{what} did not come: the machine ended")
        return data


class AcceptingChannel(Channel):
    """A channel to an agent that connects to `listener` when it is ready.

    `lifeline` is a socket whose other end closes with the machine.
    """

    def __init__(self, lifeline: socket.socket, listener: socket.socket) -> None:
        super().__init__(lifeline, parts=False)
        self._listener = listener

    def _first(self, what: str, timeout_s: float, noise_bytes: int) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        if readable(self._listener, timeout_s, self._socket):
            self._socket.close()
            self._socket, _ = self._listener.accept()
        return super()._first(what, deadline - time.monotonic(), noise_bytes)


def _frame_at(line: bytes, what: str) -> int | None:
    """Where the agent's first message begins, at the end of a line that something else began."""
    at = line.find(b"{")
    while at >= 0:
        try:
            frame = foreign_json.parse_object(line[at:])
        except ValueError:
            frame = {}
        if isinstance(frame.get(what), dict) or isinstance(frame.get("error"), dict):
            return at
        at = line.find(b"{", at + 1)
    return None


def _unwrap(frame: dict[str, Any]) -> dict[str, Any]:
    if isinstance(ok := frame.get("ok"), dict):
        return ok
    error = frame.get("error")
    if not isinstance(error, dict):
        raise NoFrameError(f"the machine's answer has neither ok nor error: {str(frame)[:80]}")
    raise AgentError(str(error.get("kind")), str(error.get("message")))
