"""The host of a guest that is reached in another way: what the guest costs there, while it works.

An agent on the host reads the kernel's totals before and after each repetition. Clocks of two
machines are not compared: values are differences of totals, and this machine's clock bounds the
time between them.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vtax.core import foreign_json
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.core.specs import Spec, parse_spec
from vtax.environments import host_guests, host_reading, kvm_counters
from vtax.environments.agent import MachineLostError
from vtax.environments.base import Environment, MachineLike, from_spec
from vtax.environments.capabilities import Files, HostReadings, RecordInside
from vtax.environments.host_guests import Guest
from vtax.environments.host_reading import VCPU, Reading
from vtax.environments.kvm_counters import Counters
from vtax.environments.option_values import MOST_PROCESSES, whole_number
from vtax.workloads.base import tail
from vtax.workloads.variables import DEFAULT_PATH

KEYS = {
    "host": "native or ssh:HOST, whose guest it is: what it costs there (default: not read)",
    "domain": "its name there, QEMU's -name (default: the guest with its UUID, or the only one)",
    "pid": "the number of its process there, instead of domain=",
}
READ_S = 10.0
FIND_S = 60.0
_SCRIPT = f'{host_reading.SCRIPT}exec "$0" counters --json'
_FOLDER = "reading"
_NO_VCPU = "no thread there is known as a virtual CPU: QEMU needs -name NAME,debug-threads=on"


@dataclass(frozen=True, slots=True)
class HostOf:
    """A guest's host, and what the guest is called there."""

    guest: str
    """Where the guest itself is reached: another guest may have all else alike."""
    spec: str
    environment: Environment
    domain: str | None = None
    pid: int | None = None

    @classmethod
    def from_options(cls, environment: str, guest: str, options: Mapping[str, str]) -> Self | None:
        """The values of the keys; None without `host=`. Raises MisuseError for a bad one."""
        text, pid = options.get("host"), options.get("pid")
        if text is None:
            if lone := next(iter(KEYS.keys() & options.keys()), None):
                raise MisuseError(
                    f"{environment}: {lone}= says what a guest is called on host=",
                    f"give host= too, or leave {lone}= out",
                )
            return None
        asked = parse_spec(text)
        if asked.options or (asked.name, bool(asked.target)) not in (
            ("native", False),
            ("ssh", True),
        ):
            raise MisuseError(
                f"{environment}: host={text} is not native or ssh:[user@]host[:port]",
                "write for example host=ssh:hyp1",
            )
        shared = {key: options[key] for key in ("config", "dir") if asked.target and key in options}
        return cls(
            guest,
            text,
            from_spec(Spec(asked.name, shared, asked.target)),
            options.get("domain"),
            whole_number(environment, "pid", pid, 1, MOST_PROCESSES) if pid else None,
        )


class HostSide:
    """The host of one guest, with an agent there, for as long as a campaign lasts.

    When the host is lost, or does not show the guest any more, nothing is read of it, and the guest
    is measured on.
    """

    def __init__(self, of: HostOf) -> None:
        self._of = of
        self._machine: MachineLike | None = None
        self._work = Path()
        self._guest: Guest | None = None
        self._absent: tuple[str, ...] = ()
        """Why values are absent, until the guest is looked for again."""
        self._script = _SCRIPT

    def join(self, guest: MachineLike, work: Path, cpus: Sequence[int]) -> None:
        """Look for the guest on its host; `work`: a new folder of this machine for what is read.

        Raises VtaxError when the guest is not found as its machine starts for the first time.
        """
        first = self._machine is None
        try:
            if self._machine is None:
                work.mkdir(mode=0o700, exist_ok=True)
                self._work, self._machine = work, self._of.environment.start(work, cpus)
            self._guest = self._find(guest)
            self._absent = tuple(self._missing(self._guest))
        except VtaxError as error:
            lost = VtaxError(f"host={self._of.spec}: {error.message}", error.remedy)
            self._guest, self._absent = None, (lost.message,)
            if first:
                raise lost from None

    def read(self) -> Reading:
        """Read the host's totals; where that fails they are absent, with the reason."""
        begin_s = time.monotonic()
        try:
            if self._guest is not None:
                return self._read(self._guest, begin_s)
        except VtaxError as error:
            absent = f"host={self._of.spec}: {error.message}"
            if not isinstance(error, MachineLostError):
                return Reading(begin_s, time.monotonic(), (absent,))
            self._guest, self._absent = None, (absent,)
        return Reading(begin_s, time.monotonic(), self._absent)

    def close(self) -> None:
        """End the agent on the host."""
        if self._machine is not None:
            with contextlib.suppress(VtaxError):
                self._machine.close()

    def _find(self, guest: MachineLike) -> Guest:
        """The guest among those of the host. Raises VtaxError when none or several may be it."""
        here, there = guest.offer(Files), self._started.offer(Files)
        assert here is not None and there is not None
        line = [self._program, "place", "threads", "--for", "0.02s", "--json"]
        try:
            known = host_guests.guests(foreign_json.parse_object(self._run(line, FIND_S)))
        except (LookupError, TypeError, ValueError):
            raise VtaxError("its vtax-host is not of this version", "run 'make setup'") from None
        own = host_guests.own_uuid(here.pull)
        found = host_guests.fitting(
            known,
            self._of.domain,
            self._of.pid,
            own,
            lambda each: host_guests.uuid_of_process(there.pull, each.pid),
        )
        if len(found) == 1:
            return found[0]
        which = ", ".join(map(str, found or known)) or "none"
        what = "several guests of QEMU may be it" if found else "no guest of QEMU there is it"
        raise VtaxError(f"{what} ({which})", "name it with domain= or pid=")

    def _missing(self, guest: Guest) -> Iterator[str]:
        """Why values of a guest will be absent; nothing where all can be read."""
        if VCPU not in guest.roles.values():
            yield _NO_VCPU
        self._script = _SCRIPT
        if self._read(guest, 0.0).kvm is None:
            # It looks through all processes of the host, which takes time.
            self._script = host_reading.SCRIPT
            yield f"KVM has no counters of process {guest.pid} there, or shows them to root alone"

    def _read(self, guest: Guest, begin_s: float) -> Reading:
        line = [
            "sh",
            "-c",
            self._script,
            self._of.environment.agent_inside(),
            *map(str, guest.pids),
        ]
        said, _, counters = self._run(line, READ_S).partition("\n{")
        busy_s, threads = host_reading.totals(said)
        kvm: Counters | None = None
        with contextlib.suppress(VtaxError, ValueError):
            kvm = kvm_counters.of_guest(foreign_json.parse_object("{" + counters), guest.pid)
        return Reading(begin_s, time.monotonic(), self._absent, busy_s, threads, guest.roles, kvm)

    @functools.cached_property
    def _program(self) -> str:
        """The path of vtax-host on the host."""
        inside = self._started.offer(RecordInside)
        assert inside is not None
        return inside.program()

    @property
    def _started(self) -> MachineLike:
        assert self._machine is not None
        return self._machine

    def _run(self, argv: Sequence[str], timeout_s: float) -> str:
        """What a command on the host printed. Raises VtaxError when it printed nothing."""
        exchange = Exchange(self._work, _FOLDER)
        exchange.create({})
        try:
            self._started.run(argv, {"PATH": DEFAULT_PATH}, _FOLDER, timeout_s)
            if said := exchange.read_text("stdout"):
                return said
            raise VtaxError(tail(exchange.read_text("stderr"), 1) or "it tells nothing")
        finally:
            shutil.rmtree(exchange.path, ignore_errors=True)


_held: dict[HostOf, HostSide] = {}


@contextlib.contextmanager
def using(of: HostOf | None) -> Iterator[None]:
    """Keep one host side until the block ends; blocks may be nested. None: there is none."""
    if of is None or of in _held:
        yield
        return
    with contextlib.closing(HostSide(of)) as side:
        _held[of] = side
        try:
            yield
        finally:
            del _held[of]


def join(of: HostOf | None, guest: MachineLike, work: Path, cpus: Sequence[int]) -> None:
    """Look for a guest on its host, inside of `using`. Raises VtaxError as `HostSide.join`."""
    if of is not None:
        _held[of].join(guest, work, cpus)


def readings(of: HostOf | None) -> Sequence[HostReadings]:
    """The means to read a guest's host; none outside of `using`."""
    return (HostReadings(_held[of].read),) if of in _held else ()
