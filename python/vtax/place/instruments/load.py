"""A load on a machine's link: the client at the other end runs while the machine waits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.core.runner.repetition import Repetition
from vtax.environments import sandbox
from vtax.environments.base import MachineLike
from vtax.environments.capabilities import Capability, Files, Guests, Link, LinkCounters
from vtax.environments.machine import spawn
from vtax.environments.machine_command import MachineCommand
from vtax.workloads.base import Metric, tail
from vtax.workloads.loads.base import Load, LoadResult
from vtax.workloads.outcomes import STDOUT, require_success

SATURATED_PERCENT = 90.0
"""Share of one CPU from which a client counts as saturated: every client has one thread."""
CLIENT_GRACE_S = 30.0
"""Time beyond the load's duration after which a client that does not end is given up."""

_TIMED = '"$@"; code=$?; times >&2; exit "$code"'
"""Prints times: the box around a client does not pass them on; bash prints its own and its
child's."""
_TIMES = re.compile(r"(\d{1,6})m(\d{1,2}\.\d{3})s (\d{1,6})m(\d{1,2}\.\d{3})s")


@dataclass(frozen=True, slots=True)
class Loading:
    """Throughput and latency of a load, what passed the link, and the client's own CPU time.

    Where the machine is several guests, each has a client: their throughputs are added, and the
    latency is that of the slowest guest.
    """

    name: ClassVar[str] = "load"

    load: Load
    seconds: int
    cpus: Sequence[int]
    """The CPUs of this host that the client is kept on."""

    @property
    def needs(self) -> type[Capability]:
        return Link if self.load.server else Files

    @contextmanager
    def around(self, repetition: Repetition) -> Iterator[None]:
        link = repetition.machine.offer(Link)
        lines = self._clients(link) if link else []
        if link is None or not lines:
            yield
            for finished in repetition.finished:
                require_success(self.load.name, finished.outcome, repetition.exchange)
            repetition.metrics += _of_load(self.load.read(repetition.exchange.read_text(STDOUT)))
            return
        before = link.counters()
        timed = [link.client(["bash", "-c", _TIMED, "bash", *line]) for line in lines]
        with ExitStack() as held:
            clients = [
                held.enter_context(_Client(self.load.name, sandbox.pinned(self.cpus, line)))
                for line in timed
            ]
            yield
            ended = [each.ended(self.seconds + CLIENT_GRACE_S) for each in clients]
        after, cpu_s = link.counters(), sum(used for _, used in ended)
        repetition.metrics += _of_load(_together([self.load.read(said) for said, _ in ended]))
        repetition.metrics += _of_link(before, after, link.rate_bits, self.seconds)
        repetition.metrics += [
            Metric("client_cpu_s", "s", "lower", cpu_s),
            Metric("client_cpu_percent", "%", "lower", 100 * cpu_s / self.seconds),
        ]

    def _clients(self, link: Link) -> list[Sequence[str]]:
        """The command line of each guest's client; none where the work is in the machine."""
        found = [
            self.load.client(address, link.rate_bits, self.seconds)
            for address in (link.address, *link.others)
        ]
        return [line for line in found if line is not None]


def serve(
    load: Load, machine: MachineLike, work: Path, folder: str, variables: Mapping[str, str]
) -> None:
    """Start the load's server in the machine, if the load has one, and leave it listening; in all
    of its guests, if it is several.

    `folder`: a new one below `work`, for its files. Raises VtaxError when the server does not
    start.
    """
    if (server := load.server) is None:
        return
    exchange = Exchange(work, folder)
    exchange.create(server.files)
    what = server.argv, variables, folder, server.timeout_s
    if guests := machine.offer(Guests):
        finished = guests.run(MachineCommand(*what, leave=True))
    else:
        finished = [machine.run(*what, leave=True)]
    for number, done in enumerate(finished):
        own = Exchange(work, f"{folder}-{number}") if guests else exchange
        require_success(f"load {load.name}: its server", done.outcome, own)


def is_saturated(metrics: Sequence[Metric]) -> bool:
    """Whether the client had no CPU time left, so that the client was the limit and not the
    service."""
    found = (each.value for each in metrics if each.name == "client_cpu_percent")
    return any(value > SATURATED_PERCENT for value in found)


class _Client:
    """A running client, which ends with the block."""

    def __init__(self, load: str, argv: Sequence[str]) -> None:
        self._name = f"load {load}: its client"
        self._process = spawn(argv, (), stderr=subprocess.PIPE)

    def ended(self, timeout_s: float) -> tuple[str, float]:
        """The client's output, and its user and system time in seconds.

        Raises VtaxError when the client failed, or did not end in time.
        """
        try:
            streams = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise VtaxError(f"{self._name} did not end within {timeout_s:.0f} s") from None
        stdout, stderr = (each.decode(errors="replace") for each in streams)
        said, _, times = stderr.rstrip().rpartition("\n")
        used = _TIMES.fullmatch(times)
        if (code := self._process.returncode) != 0 or used is None:
            reason = tail(said or stdout)[:200] or "it says nothing"
            raise VtaxError(f"{self._name} ended with exit code {code}: {reason}")
        minutes, seconds = int(used[1]) + int(used[3]), float(used[2]) + float(used[4])
        return stdout, 60 * minutes + seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            # The client is the first process of a session: end the whole session.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


def _together(found: Sequence[LoadResult]) -> LoadResult:
    """Results of clients that ran at once, as one."""
    first, *others = found
    if not others:
        return first
    return replace(
        first,
        throughput=sum(each.throughput for each in found),
        percentiles={
            percent: max(each.percentiles[percent] for each in found)
            for percent in first.percentiles
        },
        requests=_sum([each.requests for each in found]),
        packets=_sum([each.packets for each in found]),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(counts) else None


def _of_load(found: LoadResult) -> list[Metric]:
    metrics = [Metric("throughput", found.unit, found.better, found.throughput)]
    metrics += [
        Metric(f"latency_p{percent}_s", "s", "lower", value)
        for percent, value in found.percentiles.items()
    ]
    counted = {"requests": found.requests, "packets": found.packets}
    return metrics + [
        Metric(name, "1", "higher", float(count))
        for name, count in counted.items()
        if count is not None
    ]


def _of_link(
    before: LinkCounters, after: LinkCounters, rate_bits: int, seconds: float
) -> list[Metric]:
    """What passed in each direction, seen from the machine; the percentage is of what the fuller
    direction can carry in `seconds`, the time for which a client works."""
    metrics = []
    bits = 0
    for way in ("sent", "received"):
        old, new = getattr(before, way), getattr(after, way)
        passed = new.bytes - old.bytes
        bits = max(bits, 8 * passed)
        metrics += [
            Metric(f"link_bytes_{way}", "B", "higher", float(passed)),
            Metric(f"link_packets_{way}", "1", "higher", float(new.packets - old.packets)),
            Metric(f"link_drops_{way}", "1", "lower", float(new.drops - old.drops)),
        ]
    share = 100 * bits / (rate_bits * seconds)
    return [*metrics, Metric("link_percent", "%", "higher", share)]
