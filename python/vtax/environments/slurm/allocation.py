"""An allocation of Slurm's, which is held for as long as something here uses it.

salloc runs a program that reads a pipe from vtax, and gives the nodes back when that program ends.
So a vtax that ends in any way, also by SIGKILL, leaves no allocation behind. An allocation is asked
for once: when Slurm takes it back, nothing is measured on other nodes, so that no round of a
campaign crosses an allocation.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

from vtax.core import slurm
from vtax.core.errors import VtaxError
from vtax.core.readable import readable
from vtax.environments.console import ConsoleTail

_HOLD = "; ".join(
    [
        'echo "$SLURM_JOB_ID"',
        'scontrol show hostnames "$SLURM_JOB_NODELIST"',
        "echo",
        "read -r _ || sleep 5",
    ]
)
"""The program that salloc runs: it prints the job, its nodes and a blank line, and ends when a line
or the end of its input comes. Without the line vtax was killed: its agents end and clean up by
themselves, before Slurm would kill them."""
_WATCHED = """\
exec 3<&0
"$@" <&3 & job=$!
trap 'kill $job' TERM
{ while kill -0 "$0"; do sleep 2; done; sleep 6; kill $job; } <&- >/dev/null 2>&1 & watch=$!
wait $job; while kill -0 $job 2>/dev/null; do wait $job; done
kill $watch
"""
"""The shell that runs salloc: it ends salloc some time after the process $0, which is vtax. While
salloc waits in the queue, no program of its own would notice vtax's end. A signal ends a `wait`
alone."""
RELEASE_S = 10.0
QUEUE_LOOK_S = 2.0
_PENDING = re.compile(r"Pending job allocation ([0-9]+)")
"""What salloc says when it has to wait."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of Slurm. Environments that ask for the same share an allocation."""

    nodes: int = 1
    partition: str | None = None
    time_s: float | None = None
    exclusive: bool = True
    options: tuple[tuple[str, str], ...] = ()
    """Further options of salloc, by their long names."""

    def line(self) -> list[str]:
        """The command line that holds the allocation."""
        line = ["salloc", "--job-name=vtax", f"--nodes={self.nodes}"]
        if self.partition:
            line += [f"--partition={self.partition}"]
        if self.time_s is not None:
            line += [f"--time={math.ceil(self.time_s / 60)}"]
        if self.exclusive:
            line += ["--exclusive", "--mem=0"]
        line += [f"--{name}={value}" for name, value in self.options]
        return [*line, "/bin/sh", "-c", _HOLD]

    def watched(self) -> list[str]:
        """The command line that holds the allocation no longer than this process lives."""
        return ["/bin/sh", "-c", _WATCHED, str(os.getpid()), *self.line()]


@dataclass(frozen=True, slots=True)
class Granted:
    """An allocation: its job and its nodes, in Slurm's order."""

    job: str
    nodes: tuple[str, ...]


@dataclass(eq=False)
class _Held:
    """The allocation that one `Asked` stands for in this process, and how many use it."""

    users: int = 0
    granted: Granted | None = None
    process: subprocess.Popen[bytes] | None = None
    console: ConsoleTail | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acquire(self, asked: Asked) -> Granted:
        """Wait until Slurm grants it. Raises VtaxError when Slurm refuses, SessionOverError
        when Slurm has taken it back."""
        with self.lock:
            if self.granted is None:
                self.granted = self._ask(asked)
            else:
                slurm.require_running(self.granted.job)
            return self.granted

    def _ask(self, asked: Asked) -> Granted:
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(
                asked.watched(),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=slurm.variables(),
                start_new_session=True,
            )
        except OSError as error:
            raise VtaxError(f"slurm: cannot start salloc: {error.strerror}") from None
        assert self.process.stdout is not None and self.process.stderr is not None
        self.console = ConsoleTail(self.process.stderr)
        try:
            self._wait_in_queue(self.process.stdout)
            lines = []
            while line := self.process.stdout.readline().decode(errors="replace").strip():
                lines.append(line)
        except BaseException:
            self.release()
            raise
        if len(lines) < 2:
            self.release()
            raise VtaxError(
                f"slurm: no allocation: {slurm.reason(self.console.last_lines() or [])}",
                "try the same by hand: salloc --nodes=1",
            )
        return Granted(lines[0], tuple(lines[1:]))

    def _wait_in_queue(self, stdout: IO[bytes]) -> None:
        """Wait for salloc's first words. Raises VtaxError for what Slurm will never grant."""
        assert self.console is not None
        while not readable(stdout, QUEUE_LOOK_S):
            if job := _PENDING.search(self.console.text()):
                slurm.require_possible(job[1])

    def release(self) -> None:
        """Give the nodes back."""
        process, self.process = self.process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.write(b"\n")
            process.stdin.close()
        # While it waits in the queue, salloc has started no program that the pipe could end.
        if self.granted is None:
            process.terminate()
        try:
            process.wait(RELEASE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        if self.console is not None:
            self.console.join()


_held: dict[Asked, _Held] = {}
_guard = threading.Lock()


@contextlib.contextmanager
def using(asked: Asked) -> Iterator[None]:
    """Keep what `granted` returns for this request until the block ends; blocks may overlap."""
    with _guard:
        held = _held.setdefault(asked, _Held())
        held.users += 1
    try:
        yield
    finally:
        with _guard:
            held.users -= 1
            if held.users == 0:
                del _held[asked]
                held.release()


def granted(asked: Asked) -> Granted:
    """The allocation for a request, inside of `using`: the one around vtax, or one that is asked
    for.

    Raises VtaxError when Slurm grants none, SessionOverError when Slurm has taken it back.
    """
    if job := os.environ.get(slurm.JOB):
        return _around(job, asked.nodes)
    return _held[asked].acquire(asked)


def _around(job: str, nodes: int) -> Granted:
    """The allocation that vtax runs in."""
    names: Sequence[str] = slurm.hosts(os.environ.get("SLURM_JOB_NODELIST", ""))
    if len(names) < nodes:
        raise VtaxError(
            f"slurm: nodes={nodes}, but the allocation around vtax has {len(names)}",
            f"run vtax outside of job {job}, or give fewer nodes=",
        )
    return Granted(job, tuple(names[:nodes]))
