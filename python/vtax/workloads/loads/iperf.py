"""Bulk transfer: iperf3, over TCP in both directions, and datagrams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vtax.core.errors import VtaxError
from vtax.workloads.base import Command
from vtax.workloads.loads import ports
from vtax.workloads.loads.base import Load, LoadResult, json_object, number, positive, serving

DATAGRAM_BYTES = 1470
"""The largest datagram that fits a frame of 1,500 bytes with room for tunnels; iperf's old
default."""
ABOVE_RATE = 1.05
"""Datagrams are sent a little faster than the link lets pass, so that the link is never idle."""

_PATIENT = """\
for try in $(seq 50); do
    code=0; said=$("$@") || code=$?
    case $said in *"busy running a test"*) sleep 0.2 ;; *) break ;; esac
done
printf '%s\\n' "$said"; exit "$code"
"""
"""A server serves one client at a time, and on a slow machine it may still serve the one before."""


class Transfer(Load):
    """What all transfers have in common."""

    needs: ClassVar[tuple[str, ...]] = ("iperf3",)
    ready = ports.IPERF

    @property
    def server(self) -> Command:
        return serving(ports.IPERF, ("iperf3", "--server", "-4", "--port", str(ports.IPERF)))

    def _line(self, address: str, seconds: int, *options: str) -> Sequence[str]:
        line = [
            "bash",
            "-c",
            _PATIENT,
            "bash",
            "iperf3",
            "--client",
            address,
            "--port",
            str(ports.IPERF),
            "--json",
        ]
        return [*line, "--time", str(seconds), *options]


@dataclass(frozen=True)
class Tcp(Transfer):
    """One TCP stream."""

    name: str
    about: str
    inward: bool
    """Whether the machine receives."""

    def client(self, address: str, rate_bits: int, seconds: int) -> Sequence[str]:
        return self._line(address, seconds, *([] if self.inward else ["--reverse"]))

    def read(self, stdout: str) -> LoadResult:
        found = _ended(stdout)
        rate = number("iperf3", found, "end", "sum_received", "bits_per_second")
        return LoadResult(positive("iperf3", "the rate", rate), "bit/s")


@dataclass(frozen=True)
class Udp(Transfer):
    """Datagrams from the machine; what arrives counts."""

    name: str
    about: str

    def client(self, address: str, rate_bits: int, seconds: int) -> Sequence[str]:
        offered = str(round(rate_bits * ABOVE_RATE))
        options = ["--reverse", "--udp", "--bitrate", offered, "--length", str(DATAGRAM_BYTES)]
        return self._line(address, seconds, *options)

    def read(self, stdout: str) -> LoadResult:
        found = _ended(stdout)
        # Before 3.11 there is only `sum`, whose rate is what was sent.
        summary = "sum_received" if "sum_received" in found["end"] else "sum"
        ended = [number("iperf3", found, "end", summary, each) for each in ("packets", "seconds")]
        lost = number("iperf3", found, "end", summary, "lost_packets")
        packets, seconds = max(0.0, ended[0] - lost), ended[1]
        rate = packets * 8 * DATAGRAM_BYTES / positive("iperf3", "the duration", seconds)
        return LoadResult(positive("iperf3", "the rate", rate), "bit/s", packets=int(packets))


def _ended(stdout: str) -> dict[str, Any]:
    found = json_object("iperf3", stdout)
    if isinstance(error := found.get("error"), str):
        raise VtaxError(f"iperf3: {error[:200]}")
    if not isinstance(found.get("end"), dict):
        raise VtaxError("iperf3 printed no result: it has no end")
    return found
