"""What a load is: a server in a machine and a client at the other end, or work in the machine."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.formats.model import Better
from vtax.workloads.base import Command, tail

LONGEST_OUTPUT = 1 << 20
"""In characters; no program here prints as many in a measurement."""
PERCENTILES = (50, 90, 99)
START_TIMEOUT_S = 300.0
"""Four domUs on one emulated CPU need more than 120 s to start theirs together."""
GRACE_S = 60.0
"""Time beyond the duration; an emulated machine takes some seconds to start a program."""

_SERVE = """\
port=$1; shift; PATH="$PATH:/usr/sbin:/sbin"
"$@" </dev/null >/dev/null 2>log & server=$!
for try in $(seq 600); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then exit 0; fi
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
done
cat log >&2; exit 1
"""
"""Starts a server that writes nothing while it serves: what is measured may serve the folder."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of one run of a load."""

    throughput: float
    unit: str
    better: Better = "higher"
    percentiles: Mapping[int, float] = field(default_factory=dict)
    """Latency in seconds by percentile; empty where the client measures none."""
    requests: int | None = None
    """Requests that were answered."""
    packets: int | None = None
    """Datagrams that the client received; None: only the link's counters know."""


class Load(ABC):
    """One load. `seconds` are whole, as the clients take them."""

    name: str
    about: str
    needs: ClassVar[tuple[str, ...]]
    """Programs that this machine must have, and with it guests that see its files."""
    ready: int | None = None
    """The port at which the load's server listens."""

    @property
    def server(self) -> Command | None:
        """The command that leaves a server running in the machine; it ends with code 0 once the
        server listens."""
        return None

    def client(self, address: str, rate_bits: int, seconds: int) -> Sequence[str] | None:
        """The command line at the other end of the link; None: the work is in the machine."""
        return None

    def command(self, seconds: int) -> Command:
        """The command that runs in the machine meanwhile."""
        return Command(("sleep", str(seconds)), timeout_s=seconds + GRACE_S)

    @abstractmethod
    def read(self, stdout: str) -> LoadResult:
        """Read what the client printed or, without a client, the command.

        Raises VtaxError when the text is not the output of a run that succeeded.
        """


def serving(port: int, argv: Sequence[str], files: Mapping[str, bytes] | None = None) -> Command:
    """The command that leaves a server running and ends when its port is open."""
    line = ("bash", "-c", _SERVE, "bash", str(port), *argv)
    return Command(line, files=files or {}, timeout_s=START_TIMEOUT_S)


def bounded(program: str, stdout: str) -> str:
    """The output; raises VtaxError when it is too long to be real."""
    if len(stdout) > LONGEST_OUTPUT:
        raise VtaxError(f"{program} printed more than {LONGEST_OUTPUT} characters")
    return stdout


def unreadable(program: str, stdout: str) -> VtaxError:
    """The error for an output of another form."""
    said = tail(stdout[:LONGEST_OUTPUT])[:200] or "nothing at all"
    return VtaxError(f"{program} printed no result: {said}")


def json_object(program: str, stdout: str) -> dict[str, Any]:
    """The JSON object in the output, after warnings. Raises VtaxError without one."""
    text = bounded(program, stdout)
    try:
        return foreign_json.parse_object(text[text.index("{") :])
    except ValueError:
        raise unreadable(program, stdout) from None


def number(program: str, found: Any, *keys: str) -> float:
    """A finite number, not negative, at a path of keys. Raises VtaxError for anything else."""
    value = found
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    # bool is an int in Python, and no measurement.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise VtaxError(f"{program} reported no valid {'.'.join(keys)}: {value!r:.40}")
    return float(value)


def positive(program: str, what: str, value: float) -> float:
    """The value, if it is above zero; raises VtaxError otherwise: nothing passed in such a run."""
    if not (math.isfinite(value) and value > 0):
        raise VtaxError(f"{program}: {what} is {value:g}: nothing was transferred")
    return value
