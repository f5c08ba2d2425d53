"""QEMU's monitor protocol, as much of it as saving and restoring a machine needs.

This is a client of its own because the published one (qemu.qmp) is asynchronous and listens or
connects itself; here the socket is a pair made before QEMU starts, and every wait has a bound.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.readable import readable

MAX_LINE_BYTES = 1 << 20
ANSWER_TIMEOUT_S = 20.0


class QmpError(VtaxError):
    """QEMU refused a command, or is gone."""


class Qmp:
    """Commands and events over a connected socket."""

    def __init__(self, sock: socket.socket, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._socket = sock
        self._buffer = bytearray()
        self._events: list[dict[str, Any]] = []
        greeting = self._receive(time.monotonic() + timeout_s)
        if "QMP" not in greeting:
            raise QmpError(f"QEMU's monitor does not greet: {str(greeting)[:80]}")
        self.execute("qmp_capabilities")

    def execute(
        self,
        command: str,
        arguments: Mapping[str, Any] = MappingProxyType({}),
        *,
        descriptors: Sequence[int] = (),
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Any:
        """Run a command and return what it returns; `descriptors` go with it (for `getfd`).

        Raises QmpError when QEMU refuses the command or does not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        request = {"execute": command, "arguments": dict(arguments)}
        try:
            self._socket.settimeout(timeout_s)
            # Requests are short: the socket takes them whole.
            socket.send_fds(self._socket, [json.dumps(request).encode() + b"\n"], descriptors)
        except OSError as error:
            raise QmpError(f"QEMU does not take '{command}': {error.strerror}") from None
        while True:
            frame = self._receive(deadline)
            if "event" in frame:
                self._events.append(frame)
            elif "error" in frame:
                reason = frame["error"].get("desc") if isinstance(frame["error"], dict) else None
                raise QmpError(f"QEMU refused '{command}': {reason}")
            else:
                return frame.get("return")

    def wait_for(self, event: str, timeout_s: float, **data: str) -> None:
        """Wait for an event with these data, also one that came during an earlier command.

        A migration that fails ends the wait at once.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            frame = self._events.pop(0) if self._events else self._receive(deadline)
            got = frame.get("data")
            got = got if isinstance(got, dict) else {}
            if frame.get("event") == event and data.items() <= got.items():
                return
            if frame.get("event") == "MIGRATION" and got.get("status") == "failed":
                raise QmpError("QEMU could not save or restore the emulated host's state")

    def close(self) -> None:
        self._socket.close()

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise QmpError("QEMU's monitor sends a line without end")
            remaining = deadline - time.monotonic()
            try:
                if remaining <= 0 or not readable(self._socket, remaining):
                    raise QmpError("QEMU's monitor did not answer in time")
                data = self._socket.recv(65536)
            except OSError as error:
                raise QmpError(f"QEMU's monitor is gone: {error.strerror}") from None
            except ValueError:
                raise QmpError("the channel to QEMU's monitor is closed") from None
            if not data:
                raise QmpError("QEMU ended")
            self._buffer += data
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        try:
            return foreign_json.parse_object(line)
        except ValueError:
            raise QmpError(f"QEMU's monitor sends no JSON object: {line[:80]!r}") from None
