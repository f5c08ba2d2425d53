"""netperf's tests, where it is installed: its licence keeps it out of Debian's main part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from vtax.workloads.base import Command
from vtax.workloads.loads import ports
from vtax.workloads.loads.base import (
    PERCENTILES,
    Load,
    LoadResult,
    bounded,
    number,
    positive,
    serving,
    unreadable,
)

DATAGRAM_BYTES = 1470
"""The same size as in the load `udp`."""
_MEGABIT = 1e6
_MICROSECOND = 1e-6
_UNIT = "THROUGHPUT_UNITS"


class Netperf(Load):
    """What netperf's tests have in common: netserver in the machine, netperf at the other end."""

    needs: ClassVar[tuple[str, ...]] = ("netperf",)
    ready = ports.NETPERF

    @property
    def server(self) -> Command:
        line = ("netserver", "-D", "-4", "-p", str(ports.NETPERF))
        return serving(ports.NETPERF, line)

    def _line(
        self,
        test: str,
        unit: str,
        address: str,
        seconds: int,
        selected: Sequence[str],
        *options: str,
    ) -> Sequence[str]:
        line = ["netperf", "-H", f"{address},4", "-p", str(ports.NETPERF), "-t", test]
        line += ["-l", str(seconds), "-P", "0", "-f", unit, "--"]
        # Data go over a fixed port too: a user network forwards no others.
        keys = ",".join([*selected, _UNIT])
        return [*line, "-P", f",{ports.NETPERF_DATA}", *options, "-k", keys]


@dataclass(frozen=True)
class Stream(Netperf):
    """One stream to the machine."""

    name: str
    about: str

    def client(self, address: str, rate_bits: int, seconds: int) -> Sequence[str]:
        return self._line("TCP_STREAM", "m", address, seconds, ["THROUGHPUT"])

    def read(self, stdout: str) -> LoadResult:
        return LoadResult(_rate(_selected(stdout, "10^6bits/s"), "THROUGHPUT"), "bit/s")


@dataclass(frozen=True)
class Datagrams(Netperf):
    """Datagrams to the machine, as fast as the client sends; what arrives counts."""

    name: str
    about: str

    def client(self, address: str, rate_bits: int, seconds: int) -> Sequence[str]:
        selected = ["REMOTE_RECV_THROUGHPUT", "REMOTE_RECV_CALLS"]
        # By default it sends datagrams to neighbours alone, and the machine is behind a route.
        options = ("-m", str(DATAGRAM_BYTES), "-R", "1")
        return self._line("UDP_STREAM", "m", address, seconds, selected, *options)

    def read(self, stdout: str) -> LoadResult:
        found = _selected(stdout, "10^6bits/s")
        packets = number("netperf", found, "REMOTE_RECV_CALLS")
        rate = _rate(found, "REMOTE_RECV_THROUGHPUT")
        return LoadResult(rate, "bit/s", packets=int(packets))


@dataclass(frozen=True)
class RequestResponse(Netperf):
    """A byte to the machine and one back, one after the other."""

    name: str
    about: str

    def client(self, address: str, rate_bits: int, seconds: int) -> Sequence[str]:
        latencies = [f"P{percent}_LATENCY" for percent in PERCENTILES]
        selected = ["THROUGHPUT", "LOCAL_RECV_CALLS", *latencies]
        return self._line("TCP_RR", "x", address, seconds, selected)

    def read(self, stdout: str) -> LoadResult:
        found = _selected(stdout, "Trans/s")
        percentiles = {
            percent: number("netperf", found, f"P{percent}_LATENCY") * _MICROSECOND
            for percent in PERCENTILES
        }
        rate = positive("netperf", "the rate", number("netperf", found, "THROUGHPUT"))
        requests = int(number("netperf", found, "LOCAL_RECV_CALLS"))
        return LoadResult(rate, "requests/s", percentiles=percentiles, requests=requests)


def _rate(found: Mapping[str, float], key: str) -> float:
    """Bits per second; raises VtaxError when nothing arrived."""
    return positive("netperf", "the rate", number("netperf", found, key) * _MEGABIT)


def _selected(stdout: str, unit: str) -> dict[str, float]:
    """Values by name. Raises VtaxError when the throughput has another unit."""
    lines = [line.partition("=") for line in bounded("netperf", stdout).splitlines()]
    words = {name: value for name, equals, value in lines if equals}
    if words.pop(_UNIT, None) != unit:
        raise unreadable("netperf", stdout)
    try:
        return {name: float(value) for name, value in words.items()}
    except ValueError:
        raise unreadable("netperf", stdout) from None
