"""The worker of bench/record.py: a process that does amounts of work on one CPU, when asked."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "bench-work"
FIRST_AMOUNT = {
    "cpu": 10_000_000,
    "memory": 100_000,
    "syscall": 20_000,
    "guest-port": 5_000,
    "guest-cpuid": 65_536,
    "guest-count": 65_536,
}
"""Amounts that take some milliseconds, from which the amount of a run is derived."""
SPIN = "spin"
SETTLE_S = 0.2
"""Duration of work before the first run that counts: caches, clock frequency, the first faults."""


class WorkError(Exception):
    """The worker cannot do this work here; the text says why."""


@dataclass(frozen=True, slots=True)
class Done:
    """One run of the work."""

    done: int
    """Amount of work, in the unit that the worker's help names."""
    wall_ns: int
    cpu_ns: int
    """CPU time of its thread, including interrupts where the kernel does not tell them apart."""
    gaps: dict[str, float]
    """Gaps that a spinning worker saw; otherwise empty."""


def build() -> Path:
    """The worker's program, built as a release."""
    argv = ["cargo", "build", "--quiet", "--locked", "--release"]
    argv += ["-p", "vtax-workloads", "--example", PROGRAM, "--message-format", "json"]
    found = subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in found.stdout.splitlines()]
    programs = [message["executable"] for message in messages if message.get("executable")]
    return Path(programs[-1])


class Worker:
    """The worker's process; a context manager."""

    def __init__(self, program: Path, kind: str, cpu: int) -> None:
        argv = ["taskset", "--cpu-list", str(cpu), str(program), kind]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """The worker's process number: taskset becomes the worker."""
        return self._process.pid

    def run(self, amount: int) -> Done:
        process = self._process
        assert process.stdin and process.stdout and process.stderr
        try:
            process.stdin.write(f"{amount}\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = process.wait(timeout=10)
            reason = process.stderr.read().strip() or f"the worker ended with {code}"
            raise WorkError(reason.removeprefix(f"{PROGRAM}: "))
        answer: dict[str, Any] = json.loads(line)
        return Done(answer.pop("done"), answer.pop("wall_ns"), answer.pop("cpu_ns"), gaps=answer)

    def amount(self, kind: str, seconds: float) -> int:
        """How much work takes this many seconds here, with nothing else running."""
        if kind == SPIN:
            return max(1, round(seconds * 1e3))
        amount = FIRST_AMOUNT[kind]
        while (done := self.run(amount)).wall_ns < SETTLE_S * 1e9:
            amount *= 2
        return max(1, round(done.done * seconds * 1e9 / done.wall_ns))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.close()
            self._process.wait(timeout=5)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
        self._process.wait()
