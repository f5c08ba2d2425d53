"""The service domain of a machine, and making it slower, by the program `vtax-host`.

The service domain is the threads of the host that work for a guest but do not run it: a switch, an
emulator's main loop, vhost threads. `vtax-host place` finds them and slows them; what it prints is
described in docs/place.md.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vtax.core import foreign_json
from vtax.core.errors import MisuseError, VtaxError
from vtax.place.host_program import END_S, PROGRAM, THIS_HOST, Host
from vtax.workloads.base import tail

SCAN_S = 0.05
"""The length of a look that only finds which threads there are."""
ANSWER_S = 20.0
"""Time for an answer besides the window: loading the eBPF programs takes 0.1 to 0.3 s, on a busy
machine longer."""
IN_FORCE_S = 60.0
"""Time until threads are slow: vtax-host measures a slowed core by spinning on it. In an emulated
dom0 Xen's tool takes half a second for each of 19 changes."""
MOST_BYTES = 16 << 20
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
    """What a CPU of the host did in the window."""

    cpu: Count
    busy_s: Amount | None = None
    softirq_s: Amount | None = None


class _Watching(_Answer):
    """The line that says that a window has begun."""

    watching: bool


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
    around: Host | None = None
    """The host around the machine that serves it, as a whole; None: threads of this host do."""
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
        self.pids = () if self.named or self.around else tuple(pids)
        window = look(self.pids, on=self.on)
        self.seen(window)
        self.notes = window.notes
        if missing := self.named - {each.tid for each in self.threads}:
            raise MisuseError(
                f"--service: thread {min(missing)} does not run, or does not serve a guest",
                "'vtax-host place threads' lists those that do",
            )
        if self.named:
            self.pids = tuple(dict.fromkeys(each.pid for each in self.threads))
        if self.cpu is not None and self.around is None:
            self.cpu = moved(self.threads, self.cpu)

    @property
    def on(self) -> Host:
        """The host that the threads are on."""
        return self.around or THIS_HOST

    def seen(self, window: Window) -> None:
        """Take the threads of a window. Some services start and end threads all the time; new
        threads run where the old ones do."""
        self.threads = tuple(each for each in window.threads if self._is_own(each))

    def alive(self) -> list[int]:
        """Ids of the threads that still run: QEMU's workers, for one, come and go. In a host around
        the machine, which is slowed as a whole, the oldest stands for all."""
        if self.around is not None:
            return [min(self.threads, key=lambda each: (each.start_ticks, each.tid)).tid]
        return [
            each.tid for each in self.threads if Path(f"/proc/{each.pid}/task/{each.tid}").exists()
        ]

    def _is_own(self, thread: Thread) -> bool:
        if self.vcpus:
            return thread.role == VCPU
        if self.around is not None:
            return thread.service
        own = thread.tid in self.named if self.named else thread.role not in SHARED
        return thread.service and own


def backends() -> tuple[Backend, ...]:
    """Every way to make threads slower. Raises VtaxError when the program fails."""
    return _answer(_Backends, "backends", "--json").backends


def usable(known: Iterable[Backend], around: Container[str] = ()) -> tuple[Backend, ...]:
    """The back ends that are possible here, or whose names are among `around`. Raises VtaxError,
    with the reasons, where there are none."""
    every = tuple(known)
    found = tuple(each for each in every if each.possible or each.name in around)
    if not found:
        why = "; ".join(f"{each.name}: {each.reason}" for each in every)
        raise VtaxError(f"nothing can make a thread slower here: {why}", "run vtax as root")
    return found


def kinds(root: Path, **named: str | None) -> Kinds:
    """The kinds of cores of the host whose /sys is below `root`; `named` are options.

    Raises MisuseError for impossible lists of CPUs, VtaxError when the program fails.
    """
    options = [f"--{name.replace('_', '-')}={text}" for name, text in named.items() if text]
    return _answer(Kinds, "cores", "--json", f"--root={root}", *options)


def host() -> str:
    """The name of this machine in plans. Raises VtaxError when the program fails."""
    return _answer(_Host, "host", "--json").host


def sweep() -> int:
    """Undo what killed programs did to threads that they slowed; return how many programs there
    were.

    Raises VtaxError when the program fails.
    """
    return _answer(_Swept, "sweep", "--json").restored


def look(pids: Sequence[int], seconds: float = SCAN_S, on: Host = THIS_HOST) -> Window:
    """The threads of these processes of a host and of what they started, and what they do for
    `seconds`; of all guests when no process is given.

    Raises VtaxError when the program fails.
    """
    line = ("threads", *_roots(pids), "--for", f"{seconds:g}s", "--json")
    return _answer(Window, *line, on=on, within_s=seconds + ANSWER_S)


@contextmanager
def watched(pids: Sequence[int], on: Host = THIS_HOST) -> Iterator[list[Window]]:
    """Watch the threads of these processes of a host while the block runs; afterwards the list has
    the result.

    Raises VtaxError when the program fails.
    """
    running, found = on.start("threads", *_roots(pids), "--until-eof", "--json"), list[Window]()
    try:
        _read(_Watching, running.first_line(ANSWER_S))
        yield found
        running.ask_to_end()
        found.append(_read(Window, running.rest(ANSWER_S)))
    finally:
        running.end()


@contextmanager
def slowed(
    backend: str, percent: float, tids: Sequence[int], cpu: int | None, on: Host = THIS_HOST
) -> Iterator[Slowness]:
    """Hold threads of a host at `percent` of full speed, all of them on `cpu` if it is given.

    They are back at full speed afterwards, and as soon as vtax dies. Raises VtaxError when they
    cannot be slowed.
    """
    threads = [word for tid in tids for word in ("--tid", str(tid))]
    how = ["--backend", backend, "--percent", f"{percent:g}"]
    how += [] if cpu is None else ["--cpu", str(cpu)]
    running = on.start("slow", *how, *threads)
    try:
        yield _read(Slowness, running.first_line(IN_FORCE_S))
        running.ask_to_end()
        running.rest(END_S)
    finally:
        running.end()


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


def _roots(pids: Sequence[int]) -> list[str]:
    return [word for pid in pids for word in ("--pid", str(pid))]


def _answer(kind: type[A], *arguments: str, on: Host = THIS_HOST, within_s: float = ANSWER_S) -> A:
    """The answer of a run of the program that ends by itself."""
    running = on.start(*arguments)
    try:
        return _read(kind, running.rest(within_s))
    finally:
        running.end()


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
