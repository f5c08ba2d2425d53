"""HTTP: nginx in the machine serves a page of 8 KiB; wrk or ab fetches it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from vtax.core.errors import VtaxError
from vtax.workloads.base import Command
from vtax.workloads.loads import ports
from vtax.workloads.loads.base import (
    PERCENTILES,
    Load,
    LoadResult,
    bounded,
    positive,
    serving,
    unreadable,
)

PAGE = "page.html"
PAGE_BYTES = 8192
FOLDER = "/tmp/vtax-http"
"""A folder in the machine's own memory or disk: the folder of results is served from outside."""
MOST_REQUESTS = 10_000_000
"""ab stops at 50,000 requests unless it is given a number, and reserves memory for it."""

_CONFIGURATION = f"""\
daemon off;
user root;
pid {FOLDER}/nginx.pid;
error_log stderr crit;
worker_processes 1;
events {{ worker_connections 512; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {FOLDER}/body;
    proxy_temp_path {FOLDER}/proxy;
    fastcgi_temp_path {FOLDER}/fastcgi;
    uwsgi_temp_path {FOLDER}/uwsgi;
    scgi_temp_path {FOLDER}/scgi;
    server {{ listen {ports.HTTP}; root {FOLDER}; }}
}}
"""
_START = 'mkdir -p "$1" && cp "$2" nginx.conf "$1" && exec nginx -p "$1" -c "$1/nginx.conf"'
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_WRK_PERCENTILE = re.compile(r"^ +(\d+)% +([0-9.]{1,12})(us|ms|s|m)$", re.MULTILINE)
_WRK_REQUESTS = re.compile(r"^ +(\d{1,15}) requests in ", re.MULTILINE)
_WRK_RATE = re.compile(r"^Requests/sec: +([0-9]{1,15}\.[0-9]{1,6})$", re.MULTILINE)
_WRK_ERRORS = re.compile(r"^ +(Non-2xx or 3xx responses: .{1,40}|Socket errors: .{1,80})$", re.M)
_AB_NUMBERS = {
    "rate": re.compile(r"^Requests per second: +([0-9]{1,15}\.[0-9]{1,6}) ", re.MULTILINE),
    "requests": re.compile(r"^Complete requests: +(\d{1,15})$", re.MULTILINE),
    "failed": re.compile(r"^(?:Failed requests|Non-2xx responses): +0*([1-9]\d{0,14})$", re.M),
}
_AB_PERCENTILE = re.compile(r"^(\d{1,3}),([0-9]{1,12}\.[0-9]{1,6})$", re.MULTILINE)


class Served(Load):
    """What the loads of both clients have in common."""

    ready = ports.HTTP

    @property
    def server(self) -> Command:
        page = (b"vtax " * PAGE_BYTES)[:PAGE_BYTES]
        files = {PAGE: page, "nginx.conf": _CONFIGURATION.encode()}
        return serving(ports.HTTP, ("sh", "-c", _START, "sh", FOLDER, PAGE), files)


@dataclass(frozen=True)
class Wrk(Served):
    """wrk with one thread; it measures the latency of each request."""

    name: str
    about: str
    connections: int
    needs: ClassVar[tuple[str, ...]] = ("nginx", "wrk")

    def client(self, address: str, rate_bits: int, seconds: int) -> Sequence[str]:
        line = ["wrk", "-t", "1", "-c", str(self.connections), "-d", f"{seconds}s", "--latency"]
        return [*line, f"http://{address}:{ports.HTTP}/{PAGE}"]

    def read(self, stdout: str) -> LoadResult:
        text = bounded("wrk", stdout)
        rate, requests = _WRK_RATE.search(text), _WRK_REQUESTS.search(text)
        if not (rate and requests):
            raise unreadable("wrk", stdout)
        if wrong := _WRK_ERRORS.search(text):
            raise VtaxError(f"wrk: {wrong[1]}")
        found = {
            int(percent): _seconds(value, unit)
            for percent, value, unit in _WRK_PERCENTILE.findall(text)
            if int(percent) in PERCENTILES
        }
        value = positive("wrk", "the rate of requests", float(rate[1]))
        return LoadResult(value, "requests/s", percentiles=found, requests=int(requests[1]))


@dataclass(frozen=True)
class Ab(Served):
    """ApacheBench, the paper's client, with connections that are kept open."""

    name: str
    about: str
    connections: int
    needs: ClassVar[tuple[str, ...]] = ("nginx", "ab")

    def client(self, address: str, rate_bits: int, seconds: int) -> Sequence[str]:
        line = ["ab", "-q", "-k", "-c", str(self.connections), "-t", str(seconds)]
        # After -t, which sets it. Percentiles on standard output are whole milliseconds; in the
        # file they are not.
        line += ["-n", str(MOST_REQUESTS), "-e", "/dev/stdout"]
        return [*line, f"http://{address}:{ports.HTTP}/{PAGE}"]

    def read(self, stdout: str) -> LoadResult:
        text = bounded("ab", stdout)
        found = {name: pattern.search(text) for name, pattern in _AB_NUMBERS.items()}
        rate, requests, failed = found["rate"], found["requests"], found["failed"]
        if not (rate and requests):
            raise unreadable("ab", stdout)
        if failed:
            raise VtaxError(f"ab: {failed[1]} of {requests[1]} requests failed")
        percentiles = {
            int(percent): float(value) * 1e-3
            for percent, value in _AB_PERCENTILE.findall(text)
            if int(percent) in PERCENTILES
        }
        value = positive("ab", "the rate of requests", float(rate[1]))
        return LoadResult(value, "requests/s", percentiles=percentiles, requests=int(requests[1]))


def _seconds(value: str, unit: str) -> float:
    try:
        return float(value) * _UNITS_S[unit]
    except ValueError:
        raise VtaxError(f"wrk reported no valid latency: {value}") from None
