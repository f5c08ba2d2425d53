"""`guests=N`: like guests that run side by side on this machine, as one machine.

Each guest has a folder, a swap disk and a channel of its own. With a link they share one network:
a switch, or a bridge over their taps, so that they share what serves it.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from vtax.core.clocks import Skew
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.core.units import format_bytes
from vtax.environments import mpi_hosts
from vtax.environments.agent import OUTPUT_LIMIT_BYTES, Finished
from vtax.environments.base import MachineLike, allowed_cpus, host_memory_bytes
from vtax.environments.capabilities import (
    C,
    Capability,
    Files,
    GuestPage,
    Guests,
    Link,
    Pause,
    RecordOutside,
    offered,
)
from vtax.environments.link import Linked, Network, Wanted
from vtax.environments.machine import Machine, MachineNetwork
from vtax.environments.machine_command import MachineCommand
from vtax.environments.mpi_hosts import MpiHosts
from vtax.environments.option_values import whole_number
from vtax.workloads.base import MachineShape

KEYS = {"guests": "number of guests, all alike (default: 1)", **mpi_hosts.KEYS}
MOST = 8
"""As many as the VrtProf paper runs (section IV-B)."""

T = TypeVar("T")


def count(environment: str, options: Mapping[str, str], memory: int, link: Wanted | None) -> int:
    """The value of the key `guests`.

    Raises MisuseError when it is no such number, when the guests' memory is more than the host's,
    or when their link is for one guest.
    """
    guests = whole_number(environment, "guests", options.get("guests", "1"), 1, MOST)
    if guests * memory > host_memory_bytes():
        raise MisuseError(
            f"{environment}: guests={guests} of {format_bytes(memory)} need more memory than the "
            f"host's {format_bytes(host_memory_bytes())}",
            "give a smaller mem=",
        )
    if guests > 1 and link and not link.has_tap:
        raise MisuseError(
            f"{environment}: net={link.kind} is for one guest", "use net=tap, or guests=1"
        )
    return guests


def said(guests: int) -> str:
    """Words about the number of guests for the description of a machine."""
    return f", {guests} guests" if guests > 1 else ""


def mac(number: int) -> str:
    """The address of a guest's network card: QEMU's usual one, counted up."""
    return f"52:54:00:12:34:{0x56 + number:02x}"


@dataclass(frozen=True)
class Grouped(Linked):
    """An environment that can have several guests in one machine; without slots, as `HostTree`."""

    guests: int = field(default=1, kw_only=True)
    mpi: bool = field(default=False, kw_only=True)
    """Whether a command may have ranks in all guests, whose CPUs and memory then count together."""

    def together(self, one: MachineShape) -> MachineShape:
        """What a command has, given what a guest has."""
        return MachineShape(one.cpus * self.sharing, one.memory_bytes * self.sharing)

    @property
    def sharing(self) -> int:
        """How many guests a command has."""
        return self.guests if self.mpi else 1

    @abstractmethod
    def start_one(
        self,
        work: Path,
        cpus: Sequence[int],
        number: int = 0,
        shared: MachineNetwork | None = None,
    ) -> Machine:
        """Start one guest: which one it is, and the network of all, if they share one."""

    def start(self, work: Path, cpus: Sequence[int]) -> MachineLike:
        return self.start_one(work, cpus) if self.guests == 1 else GuestGroup(self, work, cpus)

    def offered(self) -> frozenset[type[Capability]]:
        alone = super().offered()
        if self.guests == 1:
            return alone - {Guests}
        if self.mpi:
            return alone & {Files, Link, Pause, RecordOutside}
        return alone & {Files, GuestPage, Guests, Link, Pause, RecordOutside}

    def host_cpus(self) -> int:
        return min(self.guests * self.shape().cpus // self.sharing, len(allowed_cpus()))


class GuestGroup(MachineLike):
    """Started guests of one environment; a context manager that ends them all.

    Commands for one machine run in the first. Each guest is kept on CPUs of its own where there are
    enough; otherwise they take turns.
    """

    def __init__(self, environment: Grouped, work: Path, cpus: Sequence[int]) -> None:
        self._work = work
        self._held = ExitStack()
        with self._held:
            self._network = (
                self._held.enter_context(Network(environment.link, cpus, environment.guests))
                if environment.link
                else None
            )
            self._pool = ThreadPoolExecutor(environment.guests)
            # After Ctrl-C its threads end when their guests, and with them the channels, do.
            self._held.callback(self._pool.shutdown, wait=False, cancel_futures=True)
            self.guests = self._started(environment, cpus)
            self._mpi = (
                self._held.enter_context(contextlib.closing(self._ranks(environment)))
                if environment.mpi
                else None
            )
            self._held = self._held.pop_all()
        first = self.guests[0]
        self.output_limit_bytes = OUTPUT_LIMIT_BYTES
        self.launch, self.hello, self.facts = first.launch, first.hello, first.facts
        self.boot_s = max(each.boot_s for each in self.guests)

    def execute(self, command: MachineCommand) -> Finished:
        for each in self.guests:
            each.output_limit_bytes = self.output_limit_bytes
        return (self._mpi or self.guests[0]).execute(command)

    def run_everywhere(self, command: MachineCommand) -> Sequence[Finished]:
        """Run a command in all guests at once; output of guest N goes to the folder FOLDER-N."""
        files = Exchange(self._work, command.folder).read_all()

        def run(number: int) -> Finished:
            guest, own = self.guests[number], f"{command.folder}-{number}"
            guest.output_limit_bytes = self.output_limit_bytes
            Exchange(self._folder(number), own).create(files)
            return guest.execute(replace(command, folder=own))

        finished = self._at_once(run, range(len(self.guests)))
        # While the first guest runs, it would see what is moved to its folder.
        for number in range(1, len(self.guests)):
            own = f"{command.folder}-{number}"
            (self._folder(number) / own).rename(self._work / own)
        return finished

    def offer(self, wanted: type[C]) -> C | None:
        """The means to use a capability; None when the machine lacks it."""
        first, pids = self.guests[0], tuple(each.pid for each in self.guests)
        page = first.offer(GuestPage)
        folders = [(each, self._folder(number)) for number, each in enumerate(self.guests)]
        network = self._network
        found = (
            Files(first.push, first.pull),
            *([] if self._mpi else [Guests(self.run_everywhere)]),
            RecordOutside({"processes": pids}),
            *([replace(page, guests=folders)] if page and not self._mpi else []),
            Pause(
                lambda: self._each(Machine.pause),
                lambda: self._each(Machine.resume),
            ),
            *([network.offered(*pids)] if network else []),
        )
        return offered(found, wanted)

    def refresh_facts(self) -> None:
        """Read the first guest's facts again."""
        self.guests[0].refresh_facts()
        self.facts = self.guests[0].facts

    def clock_skew(self) -> Skew:
        """How far the first guest's clock is from this machine's."""
        return self.guests[0].clock_skew()

    def close(self) -> None:
        """End all guests, and what joins them."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self, environment: Grouped, cpus: Sequence[int]) -> Sequence[Machine]:
        """All guests, booted at once; every one that was started ends when this is closed."""

        def start(number: int) -> Machine:
            folder = self._folder(number)
            folder.mkdir(mode=0o700, exist_ok=True)
            own = _share(cpus, number, environment.shape().cpus // environment.sharing)
            return environment.start_one(folder, own, number, self._network)

        waiting = [self._pool.submit(start, number) for number in range(environment.guests)]
        for each in waiting:
            self._held.callback(_end, each.result)
        return [each.result() for each in waiting]

    def _ranks(self, environment: Grouped) -> MpiHosts:
        """The guests as hosts of Open MPI."""
        slots = environment.shape().cpus // environment.sharing
        folders = [self._folder(number) for number in range(len(self.guests))]
        guests = {f"guest {number}": guest for number, guest in enumerate(self.guests, 1)}
        take = mpi_hosts.from_shared(folders[0])
        return MpiHosts(guests, folders, [slots] * len(guests), take)

    def _folder(self, number: int) -> Path:
        """The host's side of a guest's writable folder."""
        # Beside each other, so that none of them sees what another one may write.
        return self._work.with_name(f"{self._work.name}-{number}") if number else self._work

    def _each(self, action: Callable[[Machine], None]) -> None:
        self._at_once(action, self.guests)

    def _at_once(self, action: Callable[[Any], T], of: Sequence[Any]) -> Sequence[T]:
        return [each.result() for each in [self._pool.submit(action, one) for one in of]]


def _share(cpus: Sequence[int], number: int, smp: int) -> Sequence[int]:
    """The CPUs of one guest: `smp` of them, which the guests take in turn."""
    return sorted({cpus[(number * smp + each) % len(cpus)] for each in range(smp)})


def _end(started: Callable[[], Machine]) -> None:
    """Wait for a guest's start and end the guest; one that did not start has ended already."""
    try:
        machine = started()
    except VtaxError:
        return
    machine.close()
