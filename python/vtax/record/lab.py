"""Recording in the lab: the recorder runs in the emulated host, on its nested guests."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from vtax import binaries, cache
from vtax.analysis.intervals import EVENTS, RECORD, ROWS, STREAM
from vtax.environments import guest_page, sandbox
from vtax.environments.agent import Agent, Finished
from vtax.environments.base import Launch
from vtax.environments.lab.host import EmulatedHost
from vtax.environments.lab.machine import LabMachine
from vtax.environments.output_limit import OutputLimit
from vtax.errors import VtaxError
from vtax.paging.lab import AGENT_INSIDE
from vtax.record import workload
from vtax.record.options import Options, Target
from vtax.record.recorder import PROGRAM, failure
from vtax.workloads.base import Outcome

PROGRAM_INSIDE = PurePosixPath("/bin") / PROGRAM
FOLDERS = PurePosixPath("/run/vtax/recordings")
READY_TENTHS = 600
"""Tenths of a second; an emulated CPU verifies the eBPF programs for about 5 s."""
FINISH_TENTHS = 500
MAX_FILE_BYTES = 1 << 30
OUTPUT_BYTES = 16 << 20
_OUTPUTS = ("stdout", "stderr")


class LabRecorder:
    """A recorder in an emulated host that is started, asked to finish, and its files fetched."""

    def __init__(self, host: EmulatedHost, name: str = "0") -> None:
        self._host = host
        self._folder = FOLDERS / name

    def start(self, options: Options, target: Target) -> None:
        """Start it and wait until it counts; raises VtaxError with its own words."""
        self._push()
        line = [str(PROGRAM_INSIDE), "record", "--out", str(self._folder / "out")]
        line += [*options.arguments(target.usual_events), *target.arguments()]
        script = (
            f"mkdir -p {self._folder} && cd {self._folder} && "
            f"{{ {shlex.join(line)} > said 2>&1 & echo $! > pid; }}"
        )
        self._host.must(["busybox", "sh", "-c", script], "start the recorder", leave=True)
        waited = self._wait(f"[ -e out/{STREAM} ]", READY_TENTHS)
        if waited != 0:
            raise self._failed("did not begin in time")

    def finish(self) -> None:
        """Ask it to end, and wait until its files are complete."""
        self._shell('kill -INT "$(cat pid)"')
        self._wait("false", FINISH_TENTHS)
        if self._shell(f"[ -e out/{RECORD} ]") != 0:
            raise self._failed("did not finish")

    def fetch(self, out: Path) -> None:
        """Bring the files here, and remove them there."""
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in (ROWS, EVENTS, RECORD):
            content = self._host.pull(str(self._folder / "out" / file), MAX_FILE_BYTES)
            cache.write_atomic(out / file, content)
        self._host.run(["busybox", "rm", "-r", str(self._folder)])

    def kill(self) -> None:
        """End it now, if it runs."""
        self._shell('kill -KILL "$(cat pid)"')

    def _push(self) -> None:
        program = binaries.find(PROGRAM)
        there = self._host.run(["busybox", "stat", "-c", "%s", str(PROGRAM_INSIDE)])
        if there.stdout.strip() != str(program.stat().st_size):
            self._host.push(str(PROGRAM_INSIDE), program.read_bytes(), 0o755)

    def _shell(self, script: str) -> int | None:
        whole = f"cd {self._folder} && {script}"
        return self._host.run(["busybox", "sh", "-c", whole]).outcome.exit_code

    def _wait(self, until: str, tenths: int) -> int | None:
        """0 when `until` came true; 1 when the recorder had ended, 2 when the time was up."""
        return self._shell(
            f'i=0; until {until}; do kill -0 "$(cat pid)" 2>/dev/null || exit 1; '
            f'i=$((i+1)); [ "$i" -lt {tenths} ] || exit 2; sleep 0.1; done'
        )

    def _failed(self, what: str) -> VtaxError:
        said = ""
        with contextlib.suppress(VtaxError):
            said = self._host.tail(str(self._folder / "said"), 4096).decode(errors="replace")
        with contextlib.suppress(VtaxError):
            self.kill()
        return failure(None, said or f"the recorder in the emulated host {what}")


def record(
    machine: LabMachine,
    work: Path,
    argv: Sequence[str],
    environment: Mapping[str, str],
    options: Options,
    out: Path,
    *,
    name: str = "run",
    copies: int = 1,
    timeout_s: float | None = None,
) -> list[Outcome]:
    """Record all nested guests while `copies` of a workload run in each of them.

    The output of guest N is in the folder ``name-N`` of `work`. With `options.guest`, whatever its
    name, the first guest publishes its counters in a file of the folder that it shares with the
    emulated host. When Ctrl-C comes the recording is finished first.
    """
    shares = options.guest is not None
    agent = guest_page.AGENT if shares else AGENT_INSIDE
    line = workload.several(workload.line(argv, PurePosixPath(agent)), copies)
    first = _First(machine.guests[0], machine.launch)
    page = guest_page.begin(first, work) if shares else None
    if page:
        options = replace(options, guest=machine.launch.work_inside / guest_page.FILE)
    recorder = LabRecorder(machine.host, name)
    recorder.start(options, Target(vm="all"))
    try:
        limit = OutputLimit(work, machine.output_limit_bytes)
        outcomes = _everywhere(machine.guests, line, environment, name, timeout_s, limit)
        recorder.finish()
    except KeyboardInterrupt:
        with contextlib.suppress(VtaxError):
            recorder.finish()
            recorder.fetch(out)
        raise
    except VtaxError:
        with contextlib.suppress(VtaxError):
            recorder.kill()
        raise
    recorder.fetch(out)
    if page:
        guest_page.end(first, work, page)
    for number, guest in enumerate(machine.guests):
        _fetch_output(guest, name, work / f"{name}-{number}")
    return outcomes


@dataclass(frozen=True, slots=True)
class _First:
    """The guest that publishes its counters."""

    agent: Agent
    launch: Launch

    def run(
        self,
        argv: Sequence[str],
        environment: dict[str, str],
        folder: str,
        timeout_s: float | None = None,
        *,
        leave: bool = False,
    ) -> Finished:
        return self.agent.run(argv, environment, folder, timeout_s, leave=leave)


def _everywhere(
    guests: Sequence[Agent],
    line: Sequence[str],
    environment: Mapping[str, str],
    name: str,
    timeout_s: float | None,
    limit: OutputLimit,
) -> list[Outcome]:
    """Run a command in all guests at once. Each has its own channel, so a thread each."""
    pool = ThreadPoolExecutor(len(guests))
    try:
        asked = (line, environment, name, timeout_s, limit)
        running = [pool.submit(one.run, *asked) for one in guests]
        return [each.result().outcome for each in running]
    finally:
        # After Ctrl-C they go on until the machine, and with it their channels, is closed.
        pool.shutdown(wait=False, cancel_futures=True)


def _fetch_output(agent: Agent, name: str, target: Path) -> None:
    target.mkdir(mode=0o700, exist_ok=True)
    for file in _OUTPUTS:
        content = agent.pull(str(sandbox.WORK / name / file), OUTPUT_BYTES)
        (target / file).write_bytes(content)
