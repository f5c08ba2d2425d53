"""Loads: their command lines, and what is read from the output of real clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vtax.core.checks.host import Host
from vtax.core.checks.model import State
from vtax.core.errors import MisuseError, VtaxError
from vtax.workloads.loads import ports
from vtax.workloads.loads.base import LONGEST_OUTPUT, LoadResult
from vtax.workloads.loads.disk import disk_loads
from vtax.workloads.loads.registry import LOADS, OPTIONAL, PACKAGES, LoadPrograms, check, named
from vtax.workloads.variables import DISK

DATA = Path(__file__).parent / "data/loads"
DISKS = {each.name for each in disk_loads()}
SYSBENCH = 2511.70 + 1674.14 + 168.60
"""Operations per second in the recorded output, by hand."""
RECORDED = {
    "http": "wrk.txt",
    "ab": "ab.txt",
    "tcp": "tcp.json",
    "tcp-in": "tcp-in.json",
    "udp": "udp.json",
    "disk": "fio.json",
    "dbench": "dbench.txt",
    "sysbench": "sysbench.txt",
    "netperf-tcp": "netperf-tcp.txt",
    "netperf-udp": "netperf-udp.txt",
    "netperf-rr": "netperf-rr.txt",
}


def recorded(name: str) -> str:
    return (DATA / name).read_text()


def read(name: str) -> LoadResult:
    return LOADS[name].read(recorded(RECORDED[name]))


def test_wrk() -> None:
    found = read("http")
    assert (found.throughput, found.unit, found.requests) == (2291.54, "requests/s", 2388)
    assert found.percentiles == pytest.approx({50: 99e-6, 90: 10.14e-3, 99: 26.61e-3})


def test_ab_has_percentiles_below_a_millisecond() -> None:
    found = read("ab")
    assert (found.throughput, found.requests) == (1790.52, 1794)
    assert found.percentiles[50] == pytest.approx(2.481e-3)
    assert sorted(found.percentiles) == [50, 90, 99]


def test_iperf3() -> None:
    assert read("tcp").throughput == pytest.approx(1768944718.4)
    assert read("tcp-in").throughput == pytest.approx(1560112904.0)
    udp = read("udp")
    assert udp.packets == 28058 - 22993
    assert udp.throughput == pytest.approx(7445550 * 8 / 1.000699, rel=1e-6)


def test_netperf() -> None:
    assert read("netperf-tcp") == LoadResult(18002.90e6, "bit/s")
    assert read("netperf-udp") == LoadResult(906.85e6, "bit/s", packets=77120)
    found = read("netperf-rr")
    assert (found.throughput, found.unit, found.requests) == (57038.30, "requests/s", 57048)
    assert found.percentiles == pytest.approx({50: 15e-6, 90: 18e-6, 99: 45e-6})


def test_fio() -> None:
    found = read("disk")
    assert found.unit == "operations/s" and found.throughput > 3684.89
    assert found.percentiles[99] == pytest.approx(4112384e-9)
    assert LOADS["disk"].read("fio: a warning\n" + recorded("fio.json")) == found


def test_dbench_and_sysbench() -> None:
    assert read("dbench") == LoadResult(71.7723, "MB/s")
    found = read("sysbench")
    # Reads, writes and fsyncs.
    assert (found.throughput, found.unit) == (SYSBENCH, "operations/s")


def test_rounds_are_counted_between_the_first_and_the_last() -> None:
    times = "1700000000.000000000\n1700000000.500000000\n1700000002.000000000\n"
    found = LOADS["gzip"].read(times)
    assert (found.throughput, found.unit, found.requests) == (1.0, "rounds/s", 2)


@pytest.mark.parametrize(
    ("load", "text", "said"),
    [
        ("http", recorded("wrk-404.txt"), "Non-2xx or 3xx responses: 5365"),
        ("http", "", "nothing at all"),
        ("http", recorded("wrk.txt").replace("99.00us", "9.9.0us"), "no valid latency"),
        ("ab", recorded("ab-404.txt"), "8989 of 8989 requests failed"),
        ("tcp", recorded("refused.json"), "Connection refused"),
        ("udp", recorded("tcp.json"), "no valid end.sum_received.packets"),
        ("tcp", "{}", "it has no end"),
        ("tcp", "[" * 5000, "printed no result"),
        ("disk", '{"jobs": []}', "printed no result"),
        ("disk", '{"jobs": [{"error": 28}]}', "error 28"),
        ("netperf-rr", recorded("netperf-tcp.txt"), "printed no result"),
        ("netperf-tcp", "establish control: are you sure", "printed no result: establish"),
        ("netperf-tcp", "THROUGHPUT=0.00\nTHROUGHPUT_UNITS=10^6bits/s", "nothing was transferred"),
        ("netperf-udp", recorded("netperf-tcp.txt"), "no valid REMOTE_RECV_CALLS"),
        ("dbench", "Throughput fast", "printed no result"),
        ("dbench", "Throughput 1.2.3 MB/sec", "the throughput is nan"),
        ("dbench", "Throughput 0.0 MB/sec", "nothing was transferred"),
        ("sysbench", "FATAL: Cannot open file", "printed no result: FATAL"),
        ("sysbench", "    reads/s:   1.0\n", "printed no result"),
        ("gzip", "1700000000.000000000\n", "printed no result"),
        ("gzip", "1.000000000 1.000000000", "nothing was transferred"),
        ("http", "x" * (LONGEST_OUTPUT + 1), "more than"),
    ],
)
def test_what_is_no_result_is_one_error(load: str, text: str, said: str) -> None:
    with pytest.raises(VtaxError, match=said):
        LOADS[load].read(text)


def damaged(names: list[str]) -> st.SearchStrategy[str]:
    """Recorded outputs in which a piece is replaced."""

    def cut(parts: tuple[str, int, int, str]) -> str:
        text, at, length, inserted = parts
        return text[:at] + inserted + text[at + length :]

    texts = st.sampled_from([recorded(name) for name in names])
    numbers = st.integers(0, 3000)
    return st.tuples(texts, numbers, st.integers(0, 200), st.text(max_size=8)).map(cut)


@settings(deadline=None)
@given(st.sampled_from(list(LOADS)), st.one_of(st.text(), damaged(list(RECORDED.values()))))
@example("http", recorded("wrk.txt").replace("2291.54", "0.00"))
@example("disk", '{"jobs": [null]}')
@example("tcp", '{"end": {"sum_received": {"bits_per_second": true}}}')
def test_any_output_is_a_result_or_one_error(name: str, text: str) -> None:
    try:
        found = LOADS[name].read(text)
    except VtaxError as error:
        assert "\n" not in str(error)
    else:
        assert found.throughput > 0
        assert all(value >= 0 for value in found.percentiles.values())


def test_command_lines_of_clients() -> None:
    lines = {
        name: " ".join(load.client("10.213.1.2", 10**9, 3) or ()) for name, load in LOADS.items()
    }
    page = "http://10.213.1.2:8080/page.html"
    assert lines["http"] == f"wrk -t 1 -c 1 -d 3s --latency {page}"
    assert "-c 10 " in lines["http10"] and "-k" in lines["ab"] and page in lines["ab"]
    assert lines["tcp"].startswith("bash -c ")
    assert (
        lines["tcp"].partition(" bash ")[2]
        == "iperf3 --client 10.213.1.2 --port 5201 --json --time 3 --reverse"
    )
    assert "--reverse" not in lines["tcp-in"]
    assert "--udp --bitrate 1050000000 --length 1470" in lines["udp"]
    assert lines["netperf-udp"] == (
        "netperf -H 10.213.1.2,4 -p 12865 -t UDP_STREAM -l 3 -P 0 -f m -- -P ,12866 -m 1470 -R 1 "
        "-k REMOTE_RECV_THROUGHPUT,REMOTE_RECV_CALLS,THROUGHPUT_UNITS"
    )
    assert {name for name, line in lines.items() if not line} == {
        *DISKS, "dgemm", "stream", "gzip",
    }  # fmt: skip


def test_a_load_has_a_server_and_a_client_or_neither() -> None:
    for load in LOADS.values():
        linked = load.client("10.213.1.2", 10**9, 1) is not None
        assert linked == (load.server is not None) == (load.ready in ports.ALL)
        assert linked == (load.command(7).argv == ("sleep", "7"))
        assert (DISK in load.command(7).argv) == (load.name in DISKS)
        assert load.about and load.needs


def test_names() -> None:
    assert [each.name for each in named(["tcp", "http", "tcp"])] == ["tcp", "http"]
    with pytest.raises(MisuseError, match=r"unknown load 'htpp'; did you mean 'http'"):
        named(["htpp"])
    with pytest.raises(MisuseError, match="no load is named"):
        named([])


def without(*programs: str) -> Callable[[str], str | None]:
    return lambda name: None if name in programs else f"/usr/bin/{name}"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check(LOADS["gzip"])
    found = LoadPrograms().find(Host(which=without("wrk", "fio")))
    assert found.state is State.DEGRADED
    assert found.detail == "no wrk, fio: no load http, http10, disk"
    assert found.remedy == "apt-get install wrk fio"
    assert LoadPrograms().find(Host(which=without(*PACKAGES))).state is State.MISSING
    # A program that not every distribution has may be missing.
    some, all_ = (LoadPrograms().find(Host(which=without(*each))) for each in (OPTIONAL, ()))
    assert (some.state, all_.detail) == (State.OK, ", ".join([some.detail, *OPTIONAL]))
    assert "netperf" not in some.detail
    host = Host(which=without("nginx"))
    monkeypatch.setattr("vtax.workloads.loads.registry.Host", lambda: host)
    with pytest.raises(VtaxError, match=r"load ab: nginx is not installed; apt-get .* nginx-light"):
        check(LOADS["ab"])
