"""Processes that tests start, wait for and end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """A process that ends with the test, even if the test fails, and so does all that it
    started."""
    try:
        yield process
    finally:
        started = descendants(process.pid)
        process.kill()
        process.wait()
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def ended_while_it_saves(
    argv: Sequence[str], runs: Path, environment: Mapping[str, str], number: int
) -> Iterator[subprocess.Popen[bytes]]:
    """A `vtax compare` that has saved some samples in `runs`; on leaving the block it gets the
    signal."""
    process = subprocess.Popen(
        argv,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert eventually(
            lambda: any(p.stat().st_size > 2000 for p in runs.glob("*/samples.jsonl"))
        )
        yield process
    finally:
        process.send_signal(number)
        process.wait(60)


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in path.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def eventually(condition: Callable[[], object], within_s: float = 10) -> bool:
    """Whether the condition becomes true in time; a busy machine is slow, so most waits are
    generous."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def processes_naming(text: str) -> list[str]:
    """Command lines of running processes that contain `text`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line.strip())
    return found
