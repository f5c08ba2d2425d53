"""Traces that were made to hurt: the answer is a result or one line, in bounded memory and time.

Each trace is simulated under every mode by a process whose address space and processor time are
limited.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vtrace
from command_line import SOURCE, one_line, vtax
from vtrace import MAP, PROTECT, SPAWN, SYSTEM_CALLS

MOST_BYTES = 3 << 29
"""1.5 GiB: what the limits allow to live under all modes, and Python with polars."""
CPU_SECONDS = 120

WORKER = f"""
import resource, sys
import vtax.paging
from vtax.core.errors import VtaxError

resource.setrlimit(resource.RLIMIT_AS, ({MOST_BYTES}, {MOST_BYTES}))
for line in sys.stdin:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + {CPU_SECONDS}
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    try:
        vtax.paging.simulate(line.rstrip(), modes="all", window=10_000).windows
        print("result", flush=True)
    except VtaxError as error:
        print(repr(str(error)), flush=True)
"""


class Worker:
    """The limited process; a new one where a trace ended it."""

    def __init__(self) -> None:
        self._process = self._start()

    def simulate(self, path: Path) -> str:
        """The result of a simulation: "result", or the message quoted."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            code = self._process.wait()
            self._process = self._start()
            pytest.fail(f"the process ended with {code}")
        return answer.rstrip()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    @staticmethod
    def _start() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env={"PYTHONPATH": str(SOURCE), "POLARS_MAX_THREADS": "1"},
            stdin=pipe,
            stdout=pipe,
            text=True,
        )


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.end()


def numbers(most: int) -> st.SearchStrategy[int]:
    """Small numbers, numbers at the edges, and any number."""
    edges = st.integers(0, 64).map(lambda bits: min((1 << bits) - 1, most))
    return st.integers(0, min(most, 8)) | edges | st.integers(0, most)


FIELDS = {**vtrace.ASKED, **vtrace.OPERATIONS}


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Records of one kind, some of them repeated many times."""
    tags = draw(st.sampled_from([list(vtrace.ASKED), list(vtrace.OPERATIONS)]))
    found = [b""]
    for _ in range(draw(st.integers(1, 12))):
        tag = draw(st.sampled_from([*tags, 1]))
        if tag == 1:
            pages = draw(st.lists(numbers(1 << 36), max_size=4))
            step = draw(st.sampled_from([1, 512, 1 << 18]))
            addresses = [page + step * turn << 12 for page in pages for turn in range(1000)]
            one = vtrace.block(draw(numbers(1 << 40)), addresses)
        else:
            aligned = draw(st.sampled_from([0, 12, 21]))
            most = (1 << 32) - 1
            fields = [draw(numbers(most)) << aligned for _ in range(FIELDS[tag])]
            one = vtrace.record(tag, *fields)
        times = draw(st.sampled_from([1, 1, 1, 2, 1000, 100_000]))
        room = (1 << 20) - sum(map(len, found))
        found.append(one * min(times, room // len(one)))
    return b"".join(found)


counter = itertools.count()


# An example may take seconds on a busy machine: the limit is the worker's processor time.
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(payload=payloads(), memory=numbers(1 << 44))
def test_any_records_give_a_result_or_one_line(
    payload: bytes, memory: int, worker: Worker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"hostile-{next(counter)}.vtrace"
    header = b'{"map_on_touch": true, "memory_bytes": %d}' % memory
    path.write_bytes(vtrace.trace([payload], (0, 0), header))
    answer = worker.simulate(path)
    path.unlink()
    assert answer == "result" or "\\n" not in answer, answer


PAGES = 1 << 18


def protects() -> bytes:
    one = vtrace.record(PROTECT, 0, PAGES << 12, 0) + vtrace.record(PROTECT, 0, PAGES << 12, 1)
    return one * ((1 << 20) // len(one))


def touched(pages: range) -> list[bytes]:
    return [vtrace.block(0, [page << 12 for page in pages[at : at + 4096]])
            for at in range(0, len(pages), 4096)]  # fmt: skip


HOSTILE = {
    "processes": ([b"".join(vtrace.record(SPAWN, number) for number in range(1, 150_000))], 0),
    "page tables": (touched(range(0, 70_000 << 9, 1 << 9)), 70_000),
    "choose a longer window": ([vtrace.block(10_000, []) * 170_000], 0),
    "more work than its length": (
        [vtrace.record(MAP, 0, PAGES << 12, 0), *touched(range(PAGES)), protects()],
        PAGES,
    ),
}


@pytest.mark.parametrize("limit", HOSTILE)
def test_the_limit_is_named(limit: str, worker: Worker, tmp_path: Path) -> None:
    payloads, references = HOSTILE[limit]
    path = tmp_path / "hostile.vtrace"
    path.write_bytes(vtrace.trace(payloads, (references, 0), b'{"map_on_touch": true}'))
    assert limit in worker.simulate(path)


def test_a_count_of_four_billion_is_simulated(tmp_path: Path) -> None:
    """A trace of 76 bytes that once took 12.7 GB."""
    payload = vtrace.record(SYSTEM_CALLS, (1 << 32) - 1)
    path = tmp_path / "calls.vtrace"
    path.write_bytes(vtrace.trace([payload, vtrace.block(5, [])], (0, 5)))
    done = vtax("paging", "simulate", str(path), "--isolation", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_a_limit_is_one_line_of_the_command(tmp_path: Path) -> None:
    payloads, _ = HOSTILE["processes"]
    path = tmp_path / "spawns.vtrace"
    path.write_bytes(vtrace.trace(payloads, (0, 0)))
    done = vtax("paging", "simulate", str(path), "--quiet")
    assert "more than 16384 processes at once" in one_line(done, 1)
