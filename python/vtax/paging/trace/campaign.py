"""`vtax paging trace`: a command in an emulated guest, and the trace of what it referenced."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.core.formats.files import read_bounded, replacing
from vtax.core.formats.scratch import scratch
from vtax.core.runner.following import Following
from vtax.environments import traced_qemu
from vtax.environments.agent import STDIN
from vtax.environments.base import allowed_cpus
from vtax.environments.machine import Machine
from vtax.environments.traced_qemu import Guest, Recording, Sampling
from vtax.environments.unpacked_qemu import QemuProgram
from vtax.workloads.base import Outcome

FOLDER = "trace"
TIME = "traced.json"
END_S = 30.0
"""Time for QEMU to write what it has, after Ctrl-C."""
SUMMARY_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for."""

    argv: Sequence[str]
    variables: Mapping[str, str]
    workdir: Path | None
    out: Path | None
    """The file of the trace; None: no trace is kept."""
    user_only: bool
    compare: bool
    """Whether to run the command once more without the plugin, for the slowdown."""
    warm_up: bool = False
    """Whether the command runs once before, in the trace's phase 0; then it is phase 1."""
    passed_on: bool = True
    """Whether what the command prints goes to standard error."""
    timeout_s: float | None = None
    stdin: bytes | None = None
    sampling: Sampling | None = None
    """Which references are recorded; None: all."""
    instruction_tlb: int | None = None
    """Entries of a TLB for instructions, whose misses are counted; None: none."""
    consume: Callable[[Path], None] | None = None
    """Instead of a file: reads the trace from a pipe while it is made, in a thread of its own."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A finished trace."""

    file: Path | None
    references: int
    instructions: int
    intervals: int
    """Intervals of a sampled run; 0: all references were recorded."""
    recorded_intervals: int
    bytes: int | None
    slowdown: float | None
    """Slowdown against the same QEMU without the plugin; None: `slowdown_reason` says why."""
    slowdown_reason: str | None
    qemu: str
    faults: int
    table_writes: int
    cr3_loads: int
    invlpg: int
    instruction_tlb_misses: int | None
    """Misses of the TLB for instructions that was wanted, a model."""
    outcome: Outcome | None
    """How the command ended; None: Ctrl-C ended it."""

    @property
    def bytes_per_reference(self) -> float | None:
        if self.bytes is None or self.references == 0:
            return None
        return self.bytes / self.references


def trace(wanted: Wanted, guest: Guest, announce: Callable[[str], None]) -> Traced:
    """Run the command in the guest and write its trace.

    Ctrl-C ends the command and keeps what was traced. Raises VtaxError when the command cannot be
    traced.
    """
    qemu = traced_qemu.find()
    with scratch("trace") as folder:
        with _target(wanted, folder) as path:
            recording = Recording(
                path, folder / "summary", wanted.user_only, wanted.consume is None,
                wanted.sampling, wanted.instruction_tlb,
            )  # fmt: skip
            run = _run(wanted, guest, qemu, folder, recording, announce)
        totals = _totals(folder / "summary", run.console)
        slowdown, reason = _slowdown(wanted, guest, qemu, folder, run, announce)
    return Traced(
        file=wanted.out,
        references=totals["references"],
        instructions=totals["instructions"],
        intervals=totals["intervals"],
        recorded_intervals=totals["recorded_intervals"],
        bytes=wanted.out.stat().st_size if wanted.out else None,
        slowdown=slowdown,
        slowdown_reason=reason,
        qemu=qemu.version,
        faults=totals["faults"],
        table_writes=totals["table_writes"],
        cr3_loads=totals["cr3_loads"],
        invlpg=totals["invlpg"],
        instruction_tlb_misses=totals.get("instruction_tlb_misses"),
        outcome=run.outcome,
    )


@contextlib.contextmanager
def _target(wanted: Wanted, scratch: Path) -> Iterator[Path]:
    """The path that the plugin writes to: a file that becomes the trace, or the consumer's pipe."""
    if wanted.consume is not None:
        with _consumed(wanted.consume, scratch / "online" / Path(wanted.argv[0]).name) as path:
            yield path
    elif wanted.out is not None:
        with replacing(wanted.out) as path:
            path.touch()
            yield path
    else:
        raise ValueError("neither a file nor a consumer")


@contextlib.contextmanager
def _consumed(consume: Callable[[Path], None], pipe: Path) -> Iterator[Path]:
    """A pipe with a consumer at its end; waits for the consumer, and raises what the consumer
    raises.

    Its name is what the consumer calls the trace.
    """
    pipe.parent.mkdir()
    os.mkfifo(pipe, 0o600)
    failures: list[BaseException] = []

    def carry_out() -> None:
        try:
            consume(pipe)
        except BaseException as error:
            failures.append(error)

    consumer = threading.Thread(target=carry_out, daemon=True)
    consumer.start()
    try:
        yield pipe
    finally:
        # If the guest never began, the consumer still waits for a writer.
        with contextlib.suppress(OSError):
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        consumer.join()
    if failures:
        raise failures[0]


@dataclass(frozen=True, slots=True)
class _Run:
    outcome: Outcome | None
    wall_s: float | None
    """The time between the marks, by the guest's clock, which follows the host's."""
    console: str


def _run(
    wanted: Wanted,
    guest: Guest,
    qemu: QemuProgram,
    scratch: Path,
    recording: Recording | None,
    announce: Callable[[str], None],
) -> _Run:
    """Run the command in a guest, with the plugin if there is somewhere to record to."""
    if recording:
        recording.summary.touch()
    placed = traced_qemu.inside(guest, qemu, recording)
    work = scratch / ("recorded" if recording else "plain")
    work.mkdir()
    announce("booting the guest")
    outcome: Outcome | None = None
    with Machine(placed, work, allowed_cpus()) as machine:
        announce("tracing" if recording else "running without the plugin, for the slowdown")
        exchange = Exchange(work, FOLDER)
        exchange.create({} if wanted.stdin is None else {STDIN: wanted.stdin})
        where = f"{machine.launch.work_inside}/{FOLDER}/{TIME}"
        line = [guest.agent_inside(), "traced", "--out", where]
        line += ["--warm-up"] if wanted.warm_up else []
        line += ["--", *wanted.argv]
        try:
            with _passed_on(exchange.path, wanted=wanted.passed_on and recording is not None):
                finished = machine.run(
                    line, wanted.variables, FOLDER, wanted.timeout_s, workdir=wanted.workdir
                )
            outcome = finished.outcome
        except KeyboardInterrupt:
            if recording is None:
                raise
            machine.terminate(END_S)
        console = machine.console()
    wall_s = None
    if outcome is not None:
        # The command may have written anything into its folder.
        with contextlib.suppress(VtaxError, ValueError, KeyError, TypeError):
            wall_s = float(foreign_json.parse_object(exchange.read_text(TIME))["wall_s"])
    return _Run(outcome, wall_s, console)


@contextlib.contextmanager
def _passed_on(folder: Path, *, wanted: bool) -> Iterator[None]:
    """Pass the command's output on to standard error: standard output has the result."""
    if not wanted:
        yield
        return
    streams = {"stdout": sys.stderr.buffer, "stderr": sys.stderr.buffer}
    with Following(folder, streams):
        yield


def _totals(summary: Path, console: str) -> Mapping[str, int]:
    """What the plugin counted. Raises VtaxError when it wrote no trace."""
    try:
        found = foreign_json.parse_object(read_bounded(summary, SUMMARY_BYTES))
    except ValueError:
        found = {"begun": False}
    if found.get("error"):
        raise VtaxError(f"the trace could not be written: {found['error']}", "free space there")
    if not found.get("begun"):
        said = [line for line in console.splitlines() if line.startswith("vtax-trace:")]
        raise VtaxError(
            f"the guest was not traced: {said[-1] if said else 'the command did not begin'}",
            "try another kernel: --kernel FILE",
        )
    totals: Mapping[str, int] = found
    return totals


def _slowdown(
    wanted: Wanted,
    guest: Guest,
    qemu: QemuProgram,
    scratch: Path,
    traced: _Run,
    announce: Callable[[str], None],
) -> tuple[float | None, str | None]:
    """How many times as long as without the plugin the command took; otherwise None and the
    reason."""
    if not wanted.compare:
        return None, "--no-slowdown"
    if traced.outcome is None:
        return None, "Ctrl-C ended the command"
    if traced.wall_s is None:
        return None, "the command left no time"
    try:
        plain = _run(wanted, guest, qemu, scratch, None, announce)
    except VtaxError as error:
        return None, f"the run without the plugin failed: {error}"
    if not plain.wall_s:
        return None, "the command left no time without the plugin"
    return traced.wall_s / plain.wall_s, None
