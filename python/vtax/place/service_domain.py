"""The service domain of a machine, and making it slower: the program `vtax-host` on this machine.

The service domain is the threads of the host that work for a guest but do not run it: a switch, an
emulator's main loop, vhost threads. `vtax-host place` finds them and slows them; what it prints is
described in docs/place.md.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vtax.core import binaries, foreign_json
from vtax.core.errors import MisuseError, VtaxError
from vtax.workloads.base import tail

PROGRAM = "vtax-host"
SCAN_S = 0.05
"""The length of a look that only finds which threads there are."""
ANSWER_S = 20.0
"""Time for an answer besides the window: loading the eBPF programs takes 0.1 to 0.3 s, on a busy
machine longer."""
IN_FORCE_S = 20.0
"""Time until threads are slow: vtax-host measures a slowed core by spinning on it."""
END_S = 10.0
MOST_BYTES = 16 << 20
MISUSE = 2
BUSY = "try again when the machine is less busy"
VCPU = "vcpu"
"""Role of a thread that carries out a guest's instructions; crates/host/src/place/role.rs has all
roles."""
RUNS_A_GUEST = frozenset({VCPU, "guest"})
"""Roles of threads that belong to the guest itself."""
MONITOR = "monitor"
SHARED = frozenset({"softirq", "napi", "dom0", "xen", MONITOR})
"""Roles of threads that serve all guests, or do no work for one: they are not moved or slowed."""

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Answer(BaseModel):
    """An answer of `vtax-host place`; fields that a later version adds are not read."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Thread(_Answer):
    """A thread that works for guests, and what it did in the window."""

    pid: Count
    tid: Count
    start_ticks: Count
    """Together with the thread's number, this identifies it for good."""
    name: str
    role: str
    service: bool
    guest: str | None = None
    cpu_s: Amount | None = None
    """None, here and in all that follow: not known, or not permitted."""
    run_delay_s: Amount | None = None
    """Time in which the thread could have run and had no CPU."""
    switches: Count | None = None
    wakeups: Count | None = None
    softirq_s: Amount | None = None
    """Time of softirqs that the kernel worked off in the thread's context."""
    cpus: str | None = None
    """CPUs that it may use, e.g. ``0-1``."""
    cpuset: str | None = None
    """CPUs that its cpuset allows; None for a thread without a cpuset."""
    last_cpu: Count


class Cpu(_Answer):
    """What a CPU of this host did in the window."""

    cpu: Count
    softirq_s: Amount | None = None


class Window(_Answer):
    """What threads did within a period."""

    window_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    threads: tuple[Thread, ...]
    cpus: tuple[Cpu, ...] = ()
    notes: tuple[str, ...] = ()


class Backend(_Answer):
    """A way to make threads slower."""

    name: str
    possible: bool
    reason: str | None = None
    """Why the backend is not possible here."""
    does_not: str
    """What it does not reproduce of a slow core."""


class _Backends(_Answer):
    backends: tuple[Backend, ...]


class Kind(_Answer):
    """Cores that are alike."""

    name: str
    speed_percent: Annotated[float, Field(gt=0, le=100)] | None = None
    """Speed in percent of the fastest kind's; None: not known."""
    cpus: str
    """The CPUs, as the kernel writes them."""


class Kinds(_Answer):
    """The cores of a host, the fastest kind first; one kind where all are alike."""

    kinds: tuple[Kind, ...]
    source: str | None = None
    """How the kinds are known; None where all cores are alike."""
    siblings: tuple[str, ...] = ()
    """The CPUs of each core that has several."""
    sibling: Annotated[float, Field(ge=0, le=1)] = 1.0
    """What a further CPU of a core is worth, as a share of a core."""
    notes: tuple[str, ...] = ()


class _Host(_Answer):
    host: str


class _Swept(_Answer):
    restored: Count


class Slowness(_Answer):
    """The slowness that is in force."""

    backend: str
    asked_percent: Amount
    obtained_percent: Amount | None = None
    """Measured speed in percent of full speed; None for a control."""
    low: Amount | None = None
    high: Amount | None = None
    honoured: bool | None = None
    """False: the speed is more than 10 percentage points from what was asked for."""
    how: str = ""
    does_not: str = ""


A = TypeVar("A", bound=_Answer)


@dataclass(slots=True)
class Service:
    """The service threads of a machine as last seen, and the CPU that they are kept on."""

    cpu: int | None
    """None: the threads stay where they are."""
    named: frozenset[int] = frozenset()
    """Thread ids that the user chose; empty: those of the machine's own processes."""
    vcpus: bool = False
    """Take the machine's vCPUs, the guest's own cores, instead of the threads that serve it. Only
    QEMU has threads for them; a kernel in user mode consists of processes that come and go."""
    pids: tuple[int, ...] = ()
    """Processes in which the threads are looked for, with their descendants."""
    threads: tuple[Thread, ...] = ()
    notes: tuple[str, ...] = ()
    """Which service threads are absent, and why."""

    def find(self, pids: Sequence[int]) -> None:
        """Find the threads of a machine that consists of these processes, and keep them on the CPU.

        Raises VtaxError when the threads cannot be found or moved, MisuseError for a named thread
        that does not serve a guest.
        """
        self.pids = () if self.named else tuple(pids)
        window = look(self.pids)
        self.seen(window)
        self.notes = window.notes
        if missing := self.named - {each.tid for each in self.threads}:
            raise MisuseError(
                f"--service: thread {min(missing)} does not run, or does not serve a guest",
                "'vtax-host place threads' lists those that do",
            )
        if self.named:
            self.pids = tuple(dict.fromkeys(each.pid for each in self.threads))
        if self.cpu is not None:
            self.cpu = moved(self.threads, self.cpu)

    def seen(self, window: Window) -> None:
        """Take the threads of a window. Some services start and end threads all the time; new
        threads run where the old ones do."""
        self.threads = tuple(each for each in window.threads if self._is_own(each))

    def alive(self) -> list[int]:
        """Ids of the threads that still run: QEMU's workers, for one, come and go."""
        return [
            each.tid for each in self.threads if Path(f"/proc/{each.pid}/task/{each.tid}").exists()
        ]

    def _is_own(self, thread: Thread) -> bool:
        if self.vcpus:
            return thread.role == VCPU
        own = thread.tid in self.named if self.named else thread.role not in SHARED
        return thread.service and own


def backends() -> tuple[Backend, ...]:
    """Every way to make threads slower. Raises VtaxError when the program fails."""
    process = _spawn("backends", "--json")
    return _read(_Backends, _output(process, ANSWER_S)).backends


def usable(known: Iterable[Backend]) -> tuple[Backend, ...]:
    """The backends that are possible here. Raises VtaxError, with the reasons, where there are
    none."""
    every = tuple(known)
    found = tuple(each for each in every if each.possible)
    if not found:
        why = "; ".join(f"{each.name}: {each.reason}" for each in every)
        raise VtaxError(f"nothing can make a thread slower here: {why}", "run vtax as root")
    return found


def kinds(root: Path, **named: str | None) -> Kinds:
    """The kinds of cores of the host whose /sys is below `root`; `named` are options.

    Raises MisuseError for impossible lists of CPUs, VtaxError when the program fails.
    """
    options = [f"--{name.replace('_', '-')}={text}" for name, text in named.items() if text]
    process = _spawn("cores", "--json", f"--root={root}", *options)
    return _read(Kinds, _output(process, ANSWER_S))


def host() -> str:
    """The name of this machine in plans. Raises VtaxError when the program fails."""
    return _read(_Host, _output(_spawn("host", "--json"), ANSWER_S)).host


def sweep() -> int:
    """Undo what killed programs did to threads that they slowed; return how many programs there
    were.

    Raises VtaxError when the program fails.
    """
    process = _spawn("sweep", "--json")
    return _read(_Swept, _output(process, ANSWER_S)).restored


def look(pids: Sequence[int], seconds: float = SCAN_S) -> Window:
    """The threads of these processes and of what they started, and what they do for `seconds`; of
    all guests when no process is given.

    Raises VtaxError when the program fails.
    """
    process = _looking(pids, "--for", f"{seconds:g}s")
    return _read(Window, _output(process, seconds + ANSWER_S))


@contextmanager
def watched(pids: Sequence[int]) -> Iterator[list[Window]]:
    """Watch the threads of these processes while the block runs; afterwards the list has the
    result.

    Raises VtaxError when the program fails.
    """
    process, found = _looking(pids, "--until-eof"), list[Window]()
    try:
        yield found
        assert process.stdin is not None
        process.stdin.close()
        found.append(_read(Window, _output(process, ANSWER_S)))
    finally:
        _end(process)


@contextmanager
def slowed(
    backend: str, percent: float, tids: Sequence[int], cpu: int | None
) -> Iterator[Slowness]:
    """Hold threads at `percent` of full speed, all of them on `cpu` if it is given.

    They are back at full speed afterwards, and as soon as vtax dies. Raises VtaxError when they
    cannot be slowed.
    """
    threads = [word for tid in tids for word in ("--tid", str(tid))]
    how = ["--backend", backend, "--percent", f"{percent:g}"]
    how += [] if cpu is None else ["--cpu", str(cpu)]
    process = _spawn("slow", *how, *threads)
    try:
        assert process.stdout is not None
        yield _read(Slowness, _first_line(process, IN_FORCE_S))
        assert process.stdin is not None
        process.stdin.close()
        _output(process, END_S)
    finally:
        _end(process)


def moved(threads: Sequence[Thread], cpu: int) -> int:
    """Keep threads on `cpu`, or, if their control group lacks it, on the first CPU that they may
    use; return that CPU. A thread that has ended meanwhile needs none.

    Raises VtaxError when moving is not permitted.
    """
    for each in threads:
        try:
            os.sched_setaffinity(each.tid, {cpu})
        except ProcessLookupError:
            continue
        except OSError as error:
            allowed = os.sched_getaffinity(each.tid)
            if error.errno == errno.EINVAL and cpu not in allowed:
                return moved(threads, min(allowed))
            raise VtaxError(
                f"thread {each.tid} ({each.name}) cannot be kept on CPU {cpu}: {error.strerror}",
                "run vtax as root",
            ) from None
    return cpu


def _looking(pids: Sequence[int], *until: str) -> subprocess.Popen[bytes]:
    roots = [word for pid in pids for word in ("--pid", str(pid))]
    return _spawn("threads", *roots, *until, "--json")


def _spawn(*arguments: str) -> subprocess.Popen[bytes]:
    """Start vtax-host in a session of its own: Ctrl-C reaches vtax alone, which then cleans up."""
    line = [str(binaries.find(PROGRAM)), "place", *arguments]
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    except OSError as error:
        raise VtaxError(f"cannot start {line[0]}: {error.strerror}") from None


def _output(process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
    """The rest of the output; raises VtaxError when the program fails."""
    if process.stdin is not None and process.stdin.closed:
        process.stdin = None
    try:
        said, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise VtaxError(f"{PROGRAM} did not answer within {timeout_s:.0f} s", BUSY) from None
    if process.returncode != 0:
        raise _failure(process.returncode, errors)
    return said


def _first_line(process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
    """The first line of output; raises VtaxError when the program ends without one, or takes too
    long."""
    assert process.stdout is not None and process.stderr is not None
    deadline, said = time.monotonic() + timeout_s, b""
    while b"\n" not in said:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            raise VtaxError(f"{PROGRAM} did not slow the service within {timeout_s:.0f} s", BUSY)
        piece = os.read(process.stdout.fileno(), 1 << 16)
        if not piece:
            raise _failure(process.wait(END_S), process.stderr.read(1 << 16))
        said += piece
    return said.partition(b"\n")[0]


def _read(kind: type[A], said: bytes) -> A:
    try:
        if len(said) > MOST_BYTES:
            raise ValueError
        return kind.model_validate(foreign_json.parse(said))
    except (ValueError, ValidationError):
        words = tail(said[:1000].decode(errors="replace"), 1)
        raise VtaxError(
            f"{PROGRAM} is not of this version: it said {words!r}", "run 'make setup'"
        ) from None


def _failure(code: int, errors: bytes) -> VtaxError:
    words = tail(errors.decode(errors="replace"), 1) or f"{PROGRAM} ended with {code}"
    words = words.removeprefix("vtax: ")
    return (MisuseError if code == MISUSE else VtaxError)(words)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the program restore what it changed, which it also does when a signal that it handles
    ends it."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    if process.poll() is None:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
