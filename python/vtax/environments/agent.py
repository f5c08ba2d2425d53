"""Talking to one vtax-agent: its requests as methods, and what its silence means."""

from __future__ import annotations

import base64
import binascii
import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, NoReturn

from vtax.core.clocks import ROUNDS, Skew, least_s, measure, time_in
from vtax.core.errors import VtaxError
from vtax.environments.channel import (
    AgentError,
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
    ForgedAnswerError,
    NoFrameError,
    Span,
)
from vtax.environments.console import plain_text
from vtax.environments.machine_command import MachineCommand
from vtax.environments.output_limit import OutputLimit, OutputLimitError
from vtax.workloads.base import Outcome

REQUEST_TIMEOUT_S = 30.0
"""Time for an answer that needs no work; generous, because emulated guests are slow."""
OUTPUT_LIMIT_BYTES = 1 << 30
"""How much a workload may write, unless another limit is given."""
STDIN = "stdin"
"""A file with this name in the folder of results is the command's standard input."""
RESULTS_VARIABLE = "VTAX_RESULTS"
"""The variable that names the folder of results to the command, which may run in a folder that it
cannot write."""
RATE_ERROR = 0.005
"""The largest difference in rate of two clocks that are right: NTP slews a clock by at most 500
ppm, and a crystal is within 100. Ten times that is a wrong clock."""
STAMP_ERROR_S = 0.001
"""Error of a comparison of clocks: they are read one after the other, the host's around the
machine's."""
LOST_SHARE = 0.05
LOOK_ERROR_S = 0.1
"""Error of two looks at the machine's clock on a busy host."""
FIRST_ROUNDS = 5
LAST_WORDS_S = 1.0
SHOWN_NOISE = 300
"""How many characters to show of what was printed instead of hello."""
CHUNK_BYTES = 512 << 10
"""Bytes of a file in one frame: the agent's limit (crates/agent/PROTOCOL.md)."""


def given_input(work: Path, folder: str) -> str | None:
    """The name of the standard input that was put into a folder of results below `work`."""
    return STDIN if (work / folder / STDIN).is_file() else None


class MachineLostError(VtaxError):
    """The machine hung or died; it has been killed and a new one must be started."""


class NotBelievedError(MachineLostError):
    """What came was not the agent's answer."""


@contextlib.contextmanager
def unless_lost(*others: type[Exception]) -> Iterator[None]:
    """Go on after the block's VtaxError, or one of `others`, but not after a machine's loss."""
    try:
        yield
    except Exception as error:
        tolerated = isinstance(error, (VtaxError, *others))
        if isinstance(error, MachineLostError) or not tolerated:
            raise


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished command: what the machine says, and its duration by the host's clock."""

    told: Outcome
    """What the machine says."""
    host_wall_s: float
    """The time from the message that the command begins to the message that it has ended."""
    longest_s: float
    """The time from the request to the answer."""
    lost_s: float | None = None
    """How far the machine's clock fell behind or ran ahead of the host's in that time, since it was
    last looked at; None: it was not looked at again."""
    emulated_clock: bool = False
    """Whether the machine's clock is an emulator's, which need not follow the host's."""
    began_s: float | None = None
    """When the command began, by the host's monotonic clock; None: not known."""

    @property
    def by_host(self) -> bool:
        """Whether the machine tells less time than can have passed, so that the host's time is
        taken."""
        return not self.emulated_clock and self.told.wall_s < least_s(self.host_wall_s)

    @property
    def outcome(self) -> Outcome:
        """What the machine says, with a duration that the host's clock bounds from below."""
        return replace(self.told, wall_s=self.host_wall_s) if self.by_host else self.told

    def doubt(self) -> str | None:
        """Why the machine's own time is not to be believed; None when it may be.

        Both clocks ran around the same command. A busy host hears late that the command began or
        ended, so the host's time may be too long or too short. But the time from request to answer
        is never shorter than the command. A machine's time that is shorter than the host's is
        replaced (`by_host`) and no reason for doubt: only a clock that was seen to be wrong is.
        """
        if self.emulated_clock:
            return None
        own, longest = self.told.wall_s, self.longest_s
        if own > longest * (1 + RATE_ERROR) + STAMP_ERROR_S:
            return f"its clock gives {own:.4g} s to what took {longest:.4g} s by the host's"
        if self.lost_s is not None and self.lost_s > LOST_SHARE * longest + LOOK_ERROR_S:
            return f"its clock is off by {self.lost_s:.4g} s in {longest:.4g} s of the host's"
        return None


class Agent:
    """One agent at the other end of a channel.

    `lost` is called when the agent does not answer or is gone: it ends the machine and makes the
    error. Every later request raises the same error again. `nudge_s`: while a request waits, an
    empty line on the channel gives the machine an interrupt each time this many seconds have
    passed.
    """

    def __init__(
        self,
        channel: Channel,
        work_inside: PurePath,
        lost: Callable[[str], MachineLostError],
        *,
        emulated_clock: bool = False,
        nudge_s: float | None = None,
    ) -> None:
        self._channel = channel
        self._work_inside = work_inside
        self._lost = lost
        self._emulated_clock = emulated_clock
        self._nudge_s = nudge_s
        self._gone: MachineLostError | None = None
        self.busy = False
        """A request was sent and not answered: the next one would be answered only after it."""
        self.counting = False
        """Whether to count the instructions and cycles of commands."""
        self._clock: tuple[Skew, float] | None = None
        """The machine's clock when it was last looked at, and the time of that look."""

    def hello(
        self, timeout_s: float, preamble: bytes = b"", noise_bytes: int = 0
    ) -> dict[str, Any]:
        """Send what the machine reads before its agent is there, and wait for the agent.

        Up to `noise_bytes` that something else prints before hello are skipped; if the agent does
        not come, the error shows them.
        """

        def hello() -> dict[str, Any]:
            begin = time.monotonic()
            # A machine that does not take the bytes may have said why: its words are read first.
            with contextlib.suppress(ChannelClosedError, ChannelTimeoutError):
                self._channel.send_raw(preamble, timeout_s)
            left_s = max(LAST_WORDS_S, timeout_s - (time.monotonic() - begin))
            return self._channel.hello(left_s, noise_bytes)

        return self._booted(hello, timeout_s)

    def waiting(self, timeout_s: float) -> dict[str, Any]:
        """Wait until the agent waits to be let in."""
        return self._booted(lambda: self._channel.waiting(timeout_s), timeout_s)

    def let_in(self, timeout_s: float) -> dict[str, Any]:
        """Let the waiting agent make its root, and wait for its hello."""
        return self._booted(lambda: self._channel.let_in(timeout_s), timeout_s)

    def _booted(self, message: Callable[[], dict[str, Any]], timeout_s: float) -> dict[str, Any]:
        try:
            return message()
        except ChannelTimeoutError:
            self._raise_lost(f"did not boot within {timeout_s:.0f} s{self._printed()}")
        except ChannelClosedError:
            self._raise_lost(f"ended while booting{self._printed()}")
        except NoFrameError as error:
            self._raise_lost(f"is not understood: {error.message}{self._printed()}")

    def run(
        self, command: MachineCommand, limit: OutputLimit | None = None, stdin: str | None = None
    ) -> Finished:
        """Run a command; its folder may be absolute.

        `stdin` names its standard input in its folder. Where the command's environment has no HOME,
        the machine makes a fresh one for it. A machine that writes more than `limit` while the
        command runs is ended. Raises VtaxError when the command cannot be started, MachineLostError
        when the machine is lost.
        """
        # The agent enforces the time-out; the host's own time-out is for a guest that hangs
        # altogether.
        timeout_s = command.timeout_s
        patience = 24 * 3600.0 if timeout_s is None else timeout_s * 1.1 + REQUEST_TIMEOUT_S
        results = str(self._work_inside / command.folder)
        span = Span()
        answer = self.request(
            "run",
            patience,
            watch=limit.check if limit else None,
            span=span,
            announce=True,
            argv=list(command.argv),
            env={**command.environment, RESULTS_VARIABLE: results},
            cwd=str(command.workdir or results),
            results=results,
            home="HOME" not in command.environment,
            stdin=stdin,
            stdout="stdout",
            stderr="stderr",
            timeout_s=timeout_s,
            # This limits a single file (RLIMIT_FSIZE).
            output_limit_bytes=limit.limit_bytes if limit else OUTPUT_LIMIT_BYTES,
            count=self.counting,
            leave=command.leave,
        )
        if limit:
            limit.end()
        try:
            told = Outcome(**answer)
        except TypeError:
            raise VtaxError(f"the machine's answer is not of this version: {answer}") from None
        finished = Finished(
            told,
            span.host_wall_s,
            span.longest_s,
            emulated_clock=self._emulated_clock,
            began_s=span.began_s,
        )
        return self._looked_again(finished) if finished.by_host else finished

    def look_at_clock(self) -> None:
        """Remember how far the machine's clock is from this machine's, by a few round trips."""
        self._clock = self.clock_skew(FIRST_ROUNDS), time.monotonic()

    def _looked_again(self, finished: Finished) -> Finished:
        """The result with what the machine's clock lost, where its own time is shorter than the
        host's."""
        before = self._clock
        self._clock = after = self.clock_skew(), time.monotonic()
        if before is None:
            return finished
        moved_ns = abs(after[0].offset_ns - before[0].offset_ns)
        seen_ns = max(0, moved_ns - after[0].within_ns - before[0].within_ns)
        share = min(1.0, finished.longest_s / max(1e-9, after[1] - before[1]))
        return replace(finished, lost_s=seen_ns / 1e9 * share)

    def facts(self) -> dict[str, Any]:
        return self.request("facts", REQUEST_TIMEOUT_S)

    def set_clock(self) -> None:
        """Set the wall clock of a guest to this machine's; it is late by the duration of the
        request."""
        self.request("clock", REQUEST_TIMEOUT_S, realtime_s=time.time())

    def clock_skew(self, rounds: int = ROUNDS) -> Skew:
        """How far the machine's clock is from this machine's, by the shortest of some round
        trips."""
        return measure(lambda: time_in(self.request("time", REQUEST_TIMEOUT_S)), rounds)

    def push(self, path: str, content: bytes, permissions: int = 0o600) -> None:
        """Write a file in the machine; an existing one is replaced."""
        for offset in range(0, max(1, len(content)), CHUNK_BYTES):
            data = base64.b64encode(content[offset : offset + CHUNK_BYTES]).decode()
            self.request(
                "push", REQUEST_TIMEOUT_S, path=path, data=data, mode=permissions, offset=offset
            )

    def pull(self, path: str, limit_bytes: int = 16 << 20, offset: int = 0) -> bytes:
        """The content of a regular file in the machine from `offset` on.

        Raises VtaxError when the file has more than `limit_bytes`.
        """
        content = bytearray()
        while True:
            chunk, _, ended = self._pull_chunk(path, offset + len(content), CHUNK_BYTES)
            content += chunk
            if len(content) > limit_bytes:
                raise VtaxError(f"{path} in the machine is larger than {limit_bytes} bytes")
            if ended or not chunk:
                return bytes(content)

    def tail(self, path: str, size: int) -> bytes:
        """The last `size` bytes of a file in the machine."""
        _, whole, _ = self._pull_chunk(path, 0, 1)
        return self.pull(path, limit_bytes=2 * size, offset=max(0, whole - size))

    def request(
        self,
        op: str,
        patience_s: float,
        *,
        watch: Callable[[], float] | None = None,
        span: Span | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Send a request of crates/agent/PROTOCOL.md and wait for its answer.

        `watch` is called meanwhile, and returns after how many seconds to call it again; `span` is
        as in `Channel`. Raises AgentError when the agent refuses, MachineLostError once the machine
        is lost.
        """
        if self._gone is not None:
            raise type(self._gone)(self._gone.message, self._gone.remedy)
        self.busy = True
        if self._nudge_s is not None:
            watch = self._nudging(self._nudge_s, watch)
        try:
            answer = self._channel.request(op, patience_s, watch=watch, span=span, **fields)
        except AgentError:
            self.busy = False
            raise
        except OutputLimitError as error:
            self._lost("is ended")
            self._gone = MachineLostError(error.message, error.remedy)
            raise self._gone from None
        except ChannelTimeoutError:
            self._raise_lost(f"hung: no answer for {patience_s:.0f} s")
        except ChannelClosedError:
            self._raise_lost("died")
        except NoFrameError as error:
            self._raise_lost(f"is not understood: {error.message}")
        except ForgedAnswerError as error:
            lost = self._lost(f"is not believed: {error.message}")
            self._gone = NotBelievedError(lost.message, lost.remedy)
            raise self._gone from None
        self.busy = False
        return answer

    def list_files(self, path: str) -> dict[str, int]:
        """The sizes in bytes of the regular files in a folder of the machine, by name.

        Raises VtaxError when the agent refuses, or answers in another form.
        """
        files = self.request("list", REQUEST_TIMEOUT_S, path=path).get("files")
        if not isinstance(files, dict) or not all(isinstance(s, int) for s in files.values()):
            raise VtaxError(f"the machine's answer is not of this version: {str(files)[:80]}")
        return files

    def renew(self) -> None:
        """Renew the agent's lease; any thread may, at any time."""
        self._channel.renew()

    def close(self) -> None:
        self._channel.close()

    def _printed(self) -> str:
        lines = [line.strip() for line in plain_text(bytes(self._channel.noise)).splitlines()]
        said = " | ".join(filter(None, lines))
        return f", after it printed {said[-SHOWN_NOISE:]!r}" if said else ""

    def _nudging(self, every_s: float, watch: Callable[[], float] | None) -> Callable[[], float]:
        due = time.monotonic() + every_s

        def look() -> float:
            nonlocal due
            pause = math.inf if watch is None else watch()
            if (now := time.monotonic()) >= due:
                self.renew()
                due = now + every_s
            return min(pause, due - now)

        return look

    def _raise_lost(self, what: str) -> NoReturn:
        self._gone = self._lost(what)
        raise self._gone from None

    def _pull_chunk(self, path: str, offset: int, limit: int) -> tuple[bytes, int, bool]:
        """(bytes, the file's size, whether these bytes are the file's last)."""
        answer = self.request("pull", REQUEST_TIMEOUT_S, path=path, offset=offset, limit=limit)
        data, size, ended = (answer.get(key) for key in ("data", "size", "eof"))
        if not (isinstance(data, str) and isinstance(size, int) and isinstance(ended, bool)):
            raise VtaxError(f"the machine's answer is not of this version: {str(answer)[:80]}")
        try:
            chunk = base64.b64decode(data, validate=True)
        except binascii.Error:
            raise VtaxError(f"the machine's answer for {path} is not base64") from None
        if len(chunk) > limit:
            raise VtaxError(f"the machine sent more of {path} than it was asked for")
        return chunk, size, ended
